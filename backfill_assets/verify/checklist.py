"""The verdict on a plan that is not published: its checks, and who accepted which.

A verdict is about exactly the table versions that it saw. Publishing compares them with the current
versions.
"""

import fnmatch
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

from backfill_assets.errors import NOTHING_CHANGED, RefusedByGuard, UsageError

_FORMAT = 1


class CheckOutcome(StrEnum):
    """The outcome of one check. `decision`: no rule is broken, but a person must look at it."""

    PASSED = "passed"
    FAILED = "failed"
    DECISION = "decision"
    SKIPPED = "skipped"


class VerdictResult(StrEnum):
    """The overall result of a plan's checks."""

    PASSED = "passed"
    FAILED = "failed"
    NEEDS_A_DECISION = "needs a decision"


@dataclass(frozen=True)
class CheckLine:
    """One check, with the figures that it looked at. `name` is the line's own in its checklist.

    `days` are those that did not pass, of `table`; no table where the check is about several.
    """

    name: str
    outcome: CheckOutcome
    figures: str
    table: str = ""
    days: tuple[date, ...] = ()


@dataclass(frozen=True)
class Acceptance:
    """Who accepted a check that needed a decision, why, and when."""

    who: str
    reason: str
    at: datetime


@dataclass(frozen=True)
class PlanVerdict:
    """The checklist of a plan: its lines, the versions and the code that they were found on, who
    asked for it and when.

    `versions_seen`: by a name of each table and side that was read (such as `live
    staging/outages`), its Delta version. `accepted`: by the name of a line that needed a decision,
    who took it. Raises ValueError for no lines at all, which prove nothing, and for two lines of
    one name.
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
            raise ValueError(f"a checklist has lines, each of a name of its own: {names}")

    @property
    def result(self) -> VerdictResult:
        if any(line.outcome == CheckOutcome.FAILED for line in self.lines):
            return VerdictResult.FAILED
        return VerdictResult.NEEDS_A_DECISION if self.undecided() else VerdictResult.PASSED

    @property
    def passed(self) -> bool:
        return self.result == VerdictResult.PASSED

    def undecided(self) -> list[CheckLine]:
        """The lines that still need a decision."""
        return [
            line
            for line in self.lines
            if line.outcome == CheckOutcome.DECISION and line.name not in self.accepted
        ]

    def accept(self, name: str, *, who: str, reason: str, at: datetime) -> "PlanVerdict":
        """The verdict with the line `name` accepted. UsageError for a line that there is not or
        that needs no decision, above all one that failed, and for an empty reason.
        """
        line = next((line for line in self.lines if line.name == name), None)
        open_names = ", ".join(each.name for each in self.undecided()) or "none"
        if line is None:
            why = f"The checklist of plan {self.plan} has no line {name!r}"
        elif line.outcome == CheckOutcome.FAILED:
            why = f"{name} failed ({line.figures}): fix what fails; it cannot be accepted"
        elif line.outcome != CheckOutcome.DECISION or name in self.accepted:
            why = (
                f"{name} needs no decision: it is"
                f" {'accepted' if name in self.accepted else line.outcome.value}"
            )
        elif not reason.strip():
            why = f"Why is {name} accepted? A reason is missing"
        else:
            return replace(self, accepted={**self.accepted, name: Acceptance(who, reason, at)})
        raise UsageError(
            f"{why}.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Lines that need a decision: {open_names}.",
        )

    def named(self, name: str) -> list[str]:
        """The undecided lines that a pattern such as `drift raw/*` names, or else the first line
        that it names at all, of which `accept` says why it needs no decision; a name without a star
        is itself.
        """
        if "*" not in name:
            return [name]
        undecided = fnmatch.filter([line.name for line in self.undecided()], name)
        return undecided or fnmatch.filter([line.name for line in self.lines], name)[:1] or [name]

    def with_acceptances_of(self, earlier: "PlanVerdict") -> "PlanVerdict":
        """What was accepted in an earlier verdict on the same versions and code stays accepted."""
        if (earlier.plan, earlier.versions_seen, earlier.code) != (
            self.plan,
            self.versions_seen,
            self.code,
        ):
            return self
        undecided = {line.name for line in self.undecided()}
        kept = {name: each for name, each in earlier.accepted.items() if name in undecided}
        return replace(self, accepted={**self.accepted, **kept})

    def refuse_other_versions(self, versions: Mapping[str, int], code: Mapping[str, str]) -> None:
        """RefusedByGuard if these are not exactly the versions and the code that the verdict is
        about.
        """
        changes = [
            f"{name} (seen {seen.get(name, 'none')}, now {now.get(name, 'none')})"
            for seen, now in ((self.versions_seen, versions), (self.code, code))
            for name in dict.fromkeys([*seen, *now])
            if seen.get(name) != now.get(name)
        ]
        if changes:
            raise RefusedByGuard(
                (
                    f"The verdict on plan {self.plan} is about other versions than there are now: "
                    f"{', '.join(changes)}."
                ),
                unchanged=NOTHING_CHANGED,
                next_step=f"Type `backfill verify {self.plan}` again.",
            )


def verdict_json(verdict: PlanVerdict) -> str:
    """The verdict as JSON; `result` is there for readers, and follows from the lines."""
    values = asdict(verdict) | {"format": _FORMAT, "result": verdict.result}
    return json.dumps(values, default=_as_text, ensure_ascii=False, indent=1)


def _as_text(value: date) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value.isoformat()


def read_verdict(text: str | bytes) -> PlanVerdict:
    """The verdict that `contents` wrote. Raises ValueError, KeyError or TypeError for any other
    text.
    """
    values: dict[str, Any] = json.loads(text)
    if values["format"] != _FORMAT:
        raise ValueError(f"a verdict of format {values['format']}")
    accepted = {
        name: Acceptance(**each | {"at": _time(each["at"])})
        for name, each in values["accepted"].items()
    }
    known = {name: values[name] for name in ("plan", "versions_seen", "code", "who")}
    return PlanVerdict(
        **known, lines=tuple(_lines(values["lines"])), at=_time(values["at"]), accepted=accepted
    )


def _lines(lines: Iterable[Mapping[str, Any]]) -> Iterable[CheckLine]:
    for line in lines:
        days = tuple(map(date.fromisoformat, line["days"]))
        yield CheckLine(
            line["name"], CheckOutcome(line["outcome"]), line["figures"], line["table"], days
        )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
