"""Give readers of a table's name another table, such as its next version, in one release.

No row is built or copied, both tables are built as before, and readers of other channels get what
they got.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from deltalake import DeltaTable

from backfill_assets.calendar import days_as_typed, ranges
from backfill_assets.errors import RefusedByGuard, TableUnreadable, UsageError, did_you_mean
from backfill_assets.lake.columns import columns_lost
from backfill_assets.lake.integrity import day_files
from backfill_assets.lake.released import open_version
from backfill_assets.lake.releases import STABLE, Release, TableVersion, no_release
from backfill_assets.workspace import Workspace

NOTHING = "Nothing was switched."


@dataclass(frozen=True)
class Switch:
    """A new table behind the name `name` for the readers of `channel`.

    If `to` is the name itself, readers get the table of that name again.
    """

    name: str
    to: str
    channel: str = STABLE

    def carry_out(
        self, workspace: Workspace, who: str, reason: str = "", *, allow_breaking: bool = False
    ) -> Release | None:
        """Add the release with which readers get `to`; None if they get it already.

        Raises UsageError for a table that is not released, or an unknown channel. Raises
        RefusedByGuard if the channel does not get the newest tables, or if its readers would lose
        columns or days (unless `allow_breaking`). Raises Conflict if another release came first.
        """
        releases = workspace.lake.releases
        releases.refuse_unknown(self.channel)
        newest = releases.newest()
        if newest is None:
            raise no_release(workspace.lake.root)
        number = newest.channels.get(self.channel, newest.channels.get(STABLE))
        if number is None:
            raise RefusedByGuard(
                f"Readers of {self.channel} have no release yet: what there is was"
                " published to others.",
                unchanged=NOTHING,
                next_step=(
                    "Give them one first: `backfill publish PLAN`, or `backfill"
                    " release --reason ...`."
                ),
            )
        now = releases.get(number)
        before = self._version(now, now.switches.get(self.name, self.name))
        after = self._version(now, self.to)
        if before == after:
            return None
        if now.tables != newest.tables:
            raise RefusedByGuard(
                f"Readers of {self.channel} get release {number}, and release"
                f" {newest.number} has other tables.",
                unchanged=NOTHING,
                next_step=(
                    "Give them the newest first: `backfill publish PLAN"
                    f" --channel {self.channel}`, or `backfill release --reason"
                    " ...`."
                ),
            )
        if not allow_breaking:
            self._refuse_breaking(workspace, before, after)
        switches = {name: table for name, table in now.switches.items() if name != self.name}
        switches |= {self.name: self.to} if self.to != self.name else {}
        return releases.switch(
            newest, self.channel, switches, who=who, reason=reason or f"{self.name} is {self.to}"
        )

    def _version(self, release: Release, name: str) -> TableVersion:
        if version := release.tables.get(name):
            return version
        raise UsageError(
            f"Release {release.number} has no table {name}.{did_you_mean(name, release.tables)}",
            unchanged=NOTHING,
            next_step=(
                f"`backfill releases {release.number}` shows the tables that"
                " there are. A table of the project is built and released"
                " first: `backfill run --target TABLE --partitions ...`."
            ),
        )

    def _refuse_breaking(
        self, workspace: Workspace, before: TableVersion, after: TableVersion
    ) -> None:
        tables = [_opened(workspace, version) for version in (before, after)]
        losses = [*_lost(*tables), *_key_lost(workspace, before.path, after.path)]
        days = sorted(_days(tables[0]) - _days(tables[1]))
        losses += [f"{len(days)} day(s) are missing ({ranges(days)})"] if days else []
        if losses:
            build = (
                f"Build them: `backfill plan --target {after.path} --partitions"
                f" {days_as_typed(days)}`. "
                if days
                else ""
            )
            raise RefusedByGuard(
                f"Readers of {self.name} would miss something in {after.path}:"
                f" {'; '.join(losses)}.",
                unchanged=NOTHING,
                next_step=(
                    f"{build}If it is meant: `backfill switch {self.name} --to {self.to}"
                    f" --channel {self.channel} --allow-breaking`."
                ),
            )


def _opened(workspace: Workspace, version: TableVersion) -> DeltaTable:
    table = open_version(workspace.lake.root, version)
    if table is None:
        raise TableUnreadable(
            f"There is no table at {workspace.lake.path(version.path)} any more.",
            unchanged=NOTHING,
        )
    return table


def _lost(before: DeltaTable, after: DeltaTable) -> Iterator[str]:
    yield from columns_lost(before, after)
    if before.metadata().partition_columns != after.metadata().partition_columns:
        yield f"it is partitioned by {', '.join(after.metadata().partition_columns) or 'nothing'}"


def _key_lost(workspace: Workspace, before: str, after: str) -> Iterator[str]:
    """Yield the new key if the tables have different keys: their rows mean different things.

    A table that is no longer declared has no known key.
    """
    keys = {table.name: table.key for table in workspace.tables}
    if before in keys and after in keys and set(keys[before]) != set(keys[after]):
        yield f"its key is {', '.join(keys[after]) or 'not declared'}"


def _days(table: DeltaTable) -> set[date]:
    return {day for day, _, _ in day_files(table)}
