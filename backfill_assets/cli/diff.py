"""`backfill diff`: what a plan changed, what a day's last build changed, or in what two releases differ. No server, no Spark.

The exit code is 0 if it was compared; with `--check`, 1 if anything differs.
"""

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from backfill_assets.cli import exit_codes
from backfill_assets.cli.html_file import refuse_page, write_page
from backfill_assets.cli.rendering import terminal
from backfill_assets.diff import diff_text
from backfill_assets.diff.comparison import Comparison
from backfill_assets.diff.diff import Diff
from backfill_assets.diff.diff_html import page
from backfill_assets.workspace import open_workspace

NUMBERS = slice(2, 7)


def run(comparison: Comparison, *, html: Path | None, check: bool, as_json: bool) -> int:
    if html:
        refuse_page(html, "compared")
    diff = comparison.made(open_workspace())
    if html:
        write_page(page(diff), html)
    if as_json:
        print(json.dumps({**asdict(diff), "differs": diff.differs, "html": str(html) if html else ""}))
    else:
        show(terminal(), diff)
        if html:
            print(f"Written to {html}.")
    return exit_codes.PARTIAL if check and diff.differs else exit_codes.DONE


def show(console: Console, diff: Diff) -> None:
    console.print(f"{diff_text.heading(diff)}{'' if diff.differs or not diff.tables else ': nothing differs'}")
    table, rows = Table(*diff_text.COLUMNS), diff_text.rows(diff)
    for column in table.columns[NUMBERS]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    if rows:
        console.print(table)
    for line in diff_text.lines(diff):
        console.print(line)
