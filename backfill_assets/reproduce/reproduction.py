"""What came of building a day again: a value, with its form as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from backfill_assets.diff.diff import Diff, read_diff


class Result(StrEnum):
    """`same` and `differs` say what the day's rows came to; of the others none were computed, or not from the same inputs."""

    SAME = "same"
    DIFFERS = "differs"
    OTHER_CODE = "other code"
    INPUT_GONE = "input gone"
    MIXED = "mixed"
    REWRITTEN = "rewritten"


@dataclass(frozen=True)
class Reproduction:
    """A day of a table, as the build was recorded whose rows live, or a release, has of it; and what came of it.

    `reasons`: why nothing was computed, or what differs beside the rows in `diff`; the latter is None where the rows are the
    same, or could not be compared. `build` has the facts of the build, `rebuilt` those of its reproduction; "" and 0 if there
    is none.
    """

    table: str
    day: str
    release: int | None
    result: Result
    build: Mapping[str, Any]
    reasons: Sequence[str] = ()
    rebuilt_fingerprint: str = ""
    rebuilt_rows: int = 0
    diff: Diff | None = None

    def contents(self) -> dict[str, Any]:
        """The reproduction as values of JSON."""
        return dict(json.loads(json.dumps(asdict(self), ensure_ascii=False)))


def read_reproduction(contents: Mapping[str, Any]) -> Reproduction:
    """The reproduction that `contents` came from."""
    diff = read_diff(json.dumps(contents["diff"])) if contents["diff"] else None
    plain = {"result": Result(contents["result"]), "reasons": tuple(contents["reasons"]), "diff": diff}
    return Reproduction(**{**contents, **plain})
