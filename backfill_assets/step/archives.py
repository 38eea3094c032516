"""The archives of tables: taking them in, and what is said of it."""

from collections.abc import Iterator, Sequence

from backfill_assets.calendar import ranges
from backfill_assets.errors import UsageError
from backfill_assets.sources.archive import Archive
from backfill_assets.sources.take_in import TakenIn, take_in
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def archives_of(tables: Sequence[Table]) -> dict[str, Archive]:
    """The archives that these tables are made from, by name. ValueError for two of one name."""
    archives: dict[str, Archive] = {}
    for archive in (archive for table in tables for archive in _read_by(table)):
        if archives.setdefault(archive.name, archive) != archive:
            raise ValueError(f"two archives are named {archive.name}, and they are declared differently")
    return archives


def _read_by(table: Table) -> Sequence[Archive]:
    source = table.source()
    return source.archives if source else ()


def take_in_named(
    workspace: Workspace, name: str = "", *, full_refresh: bool = False, files: Sequence[str] = ()
) -> Iterator[tuple[str, TakenIn]]:
    """Take in the archives called `name`, or all; each as it is done, with the name. UsageError for an unknown name."""
    archives = archives_of(workspace.tables)
    if name and name not in archives:
        raise UsageError(f"No table reads archives named {name}. Nothing was read. There are: {', '.join(archives) or 'none'}.")
    for each in [name] if name else archives:
        for taken in take_in(archives[each], workspace.area, full_refresh=full_refresh, only=files):
            yield each, taken


def sentence(taken: TakenIn) -> str:
    """What came of one archive, for people."""
    if taken.problem:
        return f"{taken.problem}. What was taken in of it before stays."
    if taken.left_out:
        return f"{taken.name} was modified after what is declared as `modified_before`, and is left as it is."
    rows = f"{_counted(taken.rows, 'row')} of {_counted(len(taken.days), 'day')}"
    said = [f"{taken.name}: {taken.bytes_read:,} bytes read, {rows}{f' ({ranges(taken.days)})' if taken.days else ''}"]
    record = taken.taken
    if record and record.same_as:
        said.append(f"the same content as {record.same_as}, which is in")
    if record and record.before:
        said.append(f"{_counted(record.before, 'row')} of days before the first one left out")
    if record and record.undated:
        first = ", ".join(map(str, record.examples))
        said.append(f"{_counted(record.undated, 'row')} without a day that can be read left out, the first in row {first}")
    return "; ".join(said)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def next_line(tables: Sequence[Table], names: Sequence[str]) -> str:
    """What to type once archives of these names are taken in."""
    read = [table.name for table in tables if any(archive.name in names for archive in _read_by(table))]
    return f"See which days are to be built with them: `backfill status --target {','.join(read)}`."
