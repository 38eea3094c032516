"""What is asked of a step, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from backfill_assets.lake.records import Build, WriteMode
from backfill_assets.table import Table


@dataclass(frozen=True)
class Order:
    """Who asks for a build, how and why. `identity` is one for a run and all its re-executions; its own if not given."""

    run: str
    identity: str = ""
    force: bool = False
    write_mode: WriteMode = "overwrite"
    plan: str = ""
    who: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", self.identity or self.run)

    def failed(self, table: Table, day: date, message: str) -> Build:
        """The record of a day that came to nothing; what became of it otherwise is filled in."""
        return Build(
            table.name,
            day,
            "failed",
            self.run,
            table.version,
            write_mode=self.write_mode,
            identity=self.identity,
            plan=self.plan,
            who=self.who,
            reason=self.reason,
            message=message,
        )


@dataclass(frozen=True)
class StepResult:
    """What became of every day asked for: a build, the build it already had, or why it was held back."""

    table: Table
    built: Sequence[Build] = ()
    up_to_date: Sequence[Build] = ()
    held: Mapping[date, str] = field(default_factory=dict)

    def failed(self) -> list[Build]:
        return [build for build in self.built if build.outcome == "failed"]

    def standing(self) -> list[Build]:
        """The builds whose rows now stand in the table, in order of days."""
        return sorted([b for b in self.built if b.stands] + list(self.up_to_date), key=lambda b: b.day)
