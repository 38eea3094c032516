"""Keep the days that earlier code built: the present code then builds only new days.

Each kept day gets a record in the ledger, and no row changes. The record holds for the present
code version. After the next change of the code, the day is outdated again.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from backfill_assets.calendar import as_day, ranges
from backfill_assets.errors import NOTHING_CHANGED, UsageError, counted
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build, require_reason
from backfill_assets.plan.neighbours import StatusReader
from backfill_assets.verbs.options import AcceptCodeOptions
from backfill_assets.verbs.report import Line, Report
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class AcceptedCode(Report):
    """The days of a table that keep the rows of earlier code, and the present code version.

    `outdated` are the kept days with other deliveries or inputs than at their build.
    """

    table: str
    code: str
    days: Sequence[date]
    run: str
    outdated: Sequence[date] = ()

    def lines(self) -> Iterator[Line]:
        days = counted(len(self.days), "day")
        yield f"{self.table}: {days} built by earlier code stay as they are: {ranges(self.days)}."
        yield f"They count as built by code {self.code}. No row was changed."
        if self.outdated:
            yield (
                f"But the files or inputs of {ranges(self.outdated)} have changed: the next run"
                f" builds them by code {self.code}. See `backfill status --target {self.table}`."
            )


def accept_code(workspace: Workspace, options: AcceptCodeOptions, *, who: str) -> AcceptedCode:
    """Keep the built days of a table before a day, although its code has changed.

    Raises UsageError without a reason, for more than one table, and if no day has other code.
    """
    table = workspace.only_table(options.target)
    require_reason(
        options.reason, f"{table.name} cannot keep rows of earlier code without a reason"
    )
    first_new = as_day(options.before)
    run = f"accept-code-{secrets.token_hex(4)}"
    lake = workspace.lake

    def kept_builds() -> list[Build]:
        at = lake.ledger.next_time(table.name)
        return [
            replace(
                build,
                outcome="unchanged",
                accepted_code=table.version,
                run=run,
                plan="",
                who=who,
                reason=options.reason,
                act="",
                undone_plan="",
                seconds=0.0,
                at=at,
            )
            for build in _of_other_code(workspace, table.name, first_new)
        ]

    nothing = FileCommit(lake.path(table.name), table.partition_by, [], "")
    builds = commit_and_record(lake.root, table.name, kept_builds, nothing)
    if not builds:
        raise UsageError(
            f"No day of {table.name} before {first_new} was built by other code than"
            f" {table.version}.",
            unchanged=NOTHING_CHANGED,
            next_step=f"`backfill status --target {table.name}` shows its days.",
        )
    days = [build.day for build in builds]
    status = StatusReader(workspace).read([(table.name, day) for day in days])
    outdated = [day for (_, day), found in status.items() if not found.is_up_to_date]
    return AcceptedCode(table.name, table.version, days, run, outdated)


def _of_other_code(workspace: Workspace, name: str, before: date) -> list[Build]:
    """The accepted builds before the day `before` that today's code did not make."""
    latest = workspace.lake.latest({name: None}, BUILD_SCHEMA.names)
    code = workspace.code[name]
    builds = [build for build in latest.accepted.values() if build.day < before]
    of_other_code = [build for build in builds if not build.is_of_code(code)]
    return sorted(of_other_code, key=lambda build: build.day)
