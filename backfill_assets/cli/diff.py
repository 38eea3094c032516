"""`backfill diff`: what a plan changed, what a day's last build changed, or in what two releases differ. No server, no Spark.

The exit code is 0 if it was compared; with `--check`, 1 if anything differs.
"""

import json
import secrets
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from backfill_assets.cli import exit_codes
from backfill_assets.cli.rendering import terminal
from backfill_assets.diff import diff_text
from backfill_assets.diff.comparison import Comparison
from backfill_assets.diff.diff import Diff
from backfill_assets.diff.diff_html import page
from backfill_assets.errors import UsageError
from backfill_assets.workspace import open_workspace

NUMBERS = slice(2, 7)


def run(comparison: Comparison, *, html: Path | None, check: bool, as_json: bool) -> int:
    if html:
        refuse_page(html)
    diff = comparison.made(open_workspace())
    if html:
        write_page(diff, html)
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


def refuse_page(file: Path) -> None:
    """UsageError for a file that is not to hold a page, or in a folder that is not there."""
    if file.suffix != ".html" or file.is_dir():
        raise UsageError(f"{file} is not a file that ends in .html. Nothing was compared. Name such a file.")
    if not file.parent.is_dir():
        raise UsageError(f"There is no folder {file.parent}. Nothing was compared. Make it, or name another file.")


def write_page(diff: Diff, file: Path) -> None:
    """Write the page, which takes the place of one that is there when it is complete."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        beside.write_text(page(diff), encoding="utf-8", errors="backslashreplace")
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
