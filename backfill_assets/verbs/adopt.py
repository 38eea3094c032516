"""Adopt days of an existing Delta table, or forget that. No server is needed."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from backfill_assets.calendar import ranges
from backfill_assets.errors import NOTHING_CHANGED, UsageError
from backfill_assets.lake.adoption import NOT_ADOPTED
from backfill_assets.lake.ledger import refuse_unstorable_text
from backfill_assets.plan.adopt import Adoption
from backfill_assets.verbs.options import AdoptOptions
from backfill_assets.verbs.report import Line, Report
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class AdoptReport(Report):
    """The days of a table that were adopted, with their rows, or that were forgotten.

    `fingerprinted` are the days whose rows were read. `built` are days that had builds already, and
    `outside` days of the table that are not in the calendar.
    """

    table: str
    days: Sequence[date] = ()
    rows: int = 0
    fingerprinted: Sequence[date] = ()
    built: Sequence[date] = ()
    outside: Sequence[date] = ()
    forgotten: Sequence[date] = ()

    def lines(self) -> Iterator[Line]:
        named = {
            f"Adopted, with {self.rows:,} row(s)": self.days,
            "Fingerprints are recorded": self.fingerprinted,
            "Built or adopted before, and left as they are": self.built,
            "Not in the calendar, and not adopted": self.outside,
            "Not adopted any more": self.forgotten,
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
    if not options.reason.strip():
        raise UsageError(
            f"Days of {name} are not adopted or forgotten without a reason.",
            unchanged=NOTHING_CHANGED,
            next_step="Add --reason 'why'. It is recorded.",
        )
    refuse_unstorable_text("reason", options.reason)
    wanted = table.calendar_of(workspace.calendar).clip(workspace.days(options.partitions))
    run = f"adopt-{secrets.token_hex(4)}"
    adoption = Adoption(workspace, table, wanted, who, options.reason, run, options.as_of_code)
    if options.undo:
        return AdoptReport(name, forgotten=adoption.undo())
    if table.fingerprint_by and not options.fingerprint:
        raise UsageError(
            f"{name} is read by {table.fingerprint_by}, so its rows must be read.",
            unchanged=NOT_ADOPTED,
            next_step="Add --fingerprint.",
        )
    done = adoption.adopt()
    read = list[date]()
    if options.fingerprint:
        read = adoption.fingerprint(spark or _opens_spark(workspace), note)
    if not (done.days or read):
        raise UsageError(
            f"No day of {name} can be adopted: {ranges(done.built) or 'none'} have builds already,"
            " and the table has no other days of the calendar.",
            unchanged=NOT_ADOPTED,
            next_step="Name other days by --partitions, or correct the calendar.",
        )
    return AdoptReport(name, done.days, done.rows, read, done.built, done.outside)


def _opens_spark(workspace: Workspace) -> Callable[[], Any]:
    # Spark is loaded here, because other commands do without it.
    from backfill_assets.lake.spark.session import open_session, session_conf

    return lambda: open_session(session_conf(workspace.settings, workspace.packages))
