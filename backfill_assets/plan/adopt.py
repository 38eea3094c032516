"""Adopt days of an existing Delta table: they count as built, and no row is computed.

An adoption is one commit that has only builds. So the ledger can be made from it again, and later
commits of other programs are told apart from it. Fingerprints are recorded after it, some days at a
time. If that is stopped, the same command reads only the other days.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from backfill_assets.errors import NOTHING_CHANGED, Conflict, RefusedByGuard, UsageError
from backfill_assets.grouping import grouped
from backfill_assets.lake.adoption import (
    NOT_ADOPTED,
    REMEDY,
    count_rows,
    refuse_other_folder,
    refuse_unadoptable,
)
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.delta import commits_at, open_table, version_of
from backfill_assets.lake.file_commit import AdoptCommit
from backfill_assets.lake.history import LATEST_COLUMNS, is_ours, origin_builds
from backfill_assets.lake.ledger import ADOPTED, BUILD_SCHEMA, BY_FILES, Build
from backfill_assets.lake.listed_files import data_files
from backfill_assets.lake.running import running_steps
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.lake.slices import files_of
from backfill_assets.lake.storage import Place, record_place, recorded_places
from backfill_assets.plan.status import with_inputs
from backfill_assets.plan.store import Plans
from backfill_assets.step.inputs import CLOSED, Inputs, own_days, with_own
from backfill_assets.step.verdict import facts_now
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# The number of days that are read together, and recorded together.
DAYS_TOGETHER = 365


@dataclass(frozen=True)
class Adopted:
    """The adopted days of a table, with their rows.

    `built` are days that had builds already, and `outside` days that are not in the calendar.
    """

    days: Sequence[date] = ()
    rows: int = 0
    built: Sequence[date] = ()
    outside: Sequence[date] = ()


@dataclass(frozen=True)
class Adoption:
    """The `wanted` days of a table, to be adopted or forgotten."""

    workspace: Workspace
    table: Table
    wanted: Sequence[date]
    who: str
    reason: str
    run: str
    as_of_code: bool = False

    def adopt(self) -> Adopted:
        """Adopt the days that have no build."""
        table = self.table
        name = table.name
        lake = self.workspace.lake
        folder = table.path or lake.path(name)
        is_known = bool(lake.ledger.newest([name])[name].versions)
        if folder != lake.path(name):
            refuse_other_folder(lake.root, name, folder, is_known=is_known)
        opened = open_table(folder, remedy=REMEDY)
        before = recorded_places(lake.root, are_new=True).get(name)
        place = Place(folder) if table.path else before
        if opened is None:
            # A run can then build the table there.
            record_place(lake.root, name, place)
            raise UsageError(
                f"There is no Delta table at {folder}.",
                unchanged=NOT_ADOPTED,
                next_step=f"Name its folder in `path` of {name}. Or build it: `backfill run`.",
            )
        types = types_of(table.columns)
        refuse_unadoptable(opened, folder, table.partition_by, types, is_known=is_known)
        files = grouped(
            (file.day, file) for file in files_of(opened, table.partition_by, self.wanted)
        )
        accepted = lake.latest({name: None}).accepted
        built = sorted(day for day in files if (name, day) in accepted)
        days = sorted(files.keys() - built)
        rows = {day: count_rows(folder, files[day]) for day in days}
        hashes = data_files(opened)
        fingerprints = {day: f"{BY_FILES}{hashes[day]}" for day in days}
        inputs = self._inputs(days, fingerprints) if self.as_of_code else {}

        def decide() -> list[Build]:
            if lake.version(name) != opened.version():
                raise Conflict(
                    f"Another program committed to {folder} meanwhile.",
                    unchanged=NOT_ADOPTED,
                    next_step="Stop it, then type the same again.",
                )
            return [
                Build(
                    name,
                    day,
                    "accepted",
                    self.run,
                    table.version if inputs else ADOPTED,
                    fingerprint=fingerprints[day],
                    rows=rows[day],
                    inputs=of_day.tables,
                    delivered="" if of_day.delivery == CLOSED else of_day.delivery.fingerprint,
                    files=dict(of_day.delivery.files),
                    hashes=dict(of_day.delivery.hashes),
                    data_files=hashes[day],
                    code_loaded_at=table.loaded_at if inputs else "",
                )
                for day in days
                for of_day in [inputs.get(day, Inputs())]
            ]

        record_place(lake.root, name, place)
        try:
            if days:
                self._record(decide)
        except Exception:
            later = range(opened.version() + 1, version_of(folder) + 1)
            # A commit of this or another adoption needs its place.
            if not any(map(is_ours, commits_at(folder, later))):
                record_place(lake.root, name, before)
            raise
        outside = sorted(hashes.keys() - set(self.workspace.calendar.days()))
        return Adopted(days, sum(rows.values()), built, outside)

    def _inputs(
        self, days: Sequence[date], fingerprints: Mapping[date, str]
    ) -> Mapping[date, Inputs]:
        """Today's deliveries and inputs of days, which may read each other."""
        partitions = [(self.table.name, day) for day in days]
        builds = self.workspace.lake.latest(with_inputs(self.workspace, partitions))
        facts = facts_now(self.table, days, self.workspace, builds)
        return {day: self._with_own(facts.inputs(day), day, fingerprints) for day in days}

    def _with_own(self, inputs: Inputs, day: date, fingerprints: Mapping[date, str]) -> Inputs:
        return with_own(inputs, self.table, own_days(self.table, day), fingerprints)

    def fingerprint(self, spark: Callable[[], Any], note: Callable[[str], None]) -> list[date]:
        """Read the adopted days that are known by their files only, and record fingerprints."""
        from backfill_assets.step.compute import stored_profiles

        name = self.table.name
        version = self.workspace.lake.version(name)
        adopted = {day: b for day, b in self._whole().items() if b.is_known_by_files}
        days = sorted(adopted)
        for first in range(0, len(days), DAYS_TOGETHER):
            part = days[first : first + DAYS_TOGETHER]
            read = stored_profiles(self.table, part, version, self.workspace, spark())

            def decide(read: Mapping[date, Any] = read) -> list[Build]:
                now = self._whole()
                known = {day: build.fingerprint for day, build in now.items()}
                known |= {day: profile.fingerprint for day, profile in read.items()}
                return [
                    replace(
                        adopted[day],
                        outcome="unchanged",
                        fingerprint=profile.fingerprint,
                        inputs=self._with_own(Inputs(adopted[day].inputs), day, known).tables
                        if adopted[day].inputs
                        else {},
                        nulls=dict(profile.nulls),
                        day_fingerprints=dict(profile.day_fingerprints),
                    )
                    for day, profile in read.items()
                    if now.get(day) == adopted[day]
                ]

            self._record(decide)
            note(f"{name}: {first + len(part):,} of {len(days):,} day(s) have fingerprints")
        return days

    def undo(self) -> list[date]:
        """Forget the adoption of days. Raises RefusedByGuard if a plan or a build needs them."""
        name = self.table.name
        lake = self.workspace.lake
        plans = Plans(lake.root)
        latest = lake.latest(dict.fromkeys(self.workspace.names)).accepted
        origins = self._origins()
        ever = {str(day) for day, acts in origins.items() if "adopt" in acts}
        needing = [
            f"{build.table} {build.day} was built on them"
            for build in latest.values()
            if ever & build.inputs.get(name, {}).keys()
            or (
                build.table == name and str(build.day) in ever and origins[build.day][-1] != "adopt"
            )
        ]
        open_plans = {*plans.open(), *ledgers_of_shadows(lake.root)}
        needing += [f"plan {n} is open" for n in open_plans if name in plans.read(n).code]
        if needing:
            raise RefusedByGuard(
                f"The adopted days of {name} are needed: {needing[0]} ({len(needing)} in all).",
                unchanged=NOTHING_CHANGED,
                next_step=(
                    "Let the plan end or cancel it, or take what was built back: `backfill"
                    " rollback`. Or name other days by --partitions."
                ),
            )
        removed = self._record(
            lambda: [replace(build, outcome="removed") for build in self._adopted().values()]
        )
        place = recorded_places(lake.root).get(name)
        if place and not lake.latest({name: None}).accepted:
            record_place(lake.root, name, place._replace(is_undone=True))
        if not removed:
            raise UsageError(
                f"None of these days of {name} is adopted.",
                unchanged=NOTHING_CHANGED,
                next_step=f"`backfill status {name}` shows its days.",
            )
        return sorted(build.day for build in removed)

    def _whole(self) -> dict[date, Build]:
        """The wanted days that are adopted, and hold the same rows."""
        lake = self.workspace.lake
        name = self.table.name
        damaged = lake.damaged(lake.latest({name: self.wanted}), {name: None})
        return {day: b for day, b in self._adopted().items() if (name, day) not in damaged}

    def _adopted(self) -> dict[date, Build]:
        """The wanted days that have the rows of an adoption, as accepted."""
        latest = self.workspace.lake.latest({self.table.name: self.wanted}, BUILD_SCHEMA.names)
        origins = self._origins()
        return {
            day: build
            for (_, day), build in latest.accepted.items()
            if origins.get(day, [""])[-1] == "adopt"
        }

    def _origins(self) -> dict[date, list[str]]:
        """The acts that wrote the rows of each build of the wanted days, oldest first."""
        columns = (*LATEST_COLUMNS, "act")
        builds = grouped(
            (build.day, build)
            for build in self.workspace.lake.ledger.builds({self.table.name: self.wanted}, columns)
            if build.succeeded or build.outcome == "removed"
        )
        return {day: [build.act for build in origin_builds(of)] for day, of in builds.items()}

    def _record(self, decide: Callable[[], list[Build]]) -> list[Build]:
        """Record the builds that `decide` gives. Those of commits are in a commit without files."""
        lake = self.workspace.lake
        name = self.table.name

        def builds() -> list[Build]:
            if runs := {s.run for (of, _), s in running_steps(lake.root).items() if of == name}:
                raise RefusedByGuard(
                    f"Run {min(runs)} is building {name}.",
                    unchanged=NOTHING_CHANGED,
                    next_step="Type the same again when it has ended.",
                )
            at = lake.ledger.next_time(name)
            return [
                replace(
                    build,
                    run=self.run,
                    plan="",
                    who=self.who,
                    reason=self.reason,
                    act="adopt",
                    undone_plan="",
                    at=at,
                )
                for build in decide()
            ]

        commit = AdoptCommit(lake.path(name), self.table.partition_by, [], "")
        lake.ledger.begin()
        return commit_and_record(lake.root, name, builds, commit)
