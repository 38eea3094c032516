"""Latest builds, builds that are only in commits, and the builds that wrote the rows.

Each commit carries its builds. A crash may come between a data commit and the ledger, so every
writer first records the commits that the ledger lacks, and marks its own commit `complete`. All
commits before a recorded complete one are recorded, and need not be read. `log` and `reconcile`
read all commits, because rows of the ledger may be lost in other ways.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.calendar import Partition
from backfill_assets.errors import TableUnreadable
from backfill_assets.grouping import grouped
from backfill_assets.lake.damage import Damage, DamageKind
from backfill_assets.lake.delta import commits_at, open_table, read_commits, version_of
from backfill_assets.lake.durable import put_log_on_disk
from backfill_assets.lake.ledger import (
    AUDITS,
    COMMITTED,
    Build,
    BuildByPartition,
    Days,
    Ledger,
    RecordedCommits,
    from_arrow,
)
from backfill_assets.lake.locks import writing
from backfill_assets.lake.storage import Paths
from backfill_assets.lake.table_facts import table_facts

SIGNATURE = "backfill_assets"
# In the metadata of a commit: all earlier commits were in the ledger when it was made.
COMPLETE = "complete"
BuildKey = tuple[str, date, str, datetime]


def build_key(build: Build) -> BuildKey:
    """Identify one build. A retry in the same run has another time."""
    return build.table, build.day, build.run, build.at


def unrecorded(recorded: Iterable[Build], committed: Iterable[Build]) -> list[Build]:
    """The builds of `committed` that are not `recorded`, oldest first."""
    keys = {build_key(build) for build in recorded}
    return sorted(
        (build for build in committed if build_key(build) not in keys), key=lambda b: b.at
    )


def committed_builds(path: str) -> list[Build]:
    """The builds in the table's own commits, oldest first. Reads every commit."""
    return _builds_in(read_commits(path, version_of(path)))


def lacking_builds(path: str, recorded: RecordedCommits) -> list[Build]:
    """The builds of the table's commits that are not `recorded`, oldest first.

    Only commits that may hold such builds are read. A table below the newest recorded version was
    deleted and recreated, so all its commits are read.
    """
    facts = table_facts(path)
    last = facts.version if facts else -1
    if last < recorded.version:
        return committed_builds(path)
    versions = set(range(last + 1)) - recorded.versions
    later = {version for version in versions if version > recorded.version}
    # Commits of maintenance and of others are not in the ledger. They are not read again at each
    # commit.
    if versions != later and any(
        _metadata(commit).get(COMPLETE) for commit in commits_at(path, [recorded.version])
    ):
        versions = later
    return _builds_in(list(commits_at(path, sorted(versions, reverse=True))))


def _builds_in(commits: Sequence[Mapping[str, Any]]) -> list[Build]:
    """The builds in these commits, oldest first. The commits come newest first."""
    return [build for commit in reversed(commits) for build in builds_of(commit)]


def last_committed(path: str, days: Collection[date]) -> dict[date, Build]:
    """The last build of each of these days in the table's own commits.

    Older commits are not read.
    """
    last: dict[date, Build] = {}
    if not days:
        return last
    for commit in commits_at(path, range(version_of(path), -1, -1)):
        for build in builds_of(commit):
            if build.day in days:
                last.setdefault(build.day, build)
        if len(last) == len(days):
            break
    return last


def recover(ledger: Ledger, table: str) -> list[Build]:
    """Record the builds of all commits of one table that the ledger lacks.

    Waits for a writer of that table.
    """
    # A writer holds this lock until it has recorded its commit.
    with writing(ledger.root, table):
        return record_missing(ledger, committed_builds(Paths(ledger.root).table(table)))


def recover_newest(ledger: Ledger, tables: Collection[str]) -> list[Build]:
    """Record the commits of `tables` that the ledger lacks. Locks tables only if needed."""
    recovered: list[Build] = []
    for name, recorded in ledger.newest(tables).items():
        if lacking_builds(Paths(ledger.root).table(name), recorded):
            with writing(ledger.root, name):
                recovered += recover_locked(ledger, [name])
    return recovered


def recover_locked(ledger: Ledger, tables: Collection[str]) -> list[Build]:
    """Record the commits of `tables` that the ledger lacks.

    The caller holds the right to write these tables.
    """
    lacking = [
        build
        for name, recorded in ledger.newest(tables).items()
        for build in lacking_builds(Paths(ledger.root).table(name), recorded)
    ]
    return record_missing(ledger, lacking)


def record_missing(ledger: Ledger, builds: Sequence[Build]) -> list[Build]:
    """Record the `builds` that the ledger lacks, and return them."""
    if not builds:
        return []
    days = grouped((build.table, build.day) for build in builds)
    missing = unrecorded(ledger.builds(days, ("table", "day", "run", "outcome", "at")), builds)
    # A writer may have been killed before its commits were on the disk.
    for table in {build.table for build in missing}:
        put_log_on_disk(Paths(ledger.root).table(table))
    ledger.append(missing)
    return missing


