"""Messages about the sources of tables, and the loading of their archives.

Sources report files that no table reads, and days whose files lack declared columns.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import chain
from shlex import quote

from backfill_assets.calendar import Calendar, ranges
from backfill_assets.errors import SourceError, UsageError, counted, named
from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.archives.loading import LoadResult, is_selected, load_archives
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Source
from backfill_assets.step.accept import is_accepted, refuse_without_reason, unknown_names
from backfill_assets.step.inputs import ask_source
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

_NOTHING_READ = "Nothing was read."


def archives_of(tables: Sequence[Table]) -> dict[str, Archive]:
    """The archives that these tables read, by name. Raise ValueError if two have the same name."""
    archives: dict[str, Archive] = {}
    for archive in chain.from_iterable(map(_archives_of_table, tables)):
        other = archives.setdefault(archive.name, archive)
        if other != archive:
            raise ValueError(
                f"two archives are named {archive.name}, but they are declared differently"
            )
        fields = [*other.fields, *(new for new in archive.fields if new not in other.fields)]
        archives[archive.name] = replace(other, fields=fields)
    return archives


def _archives_of_table(table: Table) -> Sequence[Archive]:
    source = table.source()
    return source.archives if source else ()


def load_named_archives(
    workspace: Workspace,
    name: str = "",
    *,
    full_refresh: bool = False,
    files: Sequence[str] = (),
    accept: str = "",
    reason: str = "",
) -> Iterator[tuple[str, LoadResult]]:
    """Load the archives called `name`, or all; yield each result with its archive's name.

    `files` are patterns: only files that match one are loaded. `accept` lists files that are loaded
    although a guard refuses them, for this `reason`. Raises UsageError for an unknown name, and for
    patterns and names that match no file.
    """
    archives = archives_of(workspace.tables)
    if not archives:
        raise UsageError(
            "No table reads archives.",
            unchanged=_NOTHING_READ,
            next_step="Declare them: reads={'rows': TwoFlows(Landing(...), Archive(...))}.",
        )
    if name and name not in archives:
        raise UsageError(
            f"No table reads archives named {name}.",
            unchanged=_NOTHING_READ,
            next_step=f"There are: {', '.join(archives)}.",
        )
    refuse_without_reason(reason, accept)
    chosen = [archives[name]] if name else list(archives.values())
    listed = _listed(workspace.area, chosen) if files or accept else []
    unknown = [pattern for pattern in files if not any(is_selected(f, [pattern]) for f in listed)]
    if unknown := [*unknown, *unknown_names(accept, listed)]:
        raise UsageError(
            f"There is no archive {unknown[0]}.",
            unchanged=_NOTHING_READ,
            next_step=f"There are: {named(listed) or 'none'}.",
        )
    accepted = [file for file in listed if is_accepted(file, accept)]
    for archive in chosen:
        try:
            for result in load_archives(
                archive,
                workspace.area,
                full_refresh=full_refresh,
                only=files,
                accept=accepted,
                reason=reason,
            ):
                yield archive.name, result
        except SourceError as error:  # of the archive's folder: the other archives are loaded
            yield archive.name, LoadResult(archive.name, problem=str(error))


def _listed(area: LandingArea, archives: Sequence[Archive]) -> list[str]:
    return [file for archive in archives for file in (*archive.listed(area), *archive.late(area))]


def load_sentence(result: LoadResult) -> str:
    """The result of loading one archive, as a sentence."""
    days = f" ({ranges(result.days)})" if result.days else ""
    rows = f"{counted(result.rows, 'row')} of {counted(len(result.days), 'day')}{days}"
    if result.problem:
        accept = (
            f" Fix the file, or accept it as is: `backfill archive --accept {quote(result.name)}"
            " --reason 'why'`."
        )
        return (
            f"{result.problem}. Rows that were loaded from it before"
            f" stay.{accept if result.acceptable else ''}"
        )
    if result.left_out:
        return f"{result.name} was modified after `modified_before`, and was skipped."
    if result.dropped:
        return (
            f"{result.name} was removed: {rows} dropped. Days that were built with it are"
            " unchanged."
        )
    parts = [f"{result.name}: {result.bytes_read:,} bytes read, {rows}"]
    if record := result.record:
        if record.same_as:
            parts.append(f"the same content as {record.same_as}, which is in")
        if record.before:
            parts.append(f"{counted(record.before, 'row')} of days before the first one left out")
        if record.undated:
            examples = ", ".join(map(str, record.examples))
            parts.append(
                f"{counted(record.undated, 'row')} without a day that can be read left out, the"
                f" first in row {examples}"
            )
        if record.accepted:
            parts.append(f"accepted: {record.accepted}")
    return "; ".join(parts)


def next_step_after_load(tables: Sequence[Table], names: Sequence[str]) -> str:
    """The command to type once archives of these names are loaded, as a sentence."""
    readers = [
        table.name
        for table in tables
        if any(archive.name in names for archive in _archives_of_table(table))
    ]
    return (
        f"See which days are to be built with them: `backfill status --target {','.join(readers)}`."
    )


def unread_lines(tables: Sequence[Table], area: LandingArea, calendar: Calendar) -> dict[str, str]:
    """The files without a day in the calendar and the archives not loaded, by table."""
    lines: dict[str, str] = {}
    for table in tables:
        if source := table.source():
            parts = _unread(source, area, table.calendar_of(calendar))
            lines |= {table.name: "; ".join(parts)} if parts else {}
    return lines


def _unread(source: Source, area: LandingArea, calendar: Calendar) -> list[str]:
    outside = f"files of days outside the calendar {calendar.first}..{calendar.last}"
    questions: dict[str, Callable[[LandingArea], Sequence[str]]] = {
        outside: lambda area: source.outside(area, calendar),
        "files that match no day and are not read": source.unmatched,
        "archives that are not loaded yet (run `backfill archive`)": source.unloaded_archives,
        "archives modified after `modified_before`; rows loaded from them before stay": (
            source.skipped_archives
        ),
    }
    # A dict, so that the error of a failing source is listed once.
    parts = dict[str, None]()
    for about, question in questions.items():
        files = ask_source(source, lambda question=question: list(question(area)))  # type: ignore[misc]
        if isinstance(files, SourceError):
            parts[str(files)] = None
        elif files:
            parts[f"{about}: {named(files)}"] = None
    return list(parts)


def era_lines(tables: Sequence[Table], days: Mapping[str, Collection[date]]) -> Iterator[str]:
    """A sentence for each era of `days` in which a table's files lack declared columns."""
    for table in tables:
        source = table.source()
        eras = ask_source(source, lambda: dict(source.eras(days[table.name]))) if source else {}  # noqa: B023
        for lacking, of_era in {} if isinstance(eras, SourceError) else eras.items():
            if lacking:
                yield (
                    f"{table.name} {ranges(of_era)}: declared for other days only (since=, until=),"
                    f" and null unless a file has them: {', '.join(lacking)}."
                )
