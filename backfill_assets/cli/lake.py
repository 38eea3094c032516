"""`backfill archive`: archives are split into their days, each once. No server and no engine is
needed.

The exit code is 0 if every archive is in, and 1 if one is not.

`backfill maintain`: small files of a day become one, and files that nobody needs are removed. No
server is needed.

Without `--apply` nothing is changed. The exit code is 0 if everything was looked after, and 1 if a
table could not be.
"""

import getpass
import json
from dataclasses import asdict
from typing import Any

from rich.table import Table

from backfill_assets.cli import exit_codes
from backfill_assets.cli.terminal import terminal
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
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.settings import read_settings
from backfill_assets.step.sources import comma_separated, load_sentence, next_line, take_in_named
from backfill_assets.workspace import open_workspace


def run_archive(
    name: str, files: str, *, full_refresh: bool, accept: str = "", reason: str = "", as_json: bool
) -> int:
    workspace = open_workspace()
    console = terminal()
    done = []
    only = comma_separated(files)
    for archive, result in take_in_named(
        workspace, name, full_refresh=full_refresh, files=only, accept=accept, reason=reason
    ):
        done.append((archive, result))
        if not as_json:
            console.print(load_sentence(result))
    code = exit_codes.PARTIAL if any(result.problem for _, result in done) else exit_codes.DONE
    if as_json:
        results = [{"source": each, **asdict(result)} for each, result in done]
        print(json.dumps({"archives": results, "exit_code": code}, default=str))
    elif done:
        console.print(next_line(workspace.tables, [each for each, _ in done]))
    else:
        console.print(
            f"Every archive{' of these names' if only else ''} is in as it lies there. Nothing was"
            " read."
        )
    return code


def run_maintain(only: str, *, apply: bool, as_json: bool) -> int:
    settings = read_settings()
    root = settings.lake
    days = settings.rollback_days
    if apply:  # what is begun may need files that nobody else does
        refuse_half_done(Plans(root), "Nothing was removed.")
    result = (
        maintain(root, days, utc_now(), getpass.getuser(), only)
        if apply
        else preview_maintenance(root, days, utc_now(), only)
    )
    code = exit_codes.PARTIAL if result.problems else exit_codes.DONE
    if as_json:
        values: dict[str, Any] = maintenance_as_values(result)
        print(json.dumps({"applied": apply, "rollback_days": days, "exit_code": code, **values}))
    else:
        _show(result, days, applied=apply)
    return code


def _show(result: Maintenance, days: int, *, applied: bool) -> None:
    console = terminal()
    table = Table(*MAINTENANCE_COLUMNS)
    for row in maintenance_rows(result):
        table.add_row(*row)
    if result.tables:
        console.print(table)
    for line in ending_lines(result, days, applied=applied):
        console.print(line)
