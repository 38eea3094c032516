"""`backfill maintain`: small files of a day become one, and files that nobody needs are removed. No server is needed.

Without `--apply` nothing is changed. The exit code is 0 if everything was looked after, and 1 if a table could not be.
"""

import getpass
import json
from typing import Any

from rich.table import Table

from backfill_assets.cli import exit_codes
from backfill_assets.cli.rendering import terminal
from backfill_assets.lake.maintenance import Maintenance, look, maintain
from backfill_assets.lake.maintenance_text import COLUMNS, as_values, ending_lines, rows
from backfill_assets.plan.half_done import refuse_half_done
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.settings import read_settings


def run(only: str, *, apply: bool, as_json: bool) -> int:
    settings = read_settings()
    root, days = settings.lake, settings.rollback_days
    if apply:  # what is begun may need files that nobody else does
        refuse_half_done(Plans(root), "Nothing was removed.")
    result = maintain(root, days, utc_now(), getpass.getuser(), only) if apply else look(root, days, utc_now(), only)
    code = exit_codes.PARTIAL if result.problems else exit_codes.DONE
    if as_json:
        values: dict[str, Any] = as_values(result)
        print(json.dumps({"applied": apply, "rollback_days": days, "exit_code": code, **values}))
    else:
        _show(result, days, applied=apply)
    return code


def _show(result: Maintenance, days: int, *, applied: bool) -> None:
    console, table = terminal(), Table(*COLUMNS)
    for row in rows(result):
        table.add_row(*row)
    if result.tables:
        console.print(table)
    for line in ending_lines(result, days, applied=applied):
        console.print(line)
