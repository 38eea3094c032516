"""Compare a plan, a day, two tables or two releases. No server and no Spark is needed."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backfill_assets.diff import text
from backfill_assets.diff.diff import Diff
from backfill_assets.diff.sides import DiffRequest
from backfill_assets.verbs.report import (
    Line,
    Report,
    TableContents,
    refuse_page,
    table_of,
    write_page,
)
from backfill_assets.workspace import Workspace

_NUMBERS = slice(2, 7)


@dataclass(frozen=True)
class DiffReport(Report):
    diff: Diff
    # The file or the address at which the page is kept.
    page: str = ""

    @property
    def table(self) -> TableContents:
        return text.SUMMARY_COLUMNS, text.summary_rows(self.diff)

    @property
    def details(self) -> list[str]:
        return list(text.detail_lines(self.diff))

    def lines(self) -> Iterator[Line]:
        is_same = self.diff.tables and not self.diff.differs
        yield text.diff_heading(self.diff) + (": nothing differs" if is_same else "")
        if self.diff.differs:
            yield table_of(*self.table, right=_NUMBERS)
        yield from self.details
        if self.page:
            yield f"Written to {self.page}."

    def as_json(self) -> Mapping[str, Any]:
        return {**asdict(self.diff), "differs": self.diff.differs, "html": self.page}


def diff_tables(
    comparison: DiffRequest, workspace: Workspace, html: Path | None = None
) -> DiffReport:
    """Compare two versions of tables. With `html`, write the page of the diff there."""
    if html:
        refuse_page(html, "Nothing was compared.")
    diff = comparison.run(workspace)
    if html:
        write_page(text.html_page(diff), html)
    return DiffReport(diff, str(html) if html else "")
