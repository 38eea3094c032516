"""Maintain the lake's files, and import archives. No server is needed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from backfill_assets.lake.maintenance import (
    MAINTENANCE_COLUMNS,
    Maintenance,
    ending_lines,
    maintain,
    maintenance_as_values,
    maintenance_rows,
    preview_maintenance,
)
from backfill_assets.plan.lifecycle import refuse_half_done
from backfill_assets.plan.store import Plans
from backfill_assets.sources.archives.loading import LoadResult
from backfill_assets.step.sources import (
    comma_separated,
    load_sentence,
    next_line,
    take_in_named,
)
from backfill_assets.verbs.report import Line, TableContents, table_of
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class MaintainReport:
    result: Maintenance
    applied: bool
    rollback_days: int

    @property
    def is_complete(self) -> bool:
        return not self.result.problems

    @property
    def table(self) -> TableContents:
        return MAINTENANCE_COLUMNS, maintenance_rows(self.result)

    def lines(self) -> Iterator[Line]:
        if self.result.tables:
            yield table_of(*self.table)
        yield from ending_lines(self.result, self.rollback_days, applied=self.applied)

    def as_json(self) -> dict[str, Any]:
        return {
            "applied": self.applied,
            "rollback_days": self.rollback_days,
            **maintenance_as_values(self.result),
        }


def maintain_lake(
    root: str, days: int, table: str, *, apply: bool, who: str, now: datetime
) -> MaintainReport:
    """Compact days, retire releases and remove files. Without `apply`, only look what to do.

    `days` is the length of the rollback window: what it needs is kept.
    """
    if not apply:
        return MaintainReport(preview_maintenance(root, days, now, table), apply, days)
    # An act that has begun may need files that nobody else needs.
    refuse_half_done(Plans(root), "Nothing was removed.")
    return MaintainReport(maintain(root, days, now, who, table), apply, days)


@dataclass(frozen=True)
class ArchiveReport:
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

    def as_json(self) -> dict[str, Any]:
        return {"archives": [{"source": name, **asdict(result)} for name, result in self.results]}


def import_archives(
    workspace: Workspace,
    name: str,
    files: str,
    *,
    full_refresh: bool,
    accept: str,
    reason: str,
    note: Callable[[str], None],
) -> ArchiveReport:
    """Import the archives that are new or have changed. Each is read once and split into days.

    `note` gets a sentence for each archive as soon as that is done.
    """
    only = comma_separated(files)
    results = []
    for source, result in take_in_named(
        workspace, name, full_refresh=full_refresh, files=only, accept=accept, reason=reason
    ):
        results.append((source, result))
        note(load_sentence(result))
    next_step = next_line(workspace.tables, [source for source, _ in results]) if results else ""
    return ArchiveReport(results, bool(only), next_step)
