"""Give readers of a table's name another table, such as its next version, at once.

No row is built or copied, both tables are built as before, and nothing changes for readers of other
channels.
"""

from dataclasses import dataclass, replace

from deltalake import DeltaTable

from backfill_assets.calendar import days_as_typed, ranges
from backfill_assets.errors import RefusedByGuard, TableUnreadable, UsageError, did_you_mean
from backfill_assets.lake.channels import POINTED, STABLE, SWITCHED, ChannelHistory, Channels
from backfill_assets.lake.columns import columns_lost
from backfill_assets.lake.listed_files import rows_by_day
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import open_version
from backfill_assets.lake.releases import Release, TableVersion
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
    ) -> Channels | None:
        """Give readers the table `to` from now on. Return None if they get it already."""
        history = ChannelHistory(workspace.lake.root)
        channels = history.now()
        now = open_channel(workspace.lake.root, self.channel)
        before = self._version(now, now.switches.get(self.name, self.name))
        after = self._version(now, self.to)
        if before == after:
            return None
        if not allow_breaking:
            self._refuse_breaking(workspace, before, after)
        pointer = channels.pointer(self.channel)
        switches = {name: table for name, table in pointer.switches.items() if name != self.name}
        # Other readers get the switches of `stable`, unless their channel has its own.
        others = {} if self.channel == STABLE else channels.switches_of(STABLE)
        if self.to != others.get(self.name, self.name):
            switches[self.name] = self.to
        why = reason or f"{self.name} is {self.to}"
        moved = replace(pointer, switches=switches)
        if (pinned := pointer.pinned_switches) is not None:
            moved = replace(moved, pinned_switches={**pinned, self.name: self.to})
        kind = SWITCHED if self.channel == STABLE else POINTED
        return history.move(channels, self.channel, moved, who=who, reason=why, kind=kind)

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
        losses = [*columns_lost(*tables)]
        # The key of a table that is no longer declared is unknown.
        keys = {table.name: table.key for table in workspace.tables}
        key = keys.get(after.path, ())
        # Rows with another key mean other things.
        if {before.path, after.path} <= keys.keys() and set(keys[before.path]) != set(key):
            losses.append(f"its key is {', '.join(key) or 'not declared'}")
        then, now = (table.metadata().partition_columns for table in tables)
        losses += [f"it is partitioned by {', '.join(now) or 'nothing'}"] if then != now else []
        days = sorted(rows_by_day(tables[0]).keys() - rows_by_day(tables[1]).keys())
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
