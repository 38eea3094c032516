"""Maintenance of a lake: retire releases, compact small files, remove files. No Spark.

A file is removed only if no kept release, open shadow, version of the rollback window, running step
or day to be restored needs it. What will be done is a value first, so that a dry run shows it. Rows
never change: compacting writes the same rows in a commit that says so. If maintenance is killed,
the next one does the rest.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt

from backfill_assets.errors import BackfillError, Conflict, UsageError
from backfill_assets.lake.delta import deleted_rows_by_file, one_line, open_table, table_to_write
from backfill_assets.lake.history import latest, tables_in
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.needed_files import Need, data_files_in, is_younger, needed_files
from backfill_assets.lake.releases import Release, Releases, TableVersion
from backfill_assets.lake.running import running_steps
from backfill_assets.lake.shadow import shadow_versions
from backfill_assets.lake.storage import Paths, archived_in, files_in, writing

# The last releases that always stay, however old they are.
ALWAYS_KEPT = 5
ATTEMPTS = 20


@dataclass(frozen=True)
class ReleaseRetention:
    """The releases that are not retired: those `to_retire`, and those that are `kept`.

    `newest` is the last release of all.
    """

    newest: Release | None
    kept: Sequence[Release]
    to_retire: Sequence[Release]


def release_retention(releases: Sequence[Release], since: datetime) -> ReleaseRetention:
    """Decide which releases stay so that readers can go back to any time since `since`.

    Kept are the releases that were the newest one, or a channel's, at any time since then. The last
    ALWAYS_KEPT are kept too.
    """
    if not releases:
        return ReleaseRetention(None, (), ())
    newest = releases[-1]
    of_tables = [release for release in releases if release.has_own_tables]
    wanted = {release.number for release in of_tables[-ALWAYS_KEPT:]}
    for number, release in enumerate(releases):
        until = releases[number + 1].at if number + 1 < len(releases) else None
        if until is None or until >= since:
            wanted |= {release.number, *release.channels.values()}
    there = [release for release in releases if release.number not in newest.retired]
    kept = [release for release in there if release.number in wanted]
    return ReleaseRetention(
        newest, kept, [release for release in there if release.number not in wanted]
    )


def retire_releases(
    root: str, since: datetime, now: datetime, who: str
) -> tuple[list[Release], ReleaseRetention]:
    """Retire releases. Returns the retired ones and the new retention.

    Raises Conflict if releases were added at every attempt.
    """
    attempts = Retrying(retry=retry_if_exception_type(Conflict), stop=stop_after_attempt(ATTEMPTS))
    try:
        return attempts(_retire, Releases(root), since, now, who)
    except RetryError as error:
        raise Conflict(
            f"Releases were added {ATTEMPTS} times meanwhile. Nothing was retired or removed. Run"
            " again."
        ) from error


def _retire(
    releases: Releases, since: datetime, now: datetime, who: str
) -> tuple[list[Release], ReleaseRetention]:
    state = release_retention(releases.all(), since)
    if not state.newest or not state.to_retire:
        return [], state
    numbers = [release.number for release in state.to_retire]
    reason = f"{len(numbers)} release(s) that nobody could go back to since {since:%Y-%m-%d}"
    releases.retire(state.newest, numbers, now.date(), who=who, reason=reason)
    return list(state.to_retire), release_retention(releases.all(), since)


# A day is compacted if it has more files than this that are smaller than this; the files it is made
# into may be larger.
MANY_FILES = 8
SMALL_BYTES = 32 * 2**20
TARGET_BYTES = 128 * 2**20


@dataclass(frozen=True)
class RetentionPolicy:
    """What stays in the lake at `root`: all that any version since `since` has, what is younger
    than `young`, and the versions by table that `releases` and `shadows` name. Of tables that have
    days (`has_days`), which are compacted, the accepted files of those that somebody else wrote to
    stay too.
    """

    root: str
    since: datetime
    young: datetime
    releases: Mapping[str, Collection[TableVersion]] = field(default_factory=dict)
    shadows: Mapping[str, Collection[int]] = field(default_factory=dict)
    has_days: bool = True

    def released(self, name: str, table_id: str) -> set[int]:
        """The versions of a table that releases name; not those of one that lay there before it was
        made anew.
        """
        return {
            version.version
            for version in self.releases.get(name, ())
            if version.id in ("", table_id)
        }


@dataclass(frozen=True)
class TableUpkeep:
    """What is done with the table `name`, which has so many data `files` of so many `bytes` in its
    folder.

    `days`: how many small files each day that is compacted has. `removed`: the files that are
    removed, each with its bytes. `kept`: how many files stay, for what. `problem` says why less was
    done, or nothing.
    """

    name: str
    files: int = 0
    bytes: int = 0
    days: Mapping[date, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[Need, int] = field(default_factory=dict)
    problem: str = ""

    @property
    def removed_bytes(self) -> int:
        return sum(self.removed.values())


def decide(keeping: RetentionPolicy, name: str) -> TableUpkeep:
    """Decide what would be done with a table now. Nothing is changed."""
    try:
        return _decide(keeping, name)
    except (BackfillError, DeltaError, OSError, pa.ArrowException) as error:
        return TableUpkeep(name, problem=_sentence(error))


def carry_out(keeping: RetentionPolicy, name: str) -> TableUpkeep:
    """Remove and compact files of a table, under its lock. Returns what was done.

    The old files of a day that is compacted now stay for the rollback window.
    """
    try:
        with writing(keeping.root, name):
            folder = Paths(keeping.root).table(name)
            decided = _decide(keeping, name)
            done = _remove(folder, decided)
            try:
                _compact(folder, done.days)
            except (BackfillError, DeltaError, OSError) as error:
                problem = f"{done.problem} Its days were not compacted: {_sentence(error)}".strip()
                return replace(done, days={}, problem=problem)
            return done
    except (BackfillError, DeltaError, OSError, pa.ArrowException) as error:
        return TableUpkeep(name, problem=_sentence(error))


def _decide(keeping: RetentionPolicy, name: str) -> TableUpkeep:
    folder = Paths(keeping.root).table(name)
    # Listed before the log is read: what is committed in between has no file in this list.
    files = data_files_in(folder)
    table = open_table(folder)
    if table is None:
        return TableUpkeep(
            name, len(files), problem=f"There is no table in {folder}." if files else ""
        )
    released = keeping.released(name, str(table.metadata().id))
    accepted = latest(Ledger(keeping.root), {name: None}).accepted if keeping.has_days else {}
    needed = needed_files(
        table, folder, keeping.since, released, keeping.shadows.get(name, ()), accepted.values()
    )
    # Only now: a step that ended before has committed its files, and one that begins later writes
    # young ones.
    running = any(table_name == name for table_name, _ in running_steps(keeping.root))
    other = Need.RUNNING if running else None
    reasons = [
        needed.get(info.path) or (Need.YOUNG if is_younger(info, keeping.young) else other)
        for info in files
    ]
    removed = {
        info.path: int(info.size or 0)
        for info, need in zip(files, reasons, strict=True)
        if need is None
    }
    kept = {need: reasons.count(need) for need in Need if need in reasons}
    days = small_files(table) if keeping.has_days else {}
    return TableUpkeep(name, len(files), sum(info.size or 0 for info in files), days, removed, kept)


def small_files(table: DeltaTable) -> dict[date, int]:
    """The days of a table that have more than MANY_FILES small files, and how many each has."""
    columns = table.metadata().partition_columns
    if len(columns) != 1 or deleted_rows_by_file(table):
        return {}
    files = pa.table(table.get_add_actions(flatten=True))
    counts: dict[date, int] = {}
    for day, size in zip(
        files[f"partition.{columns[0]}"].to_pylist(), files["size_bytes"].to_pylist(), strict=True
    ):
        if isinstance(day, date) and size < SMALL_BYTES:
            counts[day] = counts.get(day, 0) + 1
    return {day: count for day, count in sorted(counts.items()) if count > MANY_FILES}


def _compact(folder: str, days: Iterable[date]) -> None:
    """Compact the files of these days in one commit. The rows stay the same."""
    table = table_to_write(folder)
    named = [day.isoformat() for day in days]
    if table is None or not named:
        return
    filters: Any = [(table.metadata().partition_columns[0], "in", named)]
    table.optimize.compact(
        partition_filters=filters,
        target_size=TARGET_BYTES,
        # Without retries: a day that somebody else has written meanwhile is compacted another time.
        commit_properties=CommitProperties(
            {"userMetadata": "backfill maintain"}, max_commit_retries=0
        ),
        post_commithook_properties=PostCommitHookProperties(
            create_checkpoint=True, cleanup_expired_logs=False
        ),
    )


def _remove(folder: str, decided: TableUpkeep) -> TableUpkeep:
    store = files_in(folder)
    removed = dict[str, int]()
    problem = ""
    for path, size in decided.removed.items():
        try:
            store.delete_file(path)
        except FileNotFoundError:
            pass  # somebody else was faster
        except OSError as error:
            problem = f"{_sentence(error)} The other files that nobody needs stay too."
            break
        removed[path] = size
    _remove_empty(folder, removed)
    return replace(decided, removed=removed, problem=problem)


def _remove_empty(folder: str, removed: Iterable[str]) -> None:
    """Remove the folders of single writes (`lake.files`) that have no file any more. Object stores
    have no folders.
    """
    if "://" in folder:
        return
    for path in removed:
        parts = Path(path).parts
        if len(parts) == 3 and "=" not in parts[0]:
            with suppress(OSError):  # it is not empty
                Path(folder, *parts[:2]).rmdir()
                Path(folder, parts[0]).rmdir()


def _sentence(error: Exception) -> str:
    return (
        str(error) if isinstance(error, BackfillError) else one_line(error) or type(error).__name__
    )


# A step commits its files once all its days are computed. Younger files may be of such a step.
YOUNG = timedelta(days=7)
RECORDS = ("_ledger", "_releases")


@dataclass(frozen=True)
class Maintenance:
    """The result of maintenance, or of its preview.

    `problem` says why no release was retired.
    """

    retired: Sequence[Release]
    kept: Sequence[Release]
    tables: Sequence[TableUpkeep]
    problem: str = ""

    @property
    def problems(self) -> list[str]:
        each = [f"{table.name}: {table.problem}" for table in self.tables if table.problem]
        return [self.problem, *each] if self.problem else each


@dataclass(frozen=True)
class Cutoffs:
    """The start of the rollback window, and the time since which a file is too young to remove.

    Both are earlier if a running step began earlier: it reads the versions of that time.
    """

    since: datetime
    young: datetime


def cutoffs(root: str, days: int, now: datetime) -> Cutoffs:
    """Those of the lake at `root`, whose rollback window is so many `days`."""
    begun = min((step.since for step in running_steps(root).values()), default=now)
    return Cutoffs(min(now - timedelta(days=days), begun), min(now - YOUNG, begun))


def preview_maintenance(root: str, days: int, now: datetime, only: str = "") -> Maintenance:
    """What would be done with the lake at `root`, whose rollback window is so many `days`; `only`:
    with one table of it.

    With one table no release is retired. Changes nothing. Raises UsageError for an unknown table,
    and TableUnreadable if the releases, or what an open shadow needs, cannot be read.
    """
    at = cutoffs(root, days, now)
    state = release_retention(Releases(root).all(), at.since)
    state = _all_kept(state) if only else state
    tables = _each(root, at, state.kept, _names(root, only, state.kept), decide)
    return Maintenance(state.to_retire, state.kept, tables)


def maintain(root: str, days: int, now: datetime, who: str, only: str = "") -> Maintenance:
    """Do it: retire releases, then compact and remove files table by table. What was done; raises
    as `look` does.

    Where releases cannot be retired, their files stay. A table that cannot be read or written is
    left, with its `problem`.
    """
    at = cutoffs(root, days, now)
    problem = ""
    retired = list[Release]()
    state = _all_kept(release_retention(Releases(root).all(), at.since))
    names = _names(root, only, state.kept)
    shadow_versions(root)  # if what a shadow needs is not known, nothing is retired either
    if not only:
        try:
            retired, state = retire_releases(root, at.since, now, who)
        except (BackfillError, OSError) as error:
            problem = f"No release was retired: {one_line(error)}."
    return Maintenance(retired, state.kept, _each(root, at, state.kept, names, carry_out), problem)


def _each(
    root: str,
    at: Cutoffs,
    kept: Sequence[Release],
    names: Sequence[str],
    act: Callable[[RetentionPolicy, str], TableUpkeep],
) -> list[TableUpkeep]:
    versions: dict[str, set[TableVersion]] = {}
    for release in kept:
        for version in release.tables.values():
            versions.setdefault(version.path, set()).add(version)
    keeping = RetentionPolicy(root, at.since, at.young, versions, shadow_versions(root))
    # Of which nobody reads an earlier version.
    records = RetentionPolicy(root, at.young, at.young, has_days=False)
    return [act(records if name.startswith("_") else keeping, name) for name in names]


def _names(root: str, only: str, kept: Sequence[Release]) -> list[str]:
    """Every table that was ever built, those of releases, our own records and what archives hold;
    or the one asked for.
    """
    released = {version.path for release in kept for version in release.tables.values()}
    names = sorted({*tables_in(Ledger(root)), *released})
    if not only:
        return [*names, *RECORDS, *archived_in(root)]
    if only not in names:
        raise UsageError(
            f"There is no table {only} in this lake. Nothing was done. Its tables are"
            f" {', '.join(names)}."
        )
    return [only]


def _all_kept(state: ReleaseRetention) -> ReleaseRetention:
    return ReleaseRetention(state.newest, [*state.kept, *state.to_retire], ())


MAINTENANCE_COLUMNS = ("table", "files", "compact", "remove", "keep, and what for")
SHOWN = 10


def maintenance_rows(result: Maintenance) -> list[tuple[str, ...]]:
    """A line a table, by COLUMNS."""
    return [
        (each.name, _size(each.files, each.bytes), _days(each), _removed(each), _kept(each))
        for each in result.tables
    ]


def ending_lines(result: Maintenance, days: int, *, applied: bool) -> Iterator[str]:
    """What was done, what could not be, and what to type next. `days`: of the rollback window."""
    files = sum(len(each.removed) for each in result.tables)
    size = sum(each.removed_bytes for each in result.tables)
    compacted = sum(len(each.days) for each in result.tables)
    numbers = f" ({_numbers(result.retired)})" if result.retired else ""
    will = "" if applied else "to be "
    yield (
        f"{len(result.retired)} release(s) {will}retired{numbers}, {compacted} day(s)"
        f" {will}compacted, {_size(files, size)} {will}removed. {len(result.kept)} release(s) stay,"
        f" and what stood in the last {days} day(s) (BACKFILL_ROLLBACK_DAYS)."
    )
    for problem in result.problems:
        yield f"Not done: {problem}"
    if not applied:
        does = (
            "`backfill maintain --apply` does it."
            if files or compacted or result.retired
            else "There is nothing to do."
        )
        yield f"Nothing was changed. {does}"


def maintenance_as_values(result: Maintenance) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "retired_releases": [release.number for release in result.retired],
        "kept_releases": [release.number for release in result.kept],
        "tables": {each.name: _values(each) for each in result.tables},
        "problems": result.problems,
    }


def _values(each: TableUpkeep) -> dict[str, Any]:
    return {
        "files": each.files,
        "bytes": each.bytes,
        "compacted_days": {str(day): count for day, count in each.days.items()},
        "removed_files": list(each.removed),
        "removed_bytes": each.removed_bytes,
        "kept_files": {need.name.lower(): count for need, count in each.kept.items()},
        "problem": each.problem,
    }


def _days(each: TableUpkeep) -> str:
    return f"{sum(each.days.values()):,} of {len(each.days)} day(s)" if each.days else ""


def _removed(each: TableUpkeep) -> str:
    return _size(len(each.removed), each.removed_bytes) if each.removed else ""


def _kept(each: TableUpkeep) -> str:
    return ", ".join(f"{each.kept[need]:,} {need}" for need in Need if need in each.kept)


def _size(files: int, size: int) -> str:
    return f"{files:,} file(s), {size / 1e6:,.1f} MB"


def _numbers(releases: Sequence[Release]) -> str:
    numbers = [str(release.number) for release in releases]
    return ", ".join(
        [*numbers[:SHOWN], f"{len(numbers) - SHOWN} more"] if len(numbers) > SHOWN else numbers
    )
