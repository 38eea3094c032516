"""Adopt days of an existing Delta table, or forget that. No server is needed."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from backfill_assets.calendar import ranges
from backfill_assets.lake.ledger import require_reason
from backfill_assets.plan.adopt import Adopted, Adoption
from backfill_assets.verbs.options import AdoptOptions
from backfill_assets.verbs.report import Line, Report
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class AdoptReport(Report):
    """The days of a table that were adopted or forgotten, and those whose rows were read."""

    table: str
    adopted: Adopted
    fingerprinted: Sequence[date] = ()
    forgotten: Sequence[date] = ()

    def lines(self) -> Iterator[Line]:
        named = {
            f"adopted, with {self.adopted.rows:,} row(s)": self.adopted.days,
            "fingerprints are recorded": self.fingerprinted,
            "built or adopted before, and left as they are": self.adopted.built,
            "not in the calendar, and not adopted": self.adopted.outside,
            "not adopted any more": self.forgotten,
        }
        yield from (f"{self.table}: {text}: {ranges(of)}." for text, of in named.items() if of)
        yield "No row was changed."


def adopt_days(
    workspace: Workspace,
    options: AdoptOptions,
    *,
    who: str,
    note: Callable[[str], None],
    spark: Callable[[], Any] | None = None,
) -> AdoptReport:
    """Adopt days of a table as they stand, or forget that. `spark` opens a session.

    Raises UsageError without a reason, and for a table or days that cannot be adopted, Conflict if
    another program commits meanwhile, and RefusedByGuard while a run builds the table.
    """
    table = workspace.only_table(options.target)
    name = table.name
    require_reason(options.reason, f"Days of {name} are not adopted or forgotten without a reason")
    wanted = table.calendar_of(workspace.calendar).clip(workspace.days(options.partitions))
    run = f"adopt-{secrets.token_hex(4)}"
    adoption = Adoption(workspace, table, wanted, who, options.reason, run, options.as_of_code)
    if options.undo:
        return AdoptReport(name, Adopted(), forgotten=adoption.undo())
    adopted = adoption.adopt()
    # What reads a table by another day needs the fingerprints of the rows about each day.
    if not (options.fingerprint or table.fingerprint_by):
        return AdoptReport(name, adopted)
    # Spark is loaded here, because other commands do without it.
    from backfill_assets.lake.spark.session import opener

    spark = spark or opener(workspace.settings, workspace.packages)
    read = adoption.fingerprint(spark, note)
    return AdoptReport(name, adopted, read)
