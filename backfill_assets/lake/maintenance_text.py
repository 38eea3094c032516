"""What a maintenance has done, or would do, in words and plain values: for the command line and for Dagster's run."""

from collections.abc import Iterator, Sequence
from typing import Any

from backfill_assets.lake.maintenance import Maintenance
from backfill_assets.lake.needed_files import Need
from backfill_assets.lake.release import Release
from backfill_assets.lake.upkeep import TableUpkeep

COLUMNS = ("table", "files", "compact", "remove", "keep, and what for")
SHOWN = 10


def rows(result: Maintenance) -> list[tuple[str, ...]]:
    """A line a table, by COLUMNS."""
    return [(each.name, _size(each.files, each.bytes), _days(each), _removed(each), _kept(each)) for each in result.tables]


def ending_lines(result: Maintenance, days: int, *, applied: bool) -> Iterator[str]:
    """What was done, what could not be, and what to type next. `days`: of the rollback window."""
    files, size = sum(len(each.removed) for each in result.tables), sum(each.removed_bytes for each in result.tables)
    compacted = sum(len(each.days) for each in result.tables)
    numbers = f" ({_numbers(result.retired)})" if result.retired else ""
    will = "" if applied else "to be "
    yield (
        f"{len(result.retired)} release(s) {will}retired{numbers}, {compacted} day(s) {will}compacted, "
        f"{_size(files, size)} {will}removed. {len(result.kept)} release(s) stay, and what stood in the last {days} day(s) "
        "(BACKFILL_ROLLBACK_DAYS)."
    )
    for problem in result.problems:
        yield f"Not done: {problem}"
    if not applied:
        does = "`backfill maintain --apply` does it." if files or compacted or result.retired else "There is nothing to do."
        yield f"Nothing was changed. {does}"


def as_values(result: Maintenance) -> dict[str, Any]:
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
    return ", ".join([*numbers[:SHOWN], f"{len(numbers) - SHOWN} more"] if len(numbers) > SHOWN else numbers)
