"""`backfill archive`: archives are split into their days, each once. No server and no engine is needed.

The exit code is 0 if every archive is in, and 1 if one is not.
"""

import json
from dataclasses import asdict

from backfill_assets.cli import exit_codes
from backfill_assets.cli.rendering import terminal
from backfill_assets.step.archives import comma_separated, next_line, sentence, take_in_named
from backfill_assets.workspace import open_workspace


def run(name: str, files: str, *, full_refresh: bool, accept: str = "", reason: str = "", as_json: bool) -> int:
    workspace, console, done = open_workspace(), terminal(), []
    only = comma_separated(files)
    for archive, result in take_in_named(workspace, name, full_refresh=full_refresh, files=only, accept=accept, reason=reason):
        done.append((archive, result))
        if not as_json:
            console.print(sentence(result))
    code = exit_codes.PARTIAL if any(result.problem for _, result in done) else exit_codes.DONE
    if as_json:
        results = [{"source": each, **asdict(result)} for each, result in done]
        print(json.dumps({"archives": results, "exit_code": code}, default=str))
    elif done:
        console.print(next_line(workspace.tables, [each for each, _ in done]))
    else:
        console.print(f"Every archive{' of these names' if only else ''} is in as it lies there. Nothing was read.")
    return code
