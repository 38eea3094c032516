"""`backfill archive`: archives are split into their days, each once. No server and no engine is needed.

The exit code is 0 if every archive is in, and 1 if one is not.
"""

import json
from dataclasses import asdict

from backfill_assets.cli import exit_codes
from backfill_assets.cli.rendering import terminal
from backfill_assets.step.archives import next_line, sentence, take_in_named
from backfill_assets.workspace import open_workspace


def run(name: str, files: str, *, full_refresh: bool, as_json: bool) -> int:
    workspace, console = open_workspace(), terminal()
    done, only = [], [each.strip() for each in files.split(",") if each.strip()]
    for archive, taken in take_in_named(workspace, name, full_refresh=full_refresh, files=only):
        done.append((archive, taken))
        if not as_json:
            console.print(sentence(taken))
    code = exit_codes.PARTIAL if any(taken.problem for _, taken in done) else exit_codes.DONE
    if as_json:
        print(
            json.dumps(
                {"archives": [{"source": each, **asdict(taken)} for each, taken in done], "exit_code": code}, default=str
            )
        )
    elif done:
        console.print(next_line(workspace.tables, [each for each, _ in done]))
    else:
        console.print("Every archive is in as it lies there. Nothing was read.")
    return code
