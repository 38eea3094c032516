"""The upkeep of one table: small files of a day become one, and data files that nobody needs are removed. No Spark.

What is decided is a value, so that a dry run shows what would be done. Rows are never changed: compacting writes them anew in
a commit that says so, and only files that no version anybody may still read has are removed.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from backfill_assets.errors import BackfillError
from backfill_assets.lake.deletion_vectors import with_deletion_vectors
from backfill_assets.lake.delta_table import one_line, open_table, table_to_write
from backfill_assets.lake.latest import latest
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.locks import writing
from backfill_assets.lake.needed_files import Need, data_files_in, is_younger, needed_files
from backfill_assets.lake.paths import Paths, files_in
from backfill_assets.lake.release import TableVersion
from backfill_assets.lake.running_steps import running_steps

# A day is compacted if it has more files than this that are smaller than this; the files it is made into may be larger.
MANY_FILES, SMALL_BYTES, TARGET_BYTES = 8, 32 * 2**20, 128 * 2**20


@dataclass(frozen=True)
class Keeping:
    """What stays in the lake at `root`: all that any version since `since` has, what is younger than `young`, and the versions
    by table that `releases` and `shadows` name. Of tables that have days (`has_days`), which are compacted, the accepted
    files of those that somebody else wrote to stay too."""

    root: str
    since: datetime
    young: datetime
    releases: Mapping[str, Collection[TableVersion]] = field(default_factory=dict)
    shadows: Mapping[str, Collection[int]] = field(default_factory=dict)
    has_days: bool = True

    def released(self, name: str, table_id: str) -> set[int]:
        """The versions of a table that releases name; not those of one that lay there before it was made anew."""
        return {version.version for version in self.releases.get(name, ()) if version.id in ("", table_id)}


@dataclass(frozen=True)
class TableUpkeep:
    """What is done with the table `name`, which has so many data `files` of so many `bytes` in its folder.

    `days`: how many small files each day that is compacted has. `removed`: the files that are removed, each with its bytes.
    `kept`: how many files stay, for what. `problem` says why less was done, or nothing.
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


def decide(keeping: Keeping, name: str) -> TableUpkeep:
    """What would be done with a table now; its `problem`, if that is not known. Changes nothing."""
    try:
        return _decide(keeping, name)
    except (BackfillError, DeltaError, OSError, pa.ArrowException) as error:
        return TableUpkeep(name, problem=_sentence(error))


def carry_out(keeping: Keeping, name: str) -> TableUpkeep:
    """Do it, under the table's lock; what was done. Files of a day that is compacted now stay for the window."""
    try:
        with writing(keeping.root, name):
            folder, decided = Paths(keeping.root).table(name), _decide(keeping, name)
            done = _remove(folder, decided)
            try:
                _compact(folder, done.days)
            except (BackfillError, DeltaError, OSError) as error:
                problem = f"{done.problem} Its days were not compacted: {_sentence(error)}".strip()
                return replace(done, days={}, problem=problem)
            return done
    except (BackfillError, DeltaError, OSError, pa.ArrowException) as error:
        return TableUpkeep(name, problem=_sentence(error))


def _decide(keeping: Keeping, name: str) -> TableUpkeep:
    folder = Paths(keeping.root).table(name)
    # Listed before the log is read: what is committed in between has no file in this list.
    files, table = data_files_in(folder), open_table(folder)
    if table is None:
        return TableUpkeep(name, len(files), problem=f"There is no table in {folder}." if files else "")
    released = keeping.released(name, str(table.metadata().id))
    accepted = latest(Ledger(keeping.root), {name: None}).accepted if keeping.has_days else {}
    needed = needed_files(table, folder, keeping.since, released, keeping.shadows.get(name, ()), accepted.values())
    # Only now: a step that ended before has committed its files, and one that begins later writes young ones.
    running = any(table_name == name for table_name, _ in running_steps(keeping.root))
    other = Need.RUNNING if running else None
    reasons = [needed.get(info.path) or (Need.YOUNG if is_younger(info, keeping.young) else other) for info in files]
    removed = {info.path: int(info.size or 0) for info, need in zip(files, reasons, strict=True) if need is None}
    kept = {need: reasons.count(need) for need in Need if need in reasons}
    days = small_files(table) if keeping.has_days else {}
    return TableUpkeep(name, len(files), sum(info.size or 0 for info in files), days, removed, kept)


def small_files(table: DeltaTable) -> dict[date, int]:
    """The days of a table that have more than MANY_FILES small files, and how many each has."""
    columns = table.metadata().partition_columns
    if len(columns) != 1 or with_deletion_vectors(table):
        return {}
    files = pa.table(table.get_add_actions(flatten=True))
    counts: dict[date, int] = {}
    for day, size in zip(files[f"partition.{columns[0]}"].to_pylist(), files["size_bytes"].to_pylist(), strict=True):
        if isinstance(day, date) and size < SMALL_BYTES:
            counts[day] = counts.get(day, 0) + 1
    return {day: count for day, count in sorted(counts.items()) if count > MANY_FILES}


def _compact(folder: str, days: Iterable[date]) -> None:
    """Write the files of these days together, in one commit, which leaves the rows as they are."""
    table, named = table_to_write(folder), [day.isoformat() for day in days]
    if table is None or not named:
        return
    filters: Any = [(table.metadata().partition_columns[0], "in", named)]
    table.optimize.compact(
        partition_filters=filters,
        target_size=TARGET_BYTES,
        # Without retries: a day that somebody else has written meanwhile is compacted another time.
        commit_properties=CommitProperties({"userMetadata": "backfill maintain"}, max_commit_retries=0),
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
    )


def _remove(folder: str, decided: TableUpkeep) -> TableUpkeep:
    store, removed, problem = files_in(folder), dict[str, int](), ""
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
    """Remove the folders of single writes (`lake.files`) that have no file any more. Object stores have no folders."""
    if "://" in folder:
        return
    for path in removed:
        parts = Path(path).parts
        if len(parts) == 3 and "=" not in parts[0]:
            with suppress(OSError):  # it is not empty
                Path(folder, *parts[:2]).rmdir()
                Path(folder, parts[0]).rmdir()


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, BackfillError) else one_line(error) or type(error).__name__
