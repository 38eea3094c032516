"""The verdict on a plan that is not published: its checks, and who accepted which.

A verdict is about exactly the table versions that it saw. Publishing compares them with the current
versions.
"""

import fnmatch
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from functools import cache

from pydantic import TypeAdapter

from backfill_assets.errors import NOTHING_CHANGED, RefusedByGuard, UsageError, first_of

_FORMAT = 1
_EXAMPLES_SHOWN = 3


class CheckOutcome(StrEnum):
    """The outcome of one check. `decision`: no rule is broken, but a person must decide."""

    PASSED = "passed"
    FAILED = "failed"
    DECISION = "decision"
    SKIPPED = "skipped"


class Remedy(StrEnum):
    """The command that corrects a failed check. The default is for wrong rows."""

    PLAN_AGAIN = "discard"
    BUILD = "resume"
    REBASE = "rebase"


class VerdictResult(StrEnum):
    """The overall result of a plan's checks."""

    PASSED = "passed"
    FAILED = "failed"
    NEEDS_A_DECISION = "needs a decision"


@dataclass(frozen=True)
class CheckLine:
    """One check with its figures. `name` is unique in its checklist.

    `days` are the days of `table` that did not pass. A check of several tables has no table.
    `column` is the checked column, if there is one. `excess` is a multiple of the bound: the
    larger, the worse. `findings` are all sentences of a check with several. `remedy` is for a
    failed check.
    """

    name: str
    outcome: CheckOutcome
    figures: str
    table: str = ""
    days: tuple[date, ...] = ()
    column: str = ""
    excess: float = 0.0
    findings: tuple[str, ...] = ()
    remedy: Remedy = Remedy.PLAN_AGAIN


def figures_text(figures: str, examples: Sequence[str]) -> str:
    """The figures of a check, its first examples, and the number of further ones."""
    return "; ".join([figures, *first_of(examples, _EXAMPLES_SHOWN)])


@dataclass(frozen=True)
class Acceptance:
    """The user who accepted a check that needed a decision, the reason, and the time."""

    who: str
    reason: str
    at: datetime


@dataclass(frozen=True)
class PlanVerdict:
    """The checklist of a plan, its versions and its code, with user and time.

    `versions_seen` has the Delta version by table and side, such as `live staging/outages`.
    `accepted` is by the name of a check. Raises ValueError for a checklist without checks, which
    proves nothing, and for two checks with one name.
    """

    plan: str
    lines: tuple[CheckLine, ...]
    versions_seen: Mapping[str, int]
    code: Mapping[str, str]
    at: datetime
    who: str
    accepted: Mapping[str, Acceptance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [line.name for line in self.lines]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"A checklist needs checks with different names: {names}")

    @property
    def result(self) -> VerdictResult:
        if any(line.outcome == CheckOutcome.FAILED for line in self.lines):
            return VerdictResult.FAILED
        return VerdictResult.NEEDS_A_DECISION if self.undecided() else VerdictResult.PASSED

    @property
    def passed(self) -> bool:
        return self.result == VerdictResult.PASSED

    def undecided(self) -> list[CheckLine]:
        """The checks that still need a decision."""
        return [
            line
            for line in self.lines
            if line.outcome == CheckOutcome.DECISION and line.name not in self.accepted
        ]

    def worst_first(self) -> list[CheckLine]:
        """The checks that failed or need a decision, worst first."""
        failed = [line for line in self.lines if line.outcome == CheckOutcome.FAILED]
        return [
            *failed,
            *sorted(self.undecided(), key=lambda line: (-line.excess, line.name)),
        ]

    def accept(self, name: str, *, who: str, reason: str, at: datetime) -> "PlanVerdict":
        """The verdict with the check `name` accepted.

        Raises UsageError for an unknown check, for a check that failed or needs no decision, and
        for an empty reason.
        """
        line = next((line for line in self.lines if line.name == name), None)
        if line is None:
            why = f"The checklist of plan {self.plan} has no line {name!r}"
        elif line.outcome == CheckOutcome.FAILED:
            why = f"{name} failed ({line.figures}): fix what fails; it cannot be accepted"
        elif line not in self.undecided():
            outcome = "was accepted" if name in self.accepted else line.outcome.value
            why = f"{name} needs no decision: it {outcome}"
        elif not reason.strip():
            why = f"{name} is accepted only with a reason: add --reason 'why'"
        else:
            return replace(self, accepted={**self.accepted, name: Acceptance(who, reason, at)})
        undecided = ", ".join(line.name for line in self.undecided()) or "none"
        raise UsageError(
            f"{why}.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Lines that need a decision: {undecided}.",
        )

    def named(self, name: str) -> list[str]:
        """The undecided checks that match a name or a pattern such as `drift raw/*`.

        If a pattern matches only other checks, the first of these is returned, and `accept` says
        why that check needs no decision.
        """
        if "*" not in name:
            return [name]
        undecided = fnmatch.filter([line.name for line in self.undecided()], name)
        return undecided or fnmatch.filter([line.name for line in self.lines], name)[:1] or [name]

    def with_acceptances_of(self, earlier: "PlanVerdict") -> "PlanVerdict":
        """Keep the acceptances of an earlier verdict on the same versions and code."""
        if (earlier.plan, earlier.versions_seen, earlier.code) != (
            self.plan,
            self.versions_seen,
            self.code,
        ):
            return self
        undecided = {line.name for line in self.undecided()}
        still_valid = {
            name: acceptance for name, acceptance in earlier.accepted.items() if name in undecided
        }
        return replace(self, accepted={**self.accepted, **still_valid})

    def refuse_other_versions(self, versions: Mapping[str, int], code: Mapping[str, str]) -> None:
        """Raise RefusedByGuard unless the verdict is about exactly these versions and this code."""
        seen: dict[str, int | str] = {**self.versions_seen, **self.code}
        now: dict[str, int | str] = {**versions, **code}
        changes = [
            f"{name} (seen {seen.get(name, 'none')}, now {now.get(name, 'none')})"
            for name in dict.fromkeys([*seen, *now])
            if seen.get(name) != now.get(name)
        ]
        if changes:
            raise RefusedByGuard(
                f"The verdict on plan {self.plan} is about other versions: {', '.join(changes)}.",
                unchanged=NOTHING_CHANGED,
                next_step=f"Type `backfill verify {self.plan}` again.",
            )


def verdict_json(verdict: PlanVerdict) -> str:
    """The verdict as JSON. `result` is for readers, and depends on the lines."""
    values = _adapter().dump_python(verdict, mode="json")
    values |= {"format": _FORMAT, "result": verdict.result}
    return json.dumps(values, ensure_ascii=False, indent=1)


def read_verdict(text: str | bytes) -> PlanVerdict:
    """Read the JSON of `verdict_json`.

    Raises ValueError, KeyError or TypeError for other texts.
    """
    values = json.loads(text)
    if values["format"] != _FORMAT:
        raise ValueError(f"Format {values['format']} of a verdict is unknown.")
    return _adapter().validate_python(values)


@cache
def _adapter() -> TypeAdapter[PlanVerdict]:
    return TypeAdapter(PlanVerdict)