@dataclass(frozen=True)
class BuildHistory:
    """Every build, oldest first: `recorded` in the ledger, or `unrecorded`."""

    recorded: Sequence[Build]
    unrecorded: Sequence[Build]

    def builds(self) -> list[Build]:
        return sorted([*self.recorded, *self.unrecorded], key=lambda b: b.at)


def build_history(
    ledger: Ledger, tables: Collection[str], columns: Sequence[str] | None = None
) -> BuildHistory:
    """Every build of `tables`. Nothing is changed.

    `columns` are the columns of the ledger to read (None: all).
    """
    recorded = ledger.builds(dict.fromkeys(tables), columns)
    committed = [
        build for name in tables for build in committed_builds(Paths(ledger.root).table(name))
    ]
    return BuildHistory(recorded, unrecorded(recorded, committed))


def tables_in(ledger: Ledger) -> list[str]:
    """Every table that was ever built, also under an earlier name."""
    return sorted(ledger.files().by_table)


def commit_metadata(builds: Sequence[Build], *, complete: bool = False) -> str:
    """The metadata of a data commit: its builds, with who, why, code and inputs.

    `complete`: whether all commits before it are in the ledger.
    """
    complete_before = {COMPLETE: True} if complete else {}
    return json.dumps(
        {"by": SIGNATURE, "builds": [b.to_json() for b in builds]} | complete_before, sort_keys=True
    )


def version_with(path: str, metadata: str, *, after: int) -> int | None:
    """The version later than `after` whose commit carries `metadata`; None if there is none."""
    table = open_table(path)
    if table is None or table.version() <= after:
        return None
    commits = read_commits(path, int(table.version()), after + 1)
    return next(
        (int(commit["version"]) for commit in commits if commit.get("userMetadata") == metadata),
        None,
    )


def builds_of(commit: Mapping[str, Any]) -> list[Build]:
    """The builds in one commit. None are found in a commit of others."""
    return [
        Build.from_json(entry | {"delta_version": commit["version"]}) for entry in _entries(commit)
    ]


def is_ours(commit: Mapping[str, Any]) -> bool:
    return bool(_entries(commit))


