"""The days of one table that a plan has built in its shadow, put into live in one commit."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from backfill_assets.calendar import Partition
from backfill_assets.errors import Conflict
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.promote import PromoteCommit
from backfill_assets.lake.record import SCHEMA, Build
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.conflicts import ShadowState, days_in, outdated_on_live
from backfill_assets.publish.live_changes import rewritten_in_live
from backfill_assets.publish.may_publish import in_conflict
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class IntoLive:
    """One table of a publication of `plan`, of which the shadow is in `state`; `run`, `who` and `reason` are recorded."""

    plan: Plan
    workspace: Workspace
    table: Table
    state: ShadowState
    run: str
    who: str
    reason: str = ""

    @property
    def days(self) -> set[date]:
        """Those that the shadow has built: live has the others as the plan would build them."""
        return days_in(self.state.builds, self.table.name)

    def refuse_unfit(self) -> None:
        """UsageError if live's table, as it is now, would not take these days. Nothing is written."""
        if self.days:
            self._commit.refuse_unfit(sorted(self.days))

    def commit(self) -> list[Build]:
        """Commit the days that live has other rows of; the builds recorded.

        Raises Conflict if live has changed under the plan, and what `commit_and_record` raises.
        """
        return commit_and_record(self.workspace.lake.root, self.table.name, self._decide, self._commit) if self.days else []

    @property
    def _commit(self) -> PromoteCommit:
        name = self.table.name
        source, version = self.state.shadow.path(name), self.state.versions[name]
        return PromoteCommit(self.workspace.lake.path(name), self.table.partition_by, source, version)

    def _decide(self) -> list[Build]:
        # Under the lock: what was written to live since the decision is a conflict too.
        lake, shadow, name, days = self.workspace.lake, self.state.shadow, self.table.name, self.days
        written = {
            (name, day): why for day, why in rewritten_in_live(name, days, self.workspace, shadow, self.state.builds).items()
        }
        if changed := written | outdated_on_live(self.plan, self.workspace, shadow, [name]):
            raise Conflict(in_conflict(self.plan, changed))
        known = lake.latest({name: days}, SCHEMA.names)
        by_others = known.differing() | lake.rewritten(known.accepted, {name: None})
        by_others |= {(name, day): why for day, why in lake.lost_files(name, self.table.partition_by, days).items()}
        of_live = {p: build for p, build in known.accepted.items() if p not in by_others}
        versions = {other.name: lake.version(other.name) for other, _ in self.table.windows()}
        at, new = lake.ledger.next_time(name), [self.state.builds[name, day] for day in sorted(days)]
        return list(self._records(new, of_live, versions, at))

    def _records(
        self, builds: Iterable[Build], of_live: Mapping[Partition, Build], versions: Mapping[str, int], at: datetime
    ) -> Iterator[Build]:
        """The records of the shadow's builds in live: of its code and inputs; nothing for those that are recorded already."""
        for build in builds:
            there = of_live.get((build.table, build.day))
            same = there if there and there.fingerprint == build.fingerprint else None
            if same and same.plan == self.plan.id and same.inputs == build.inputs:
                continue
            place: dict[str, Any] = {"delta_version": same.delta_version, "data_files": same.data_files} if same else {}
            yield replace(
                build,
                outcome="unchanged" if same else "accepted",
                run=self.run,
                who=self.who,
                reason=self.reason or build.reason,
                input_versions=dict(versions),
                at=at,
                **place,
            )
