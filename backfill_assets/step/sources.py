"""Messages about the sources of tables, and the import of their archives.

Sources report files that nobody reads, and days whose files lack declared columns.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from shlex import quote

from backfill_assets.calendar import ranges
from backfill_assets.errors import SourceError, UsageError, named
from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.archives.loading import LoadResult, is_selected, load_archives
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Source
from backfill_assets.step.accept import is_accepted, unknown_names
from backfill_assets.step.inputs import ask_source
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def archives_of(tables: Sequence[Table]) -> dict[str, Archive]:
    """The archives that these tables read, by name. Raise ValueError if two have the same name."""
    archives: dict[str, Archive] = {}
    for archive in (archive for table in tables for archive in _archives_of_table(table)):
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


def take_in_named(
    workspace: Workspace,
    name: str = "",
    *,
    full_refresh: bool = False,
    files: Sequence[str] = (),
    accept: str = "",
    reason: str = "",
) -> Iterator[tuple[str, LoadResult]]:
    """Take in the archives called `name`, or all; each as it is done, with the name. `files`: only
    those of these patterns.

    `accept` lists files that are taken in although a guard refuses them, for this `reason`.
    UsageError for an unknown name, and for patterns and names of no file that lies there.
    """
    archives = archives_of(workspace.tables)
    if not archives:
        raise UsageError(
            "No table reads archives. Nothing was read. Declare them: reads={'rows':"
            " TwoFlows(Landing(...), Archive(...))}."
        )
    if name and name not in archives:
        raise UsageError(
            f"No table reads archives named {name}. Nothing was read. There are:"
            f" {', '.join(archives)}."
        )
    if accept and not reason.strip():
        raise UsageError(
            "Archives are accepted for a reason, which is recorded: --reason 'why'. Nothing was"
            " read."
        )
    asked = [name] if name else [*archives]
    listed = _listed(workspace, [archives[each] for each in asked]) if files or accept else []
    unknown = [
        pattern for pattern in files if not any(is_selected(each, [pattern]) for each in listed)
    ]
    if unknown := [*unknown, *unknown_names(accept, listed)]:
        raise UsageError(
            f"There is no archive {unknown[0]}. Nothing was read. There are:"
            f" {named(listed) or 'none'}."
        )
    accepted = [each for each in listed if is_accepted(each, accept)]
    for each in asked:
        try:
            for result in load_archives(
                archives[each],
                workspace.area,
                full_refresh=full_refresh,
                only=files,
                accept=accepted,
                reason=reason,
            ):
                yield each, result
        except SourceError as error:  # its folder: those of others are taken in
            yield each, LoadResult(each, problem=str(error))


def _listed(workspace: Workspace, archives: Sequence[Archive]) -> list[str]:
    return [
        name
        for each in archives
        for name in (*each.listed(workspace.area), *each.late(workspace.area))
    ]


def load_sentence(result: LoadResult) -> str:
    """The result of loading one archive, as a sentence."""
    rows = f"{_counted(result.rows, 'row')} of {_counted(len(result.days), 'day')}"
    of_days = f"{rows}{f' ({ranges(result.days)})' if result.days else ''}"
    if result.problem:
        accept = (
            f" Fix the file, or accept it as is: `backfill archive --accept {quote(result.name)}"
            " --reason 'why'`."
        )
        return (
            f"{result.problem}. What was taken in of it before"
            f" stays.{accept if result.acceptable else ''}"
        )
    if result.left_out:
        return f"{result.name} was modified after `modified_before`, and was skipped."
    if result.dropped:
        return (
            f"{result.name} was removed: {of_days} dropped. Days that were built with it are"
            " unchanged."
        )
    said = [f"{result.name}: {result.bytes_read:,} bytes read, {of_days}"]
    record = result.record
    if record and record.same_as:
        said.append(f"the same content as {record.same_as}, which is in")
    if record and record.before:
        said.append(f"{_counted(record.before, 'row')} of days before the first one left out")
    if record and record.undated:
        first = ", ".join(map(str, record.examples))
        said.append(
            f"{_counted(record.undated, 'row')} without a day that can be read left out, the first"
            f" in row {first}"
        )
    if record and record.accepted:
        said.append(f"accepted: {record.accepted}")
    return "; ".join(said)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def comma_separated(names: str) -> list[str]:
    return [each.strip() for each in names.split(",") if each.strip()]


def next_line(tables: Sequence[Table], names: Sequence[str]) -> str:
    """What to type once archives of these names are taken in."""
    read = [
        table.name
        for table in tables
        if any(archive.name in names for archive in _archives_of_table(table))
    ]
    return f"See which days are to be built with them: `backfill status --target {','.join(read)}`."


def unread_lines(tables: Sequence[Table], area: LandingArea) -> dict[str, str]:
    """Files that match no day, and archives that are not loaded, in one sentence per table."""
    lines: dict[str, str] = {}
    for table in tables:
        if source := table.source():
            parts = _unread(source, area)
            lines |= {table.name: "; ".join(parts)} if parts else {}
    return lines


def _unread(source: Source, area: LandingArea) -> list[str]:
    questions = {
        "files that match no day and are not read": source.unmatched,
        "archives that are not loaded yet (run `backfill archive`)": source.unloaded_archives,
        "archives modified after `modified_before`; rows loaded from them before stay": (
            source.skipped_archives
        ),
    }
    # A dict, so that the error of a source that fails is listed once.
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
                    f"{table.name} {ranges(of_era)}: files have no {', '.join(lacking)}, null in"
                    " their rows."
                )
