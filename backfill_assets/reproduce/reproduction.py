"""The result of building a day again, as a value and as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

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

    `build` has the facts of the recorded build. `reasons` say why nothing was computed, or the
    differences apart from rows. `diff` is None if the rows are the same or could not be compared.
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
    """Read a reproduction from its `contents`."""
    return TypeAdapter(Reproduction).validate_python(contents)
