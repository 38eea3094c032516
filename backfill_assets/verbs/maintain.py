"""Maintain the lake's files, and import archives. No server is needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from backfill_assets.errors import first_of
from backfill_assets.grouping import comma_separated
from backfill_assets.lake.acts import finish
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.maintenance import (
    Maintenance,
    TableUpkeep,
    maintain,
    preview_maintenance,
)
from backfill_assets.lake.needed_files import Need
from backfill_assets.sources.archives.loading import LoadResult
from backfill_assets.step.sources import (
    load_named_archives,
    load_sentence,
    next_step_after_load,
)
from backfill_assets.verbs.options import ArchiveOptions, MaintainOptions
from backfill_assets.verbs.report import Line, Report, TableContents, table_of
from backfill_assets.workspace import Workspace

_COLUMNS = ("table", "files", "compact", "remove", "keep, and what for")
RELEASES_SHOWN = 10


@dataclass(frozen=True)
class MaintainReport(Report):
    result: Maintenance
    applied: bool
    rollback_days: int

    @property
    def is_complete(self) -> bool:
        return not self.result.problems

    @property
    def table(self) -> TableContents:
        return _COLUMNS, [_row(table) for table in self.result.tables]

    def lines(self) -> Iterator[Line]:
        if self.result.tables:
            yield table_of(*self.table)
        yield self._summary()
        for problem in self.result.problems:
            yield f"Not done: {problem}"
        if not self.applied:
            has_work = any(self.totals.values())
            does = "`backfill maintain --apply` does it."
            yield f"Nothing was changed. {does if has_work else 'There is nothing to do.'}"

    def as_json(self) -> Mapping[str, Any]:
        return {
            "applied": self.applied,
            "rollback_days": self.rollback_days,
            "retired_releases": [release.number for release in self.result.retired],
            "kept_releases": [release.number for release in self.result.kept_releases],
            "tables": {
                table.name: {
                    "files": table.files,
                    "bytes": table.bytes,
                    "compacted_days": {str(day): count for day, count in table.days.items()},
                    "removed_files": list(table.removed),
                    "removed_bytes": table.removed_bytes,
                    "kept_files": {
                        need.name.lower(): table.kept_files[need]
                        for need in Need
                        if need in table.kept_files
                    },
                    "problem": table.problem,
                }
                for table in self.result.tables
            },
            "problems": self.result.problems,
        }

    @property
    def totals(self) -> dict[str, int]:
        """The counts of retired releases, compacted days and removed files, over all tables."""
        tables = self.result.tables
        return {
            "retired_releases": len(self.result.retired),
            "compacted_days": sum(len(table.days) for table in tables),
            "removed_files": sum(len(table.removed) for table in tables),
            "removed_bytes": sum(table.removed_bytes for table in tables),
        }

    def _summary(self) -> str:
        retired, days, files, size = self.totals.values()
        shown = [str(release.number) for release in self.result.retired]
        numbers = f" ({', '.join(first_of(shown, RELEASES_SHOWN))})" if shown else ""
        will = "" if self.applied else "to be "
        return (
            f"{retired} release(s) {will}retired{numbers}, {days} day(s) {will}compacted,"
            f" {_size(files, size)} {will}removed."
            f" {len(self.result.kept_releases)} release(s) stay, and all versions of the"
            f" last {self.rollback_days} day(s) (BACKFILL_ROLLBACK_DAYS)."
        )


def _row(table: TableUpkeep) -> tuple[str, ...]:
    """The cells of one table, by _COLUMNS."""
    small = f"{sum(table.days.values()):,} of {len(table.days)} day(s)" if table.days else ""
    removed = _size(len(table.removed), table.removed_bytes) if table.removed else ""
    kept = ", ".join(
        f"{table.kept_files[need]:,} {need}" for need in Need if need in table.kept_files
    )
    return table.name, _size(table.files, table.bytes), small, removed, kept


def _size(files: int, size: int) -> str:
    return f"{files:,} file(s), {size / 1e6:,.1f} MB"


def maintain_lake(
    lake: Lake, days: int, options: MaintainOptions, *, who: str, now: datetime
) -> MaintainReport:
    """Compact days, retire releases and remove files. Without `apply`, nothing is changed.

    `days` is the length of the rollback window. Every version in the window stays.
    """
    if options.apply:
        # An act that was begun may need files that nothing else needs.
        finish(lake.root)
        result = maintain(lake, days, now, who, options.target)
    else:
        result = preview_maintenance(lake, days, now, options.target)
    return MaintainReport(result, options.apply, days)


@dataclass(frozen=True)
class ArchiveReport(Report):
    results: Sequence[tuple[str, LoadResult]]
    is_selection: bool
    next_step: str

    @property
    def is_complete(self) -> bool:
        return not any(result.problem for _, result in self.results)

    def lines(self) -> Iterator[Line]:
        if self.results:
            yield self.next_step
        else:
            which = " of these names" if self.is_selection else ""
            yield f"Every archive{which} is imported already. Nothing was read."

    def as_json(self) -> Mapping[str, Any]:
        return {"archives": [{"source": name, **asdict(result)} for name, result in self.results]}


def import_archives(
    workspace: Workspace, name: str, options: ArchiveOptions, *, note: Callable[[str], None]
) -> ArchiveReport:
    """Import the archives that are new or have changed. Each is read once and split into days.

    `note` gets a sentence for each archive as soon as it is imported.
    """
    only = comma_separated(options.files)
    results = []
    for source, result in load_named_archives(
        workspace,
        name,
        full_refresh=options.full_refresh,
        files=only,
        accept=options.accept,
        reason=options.reason,
    ):
        results.append((source, result))
        note(load_sentence(result))
    next_step = (
        next_step_after_load(workspace.tables, [source for source, _ in results]) if results else ""
    )
    return ArchiveReport(results, bool(only), next_step)
