"""Live now, compared with the last release.

`last_commits` is a cheaper test for changes since an earlier decision.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from backfill_assets.digest import digest
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.channels import ChannelHistory
from backfill_assets.lake.delta import last_commit
from backfill_assets.lake.history import Latest
from backfill_assets.lake.listed_files import differing_days
from backfill_assets.lake.recorded_acts import Acts, NextRelease
from backfill_assets.lake.released import open_version
from backfill_assets.lake.releases import Release, Releases, TableVersion
from backfill_assets.lake.storage import LEDGER
from backfill_assets.lake.table_facts import table_facts
from backfill_assets.plan.status import latest_builds
from backfill_assets.plan.store import Plans
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class LiveState:
    """The newest release, and the tables as they would be released now.

    It also has the open plans. `recorded` has the time of each table's newest build, if known.
    """

    newest: Release | None
    tables: Mapping[str, TableVersion]
    plans: tuple[str, ...]
    recorded: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def changed(self) -> list[str]:
        """The tables that differ from the newest release."""
        released = self.newest.tables if self.newest else {}
        return [name for name, version in self.tables.items() if released.get(name) != version]

    def release(self, reason: str) -> NextRelease:
        """The release of an act, with these tables and the tables that the act commits."""
        number = self.newest.number if self.newest else 0
        return NextRelease(number, self.tables, self.recorded, reason)

    def since(self, table: str) -> datetime:
        """Return the time of the newest build of a table at its release.

        The time is from the ledger, so that the clock of the releasing host does not matter.
        """
        if self.newest:
            return self.newest.recorded.get(table, self.newest.at)
        return datetime.min.replace(tzinfo=UTC)


def last_commits(workspace: Workspace) -> str:
    """Return a text that changes with a table, the ledger, the releases, or the state of a plan.

    On a local disk no table need be opened.
    """
    root = workspace.lake.root
    commits = [last_commit(workspace.lake.path(name)) for name in (LEDGER, *workspace.names)]
    of_records = (Acts(root), Releases(root), ChannelHistory(root))
    records = [records.documents.newest() for records in of_records]
    return digest(json.dumps([commits, records, Plans(root).last_events()]), length=16)


def live_state(workspace: Workspace) -> LiveState:
    """The current state. Raises TableUnreadable for a table whose log cannot be read."""
    root = workspace.lake.root
    ledger = workspace.lake.ledger
    newest = workspace.lake.releases.newest()
    plans = Plans(root)
    # Read before the versions: builds that are recorded in between are checked again the next time.
    recorded = {name: newest_of.at for name, newest_of in ledger.newest(workspace.names).items()}
    live = live_tables(workspace, newest)
    return LiveState(newest, live, tuple(plans.open()), recorded)


def changed_days(
    workspace: Workspace, state: LiveState, tables: Iterable[str]
) -> dict[str, frozenset[date] | None]:
    """Return the days of each of these tables whose files differ from the released ones.

    None stands for all days: the log no longer has the released version, or the table was
    recreated.
    """
    return {name: _changed_days(workspace, state, name) for name in tables}


def _changed_days(workspace: Workspace, state: LiveState, table: str) -> frozenset[date] | None:
    released = state.newest.tables.get(table) if state.newest else None
    try:
        before = open_version(workspace.lake.root, released)
    except TableUnreadable:
        return None
    if released and before is None:
        return None
    now = open_version(workspace.lake.root, state.tables.get(table))
    return differing_days(before, now)


def builds_since(
    workspace: Workspace, state: LiveState, changed: Mapping[str, Collection[date] | None]
) -> Latest:
    """Return the latest builds of all partitions changed since the last release.

    The builds of their inputs are included. The cost depends on the number of changes, not on the
    length of the history.
    """
    days = {name: set(of_table) for name, of_table in changed.items() if of_table is not None}
    since = {name: state.since(name) for name in workspace.names}
    graph = workspace.graph
    for partition in workspace.lake.ledger.files().built_after(since):
        for name, day in (partition, *graph.reads(partition)):
            days.setdefault(name, set()).add(day)
    return latest_builds(
        workspace,
        days={**days, **{name: None for name, of_table in changed.items() if of_table is None}},
    )


def live_tables(workspace: Workspace, newest: Release | None) -> dict[str, TableVersion]:
    """Return the current version of every table.

    Missing tables are left out. Tables of `newest` that the workspace no longer has stay as
    released.
    """
    released = newest.tables if newest else {}
    now = {name: table_version(workspace, name) for name in workspace.names}
    return {**released, **{name: version for name, version in now.items() if version}}


def table_version(workspace: Workspace, name: str) -> TableVersion | None:
    """The current version of a table; None if there is no table."""
    facts = table_facts(workspace.lake.path(name))
    return TableVersion(name, facts.version, facts.columns.id) if facts else None