def _entries(commit: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = _metadata(commit).get("builds", [])
    return entries


def _metadata(commit: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a commit of ours; empty for other commits."""
    try:
        metadata = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) and metadata.get("by") == SIGNATURE else {}


# Without figures and verdicts, which would take most of the time to read.
LATEST_COLUMNS = (
    "table",
    "day",
    "outcome",
    "run",
    "code_version",
    "accepted_code",
    "code_loaded_at",
    "fingerprint",
    "day_fingerprints",
    "inputs",
    "delivered",
    "files",
    "hashes",
    "accept",
    "delta_version",
    "data_files",
    "seconds",
    "rows",
    "write_mode",
    "mixed",
    "plan",
    "rules",
    "finding",
    "message",
    "at",
)


@dataclass(frozen=True)
class Latest:
    """The latest builds of each partition.

    last      the last build
    accepted  the last accepted build, whose rows are in the table
    computed  the last build whose duration is known; a restored build has none
    audits    the last audit
    compared  the last audit that compared the rows with the accepted ones; not every audit can
    damaged   the accepted partitions that no longer hold the accepted rows, if that was checked
    plans     the partitions that each plan has built; complete for the requested plan
    of_live   in a shadow: the accepted partitions whose rows are in live
    """

    last: dict[Partition, Build] = field(default_factory=dict)
    accepted: dict[Partition, Build] = field(default_factory=dict)
    damaged: dict[Partition, Damage] = field(default_factory=dict)
    audits: dict[Partition, Build] = field(default_factory=dict)
    compared: dict[Partition, Build] = field(default_factory=dict)
    plans: dict[str, set[Partition]] = field(default_factory=dict)
    computed: dict[Partition, Build] = field(default_factory=dict)
    of_live: Collection[Partition] = frozenset()

    def add(self, builds: Iterable[Build]) -> None:
        """Add builds that may be later than the ones already added.

        A removed partition counts as never built.
        """
        for build in builds:
            partition = (build.table, build.day)
            if build.outcome == "removed":
                self.last.pop(partition, None)
                self.accepted.pop(partition, None)
                continue
            if build.plan and build.succeeded:
                self.plans.setdefault(build.plan, set()).add(partition)
            if build.outcome in AUDITS:
                kinds = [self.audits, self.compared] if build.fingerprint else [self.audits]
            elif build.succeeded:
                kinds = [self.last, self.accepted]
                kinds += [self.computed] if build.seconds > 0 else []
            else:
                kinds = [self.last]
            for builds_of_kind in kinds:
                newest = builds_of_kind.get(partition)
                if newest is None or newest.at <= build.at:
                    builds_of_kind[partition] = build

    def built_by(self, plan: str) -> set[Partition]:
        """The partitions that a plan has built, even if they were built again later."""
        return self.plans.get(plan, set())

    def audit_of(self, partition: Partition) -> Build | None:
        """The last audit of the accepted rows. None without an audit."""
        return self._of_accepted(partition, self.audits)

    def damaged_by_audits(self) -> dict[Partition, Damage]:
        """The accepted partitions in which an audit found other rows than were accepted.

        A finding counts until the rows are committed or compared again.
        """
        return {
            partition: Damage(DamageKind.OTHER_ROWS, detail=audit.message)
            for partition in self.compared
            if (audit := self._of_accepted(partition, self.compared)) and audit.finding
        }

    def _of_accepted(self, partition: Partition, audits: BuildByPartition) -> Build | None:
        accepted = self.accepted.get(partition)
        audit = audits.get(partition)
        return audit if accepted and audit and accepted.files_of == audit.files_of else None

    def refused(self) -> set[Partition]:
        """The accepted partitions whose last audit refused them."""
        return {
            partition
            for partition in self.audits
            if (audit := self.audit_of(partition)) and audit.outcome == "refused"
        }


def latest(
    ledger: Ledger,
    days: Days,
    columns: Iterable[str] = LATEST_COLUMNS,
    plan: str = "",
    *,
    until: Mapping[str, int] | None = None,
    recorded: Mapping[str, datetime] | None = None,
) -> Latest:
    """The latest builds of these tables and days (None: all), and of `plan`.

    Builds that a crash left out of the ledger are included. `until` has the last version of each
    table: later builds are left out. Builds without a commit count if they were recorded by the
    time in `recorded`.
    """
    files = ledger.files()
    rows = files.rows([*{*columns, "seconds", "plan"}], days)
    if until is not None:
        rows = rows.filter(_not_after(rows, until, recorded or {}))
    builds = Latest()
    builds.add(from_arrow(_last_rows(rows, plan)))
    for name, newest in files.newest(days).items():
        of_table = days[name]
        with suppress(TableUnreadable):
            # `Lake.damaged` reports the days of this table. Other tables are not affected.
            lacking = lacking_builds(Paths(ledger.root).table(name), newest)
            last = until.get(name, -1) if until is not None else None
            builds.add(
                build
                for build in lacking
                if (of_table is None or build.day in of_table)
                and (last is None or build.delta_version <= last)
            )
    return builds


def _not_after(
    rows: pa.Table, until: Mapping[str, int], recorded: Mapping[str, datetime]
) -> pa.ChunkedArray:
    names = pa.array(list(until), pa.string())
    of_table = pc.fill_null(pc.index_in(rows["table"], names), len(until))
    last = pc.take(pa.array([*until.values(), -1], pa.int64()), of_table)
    times = [recorded.get(name, datetime.max.replace(tzinfo=UTC)) for name in until]
    at = pc.take(
        pa.array([*times, datetime.min.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")), of_table
    )
    committed = pc.is_in(rows["outcome"], pa.array(sorted(COMMITTED)))
    return pc.and_(
        pc.less_equal(rows["delta_version"], last), pc.or_(committed, pc.less_equal(rows["at"], at))
    )


def _last_rows(rows: pa.Table, plan: str) -> pa.Table:
    """The last of the builds that `Latest.add` treats alike, oldest first.

    Builds of `plan` are separate, so that its partitions are complete.
    """
    by_time = pc.sort_indices(rows["at"])
    alike = {
        "table": rows["table"],
        "day": rows["day"],
        "outcome": rows["outcome"],
        "timed": pc.greater(rows["seconds"], 0.0),
        "compared": pc.greater(rows["fingerprint"], ""),
        "of_plan": pc.equal(rows["plan"], pa.scalar(plan or None, pa.string())),
    }
    # The type is needed if there are no rows.
    number = pa.array(range(len(rows)), pa.int64())
    numbered = pa.table(alike).take(by_time).append_column("number", number)
    last = numbered.group_by(list(alike)).aggregate([("number", "max")])["number_max"]
    return rows.take(by_time.take(last.combine_chunks().sort()))


def origin_builds(builds: Sequence[Build]) -> list[Build]:
    """Find the build that wrote the rows of each accepted build of a partition, oldest first.

    An unchanged build has the rows of the build before it. A restored build has the rows of the
    last build with the same files. If these files were compacted, or the day has no rows, the last
    build with the same fingerprint counts.
    """
    wrote: list[Build] = []
    for n, build in enumerate(builds):
        if build.outcome == "unchanged" and wrote:
            wrote.append(wrote[-1])
        elif build.outcome == "restored":
            wrote.append(
                next((wrote[earlier] for earlier in _with_rows_of(build, builds[:n])), build)
            )
        else:
            wrote.append(build)
    return wrote


def _with_rows_of(restored: Build, builds: Sequence[Build]) -> list[int]:
    """The builds that may have written the rows of a restored build, most likely first."""
    latest_first = range(len(builds) - 1, -1, -1)
    same_files = [n for n in latest_first if builds[n].files_of == restored.files_of]
    return same_files + [
        n
        for n in latest_first
        if builds[n].fingerprint and builds[n].fingerprint == restored.fingerprint
    ]
