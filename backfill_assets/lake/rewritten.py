"""Which accepted partitions do not hold the rows that were accepted any more, because somebody else wrote to them. No Spark.

A build records a hash of the names of its day's data files. While the table lists the same files, nobody wrote to the day;
only where they differ is the log's history read. Commits of this project, and those that rewrite files and leave the rows as
they are (OPTIMIZE), are no reason.
"""

import hashlib
from collections.abc import Container, Iterable, Mapping
from datetime import date

from deltalake import DeltaTable

from backfill_assets.calendar import Partition
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.record import Build
from backfill_assets.lake.table_state import TableState, day_files, read_state


def data_files(table: DeltaTable, days: Iterable[date]) -> dict[date, str]:
    """Of each of these days that has data files, a hash of their names."""
    return hash_by_day((day, name) for day, name, _ in day_files(table, days))


def hash_by_day(files: Iterable[tuple[date, str]]) -> dict[date, str]:
    """Of each day a hash of the names of its files."""
    names: dict[date, list[str]] = {}
    for day, name in files:
        names.setdefault(day, []).append(name)
    return {day: hashlib.sha256("\n".join(sorted(of_day)).encode()).hexdigest()[:16] for day, of_day in names.items()}


def renamed_columns(table: DeltaTable) -> str:
    """Why nothing in the table is as it was built, where its columns have other names than in its files; else ""."""
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    return (
        ""
        if mapping == "none"
        else f"columns of the table were renamed (delta.columnMapping.mode={mapping}), not by this project"
    )


def rewritten(folder: str, builds: Iterable[Build], version: int | None = None) -> dict[date, str]:
    """The days of these accepted builds of one table that are not as they were built, each with what happened to it.

    The table is looked at as it was at `version` (None: now; -1: there is none).
    """
    builds = list(builds)
    try:
        table = open_table(folder, version) if builds and version != -1 else None
    except TableUnreadable as error:
        return {build.day: str(error) for build in builds}
    files: Mapping[date, str] = data_files(table, [build.day for build in builds]) if table else {}
    if table and (why := renamed_columns(table)):
        return {build.day: why for build in builds if build.day in files}
    # Without names (of a build that was recovered from its commit) the log decides.
    suspected = [b for b in builds if files.get(b.day, "") != b.data_files or (b.rows and not b.data_files)]
    if not suspected:
        return {}
    since = max(0, min(build.delta_version for build in suspected))
    state = read_state(folder, since, version) if table else TableState()
    return {build.day: why for build in suspected if (why := state.difference(build))}


def rewritten_at(folder: str, builds: Iterable[tuple[Build, int]]) -> dict[date, str]:
    """The same for builds of which each is looked for at a version of its own."""
    by_version: dict[int, list[Build]] = {}
    for build, version in builds:
        by_version.setdefault(version, []).append(build)
    return {
        day: why for version, of_version in by_version.items() for day, why in rewritten(folder, of_version, version).items()
    }


def never_accepted(folder: str, days: Iterable[date], accepted: Container[date], version: int | None = None) -> dict[date, str]:
    """Those of `days` that have data files, although no build of them was `accepted`."""
    unknown = [day for day in days if day not in accepted]
    table = open_table(folder, version) if unknown and version != -1 else None
    return dict.fromkeys(data_files(table, unknown), "it has rows that no build has accepted") if table else {}


def rewritten_partitions(
    root: str, accepted: Mapping[Partition, Build], versions: Mapping[str, int | None]
) -> dict[Partition, str]:
    """The same for the `accepted` partitions of the tables in `versions`, in the lake at `root`."""
    by_table: dict[str, list[Build]] = {}
    for (name, _), build in accepted.items():
        by_table.setdefault(name, []).append(build)
    return {
        (name, day): why
        for name, version in versions.items()
        for day, why in rewritten(Paths(root).table(name), by_table.get(name, ()), version).items()
    }
