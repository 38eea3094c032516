"""Maintenance of a lake: retire releases, compact small files, remove files. No Spark.

A file is removed only if no kept release, open shadow, version of the rollback window, running step
or day to be restored needs it. The decision is a value, so that a dry run can show it. Rows never
change: compacting writes the same rows in a commit that says so. After a kill, the next maintenance
does the rest.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileInfo

from backfill_assets.errors import BackfillError, Conflict, UsageError
from backfill_assets.lake.channels import ChannelHistory
from backfill_assets.lake.delta import deleted_rows_by_file, one_line, open_table, table_to_write
from backfill_assets.lake.durable import put_log_on_disk
from backfill_assets.lake.history import tables_in
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.locks import writing
from backfill_assets.lake.needed_files import (
    Need,
    archived_files,
    data_files_in,
    modified,
    needed_files,
)
from backfill_assets.lake.pointers import previews
from backfill_assets.lake.releases import Release, TableVersion
from backfill_assets.lake.running import running_steps
from backfill_assets.lake.shadow import shadow_versions
from backfill_assets.lake.storage import ARCHIVED, LEDGER, archived_in, files_in
from backfill_assets.tries import again_after

# The last releases that always stay, at any age.
ALWAYS_KEPT = 5
_ATTEMPTS = 20
# A day with more small files than this is compacted. The new files may be larger.
MANY_FILES = 8
SMALL_BYTES = 32 * 2**20
TARGET_BYTES = 128 * 2**20
# A step commits its files after all its days are computed. Younger files may belong to such a step.
YOUNG = timedelta(days=7)
# Errors that stop the maintenance of one table only.
OF_ONE_TABLE = (BackfillError, DeltaError, OSError, pa.ArrowException)


@dataclass(frozen=True)
class TableUpkeep:
    """The upkeep of the table `name`, with `files` data files of `bytes` bytes in its folder.

    `days`: the number of small files of each compacted day. `removed`: the removed files with their
    bytes. `kept_files`: the number of files that stay, by reason. `problem` says why less was done.
    """

    name: str
    files: int = 0
    bytes: int = 0
    days: Mapping[date, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    kept_files: Mapping[Need, int] = field(default_factory=dict)
    problem: str = ""

    @property
    def removed_bytes(self) -> int:
        return sum(self.removed.values())


@dataclass(frozen=True)
class Maintenance:
    """The result of maintenance, or of its preview.

    `problem` says why no release was retired.
    """

    retired: Sequence[Release]
    kept_releases: Sequence[Release]
    tables: Sequence[TableUpkeep]
    problem: str = ""

    @property
    def problems(self) -> list[str]:
        of_tables = [f"{table.name}: {table.problem}" for table in self.tables if table.problem]
        return [self.problem, *of_tables] if self.problem else of_tables


def preview_maintenance(lake: Lake, days: int, now: datetime, only: str = "") -> Maintenance:
    """Show what `maintain` would do. Nothing is changed. Raises as `maintain` does."""
    return _maintain(lake, days, now, only, partial(release_retention, lake), _decide)


def maintain(lake: Lake, days: int, now: datetime, who: str, only: str = "") -> Maintenance:
    """Retire releases, then compact and remove files table by table.

    The rollback window has `days` days. With `only`, just this table is maintained and no release
    is retired. If releases cannot be retired, their files stay. A table that cannot be read or
    written is left as it is, with its `problem`. Raises UsageError for an unknown table, and
    TableUnreadable if the releases, or the versions that an open shadow reads, cannot be read.
    """
    return _maintain(
        lake, days, now, only, lambda since: _retire_releases(lake, since, now, who), _carry_out
    )


@dataclass(frozen=True)
class ReleaseRetention:
    """The releases to keep, and those to be `retired`."""

    kept_releases: Sequence[Release]
    retired: Sequence[Release] = ()


@dataclass(frozen=True)
class RetentionPolicy:
    """The files that stay in a lake.

    These are the files of all versions since `since`, files younger than `young`, and the files of
    the versions in `releases` and `shadows` (by table). Accepted days are compacted, and keep
    their files if another writer changed them.
    """

    lake: Lake
    since: datetime
    young: datetime
    releases: Mapping[str, Collection[TableVersion]] = field(default_factory=dict)
    shadows: Mapping[str, Collection[int]] = field(default_factory=dict)

    def released(self, name: str, table_id: str) -> set[int]:
        """The versions of a table that releases name.

        A recreated table has another id. Versions of the earlier table do not count.
        """
        return {
            version.version
            for version in self.releases.get(name, ())
            if version.id in ("", table_id)
        }


def _maintain(
    lake: Lake,
    days: int,
    now: datetime,
    only: str,
    retire: Callable[[datetime], ReleaseRetention],
    act: Callable[[RetentionPolicy, str], TableUpkeep],
) -> Maintenance:
    # A running step reads the versions at the time of its start.
    begun = min((step.since for step in running_steps(lake.root).values()), default=now)
    since = min(now - timedelta(days=days), begun)
    young = min(now - YOUNG, begun)
    retired = ChannelHistory(lake.root).now().retired
    retention = ReleaseRetention(_but(lake.releases.all(), retired))
    names = _names(lake, only, retention.kept_releases)
    # If the versions that a shadow reads are unknown, no release is retired.
    shadows = shadow_versions(lake.root)
    problem = ""
    if not only:
        try:
            retention = retire(since)
        except (BackfillError, OSError) as error:
            problem = f"No release was retired: {one_line(error)}."
    versions: dict[str, set[TableVersion]] = {}
    for release in retention.kept_releases:
        for version in release.tables.values():
            versions.setdefault(version.path, set()).add(version)
    of_days = RetentionPolicy(lake, since, young, versions, shadows)
    # Earlier versions of the ledger have no readers.
    of_ledger = RetentionPolicy(lake, young, young)
    tables = []
    for name in names:
        try:
            tables.append(act(of_ledger if name.startswith("_") else of_days, name))
        except OF_ONE_TABLE as error:
            tables.append(TableUpkeep(name, problem=_sentence(error)))
    return Maintenance(retention.retired, retention.kept_releases, tables, problem)


def _but(releases: Sequence[Release], retired: Collection[int]) -> list[Release]:
    return [release for release in releases if release.number not in retired]


def _names(lake: Lake, only: str, releases: Sequence[Release]) -> list[str]:
    """The table `only`, or else the built and the released tables, records and archives."""
    released = {version.path for release in releases for version in release.tables.values()}
    names = sorted({*tables_in(lake.ledger), *released})
    if not only:
        return [*names, LEDGER, *archived_in(lake.root)]
    if only not in names:
        raise UsageError(
            f"There is no table {only} in this lake.",
            unchanged="Nothing was done.",
            next_step=f"Its tables are {', '.join(names)}.",
        )
    return [only]


def release_retention(lake: Lake, since: datetime) -> ReleaseRetention:
    """Decide which releases stay so that readers can go back to any time since `since`.

    Releases are kept if they were the newest, or a channel's, at any time since then. The last
    ALWAYS_KEPT are kept too, and the releases of previews.
    """
    releases = lake.releases.all()
    history = ChannelHistory(lake.root).all()
    wanted = {release.number for release in (*previews(lake.root), *releases[-ALWAYS_KEPT:])}
    wanted |= {release.number for release, later in pairwise(releases) if later.at >= since}
    had = [history[-1], *(channels for channels, later in pairwise(history) if later.at >= since)]
    wanted |= {pointer.release for channels in had for pointer in channels.pointers.values()}
    present = _but(releases, history[-1].retired)
    return ReleaseRetention(
        [release for release in present if release.number in wanted],
        [release for release in present if release.number not in wanted],
    )


def _retire_releases(lake: Lake, since: datetime, now: datetime, who: str) -> ReleaseRetention:
    """Retire releases. Raises Conflict if pointers were moved at every attempt."""
    try:
        return again_after(Conflict, _ATTEMPTS)(_retire_once, lake, since, now, who)
    except Conflict as error:
        raise Conflict(
            f"Pointers of channels were moved {_ATTEMPTS} times meanwhile.",
            unchanged="Nothing was retired or removed.",
            next_step="Run again.",
        ) from error


def _retire_once(lake: Lake, since: datetime, now: datetime, who: str) -> ReleaseRetention:
    history = ChannelHistory(lake.root)
    # Read before the releases, so that a pointer that is moved meanwhile is a conflict.
    channels = history.now()
    retention = release_retention(lake, since)
    if not retention.retired:
        return retention
    numbers = [release.number for release in retention.retired]
    why = f"{len(numbers)} release(s) that no reader could go back to since {since:%Y-%m-%d}"
    after = history.retire(channels, numbers, now.date(), who=who, why=why)
    return replace(retention, kept_releases=_but(lake.releases.all(), after.retired))


def _carry_out(policy: RetentionPolicy, name: str) -> TableUpkeep:
    """Remove and compact files of a table, under its lock.

    The old files of a compacted day stay for the rollback window.
    """
    with writing(policy.lake.root, name):
        folder = policy.lake.path(name)
        done = _remove(folder, _decide(policy, name))
        try:
            _compact(folder, done.days)
        except OF_ONE_TABLE as error:
            problem = f"{done.problem} Its days were not compacted: {_sentence(error)}".strip()
            return replace(done, days={}, problem=problem)
        return done


def _decide(policy: RetentionPolicy, name: str) -> TableUpkeep:
    folder = policy.lake.path(name)
    if name.startswith(f"{ARCHIVED}/"):
        files, needed = archived_files(folder)
        # Any step may read archived files that were replaced.
        return _upkeep(
            policy, name, files, needed, is_running=bool(running_steps(policy.lake.root))
        )
    # Listed before the log is read, so that this list lacks a file that is committed in between.
    files = data_files_in(folder)
    accepted = policy.lake.latest({name: None}).accepted
    columns = ("table", "day", "outcome", "data_files", "at")
    builds = [] if accepted else policy.lake.ledger.builds({name: None}, columns)
    # Rows of another program, such as forgotten days.
    if any(build.is_foreign for build in builds):
        needed = dict.fromkeys((file.path for file in files), Need.FOREIGN)
        return _upkeep(policy, name, files, needed, is_running=False)
    table = open_table(folder)
    if table is None:
        problem = f"There is no table in {folder}." if files else ""
        return TableUpkeep(name, len(files), problem=problem)
    released = policy.released(name, str(table.metadata().id))
    needed = needed_files(
        table, folder, policy.since, released, policy.shadows.get(name, ()), accepted.values()
    )
    days = {str(day) for _, day in accepted}
    for file in files if days else ():
        # Steps write each into a folder of its own. Here is what other programs wrote.
        _, is_day, day = file.path.partition("/")[0].partition("=")
        if is_day and day not in days:
            needed.setdefault(file.path, Need.FOREIGN)
    # Checked last: a step that ended earlier has committed its files, and a step that begins later
    # writes young files.
    is_running = any(table_name == name for table_name, _ in running_steps(policy.lake.root))
    upkeep = _upkeep(policy, name, files, needed, is_running=is_running)
    small = _small_files(table)
    # Other days are of other programs, such as forgotten days.
    return replace(upkeep, days={day: small[day] for day in small if (name, day) in accepted})


def _upkeep(
    policy: RetentionPolicy,
    name: str,
    files: Sequence[FileInfo],
    needed: Mapping[str, Need],
    *,
    is_running: bool,
) -> TableUpkeep:
    """Decide which of these files stay. `is_running`: a step may read or commit them."""
    removed: dict[str, int] = {}
    kept: Counter[Need] = Counter()
    for info in files:
        if need := needed.get(info.path):
            kept[need] += 1
        elif modified(info) > policy.young:
            kept[Need.YOUNG] += 1
        elif is_running:
            kept[Need.RUNNING] += 1
        else:
            removed[info.path] = int(info.size or 0)
    size = sum(info.size or 0 for info in files)
    return TableUpkeep(name, len(files), size, {}, removed, kept)


def _small_files(table: DeltaTable) -> dict[date, int]:
    """The days of a table with more than MANY_FILES small files, and the number of these files."""
    columns = table.metadata().partition_columns
    if len(columns) != 1 or deleted_rows_by_file(table):
        return {}
    files = pa.table(table.get_add_actions(flatten=True))
    small = files.filter(pc.less(files["size_bytes"], SMALL_BYTES))
    days = small[f"partition.{columns[0]}"].to_pylist()
    counts = Counter(day for day in days if isinstance(day, date))
    return {day: count for day, count in sorted(counts.items()) if count > MANY_FILES}


def _remove(folder: str, decided: TableUpkeep) -> TableUpkeep:
    store = files_in(folder)
    removed: dict[str, int] = {}
    problem = ""
    for path, size in decided.removed.items():
        try:
            store.delete_file(path)
        except FileNotFoundError:
            pass  # another maintenance was faster
        except OSError as error:
            problem = f"{_sentence(error)} The other unneeded files stay too."
            break
        removed[path] = size
    if "://" not in folder:  # object stores have no folders
        _remove_empty(folder, removed)
    return replace(decided, removed=removed, problem=problem)


def _remove_empty(folder: str, removed: Iterable[str]) -> None:
    """Remove the folders of single writes (`lake/data_files.py`) that have no files left."""
    for path in removed:
        parts = Path(path).parts
        if len(parts) == 3 and "=" not in parts[0]:
            with suppress(OSError):  # it is not empty
                Path(folder, *parts[:2]).rmdir()
                Path(folder, parts[0]).rmdir()


def _compact(folder: str, days: Iterable[date]) -> None:
    """Compact the files of these days in one commit. The rows stay the same."""
    named = [day.isoformat() for day in days]
    table = table_to_write(folder) if named else None
    if table is None:
        return
    filters: Any = [(table.metadata().partition_columns[0], "in", named)]
    table.optimize.compact(
        partition_filters=filters,
        target_size=TARGET_BYTES,
        # Without retries: a day that another writer changes meanwhile is compacted later.
        commit_properties=CommitProperties(
            {"userMetadata": "backfill maintain"}, max_commit_retries=0
        ),
        post_commithook_properties=PostCommitHookProperties(
            create_checkpoint=True, cleanup_expired_logs=False
        ),
    )
    put_log_on_disk(folder, with_files=True)


def _sentence(error: Exception) -> str:
    return (
        str(error) if isinstance(error, BackfillError) else one_line(error) or type(error).__name__
    )
