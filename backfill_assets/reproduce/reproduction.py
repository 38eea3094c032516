"""The result of building a day again: a value, its JSON, and its text."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from backfill_assets.diff import text
from backfill_assets.diff.diff import Diff


class ReproductionResult(StrEnum):
    """The result of a reproduction.

    Only `same` and `differs` mean that rows were computed from the same inputs.
    """

    SAME = "same"
    DIFFERS = "differs"
    OTHER_CODE = "other code"
    INPUT_GONE = "input gone"
    MIXED = "mixed"
    REWRITTEN = "rewritten"


@dataclass(frozen=True)
class Reproduction:
    """A recorded build of a day, and the result of building the day again.

    `build` has the facts of the recorded build. `reasons` say why nothing was computed, or what
    differs apart from rows. `diff` is None if the rows are the same or could not be compared.
    `rebuilt_fingerprint` and `rebuilt_rows` are "" and 0 if nothing was computed.
    """

    table: str
    day: str
    release: int | None
    result: ReproductionResult
    build: Mapping[str, Any]
    reasons: tuple[str, ...] = ()
    rebuilt_fingerprint: str = ""
    rebuilt_rows: int = 0
    diff: Diff | None = None

    def contents(self) -> dict[str, Any]:
        """The reproduction as values of JSON."""
        return dict(json.loads(json.dumps(asdict(self), ensure_ascii=False)))


def read_reproduction(contents: Mapping[str, Any]) -> Reproduction:
    """The reproduction that `contents` came from."""
    return TypeAdapter(Reproduction).validate_python(contents)


_SENTENCES = {
    ReproductionResult.SAME: "comes out the same",
    ReproductionResult.DIFFERS: "differs, from the same code and inputs",
    ReproductionResult.OTHER_CODE: "was not rebuilt: the code is another one",
    ReproductionResult.INPUT_GONE: "cannot be rebuilt: what it was made from is not there any more",
    ReproductionResult.MIXED: "cannot be rebuilt: its rows are those of several builds",
    ReproductionResult.REWRITTEN: "cannot be rebuilt: it does not hold what was built",
}
_NEXT_STEPS = {
    ReproductionResult.DIFFERS: (
        "Its rows depend on something else: chance, an order that is not fixed, a clock, a library,"
        " or data that is not an input. Fix it in the code of the table, or declare it as an"
        " input."
    ),
    ReproductionResult.INPUT_GONE: (
        "Put what is named back as it was, from a copy, and ask again. `backfill maintain` deletes"
        " nothing that a release has; other vacuums do."
    ),
    ReproductionResult.MIXED: (
        "Build all of it again with today's code: `backfill run --partitions {day} --target"
        " {table} --force`."
    ),
    ReproductionResult.REWRITTEN: (
        "`backfill reconcile` says what happened, and how to put it back."
    ),
}


def reproduction_heading(reproduction: Reproduction) -> str:
    """The result in one sentence."""
    of = f" of release {reproduction.release}" if reproduction.release else ""
    return f"{reproduction.table} {reproduction.day}{of} {_SENTENCES[reproduction.result]}."


def reproduction_lines(reproduction: Reproduction) -> Iterator[str]:
    """The recorded build, the rebuilt day, what differs or is missing, and what to do."""
    build = reproduction.build
    git = f", git {build['git_commit']}" if build["git_commit"] else ""
    built = f"built {build['at'][:19]} by run {build['run']}, code {build['code_version']}{git}"
    yield f"{built}: {_rows(build['rows'], build['fingerprint'])}"
    read = [
        f"{name} at version {version}"
        for name, version in build["input_versions"].items()
        if version >= 0
    ]
    if read:
        yield f"from {', '.join(read)}"
    if build["spark_conf"]:
        yield f"with {', '.join(f'{name}={value}' for name, value in build['spark_conf'].items())}"
    if reproduction.rebuilt_fingerprint:
        yield f"rebuilt now: {_rows(reproduction.rebuilt_rows, reproduction.rebuilt_fingerprint)}"
    yield from reproduction.reasons
    if reproduction.diff:
        yield from text.detail_lines(reproduction.diff)
    if reproduction.result in _NEXT_STEPS:
        yield _NEXT_STEPS[reproduction.result].format(
            day=reproduction.day, table=reproduction.table
        )


def _rows(rows: int, fingerprint: str) -> str:
    return f"{rows:,} row(s), fingerprint {fingerprint}"
