"""`backfill reproduce`: a day built again from its recorded code and inputs, beside the lake, and compared.

What can be seen without computing (other code, inputs that are gone) is answered at once, without a server; else the server
computes the day, in a run of the job `reproduce`. The exit code is 0 if the day comes out the same, 1 if it differs, and 4 if
it was not rebuilt.
"""

import getpass
import json
import time
from collections.abc import Callable

from backfill_assets.cli import exit_codes
from backfill_assets.cli.rendering import terminal
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.run_of_job import REPRODUCE, REPRODUCTION, launch_job, observed
from backfill_assets.rebuild.carry_out import refuse_without_daemons
from backfill_assets.rebuild.other_servers import refuse_other_servers
from backfill_assets.reproduce import reproduction_text as text
from backfill_assets.reproduce.recorded_build import RecordedBuild, recorded_build
from backfill_assets.reproduce.refusals import basis_of
from backfill_assets.reproduce.reproduction import Reproduction, Result, read_reproduction
from backfill_assets.servers.home import dagster_of
from backfill_assets.workspace import open_workspace

CODES = {Result.SAME: exit_codes.DONE, Result.DIFFERS: exit_codes.PARTIAL}


def run(table: str, day: str, release: int | None, *, as_json: bool, sleep: Callable[[float], None] = time.sleep) -> int:
    workspace = open_workspace(only_reading=True)
    recorded = recorded_build(table, day, release, workspace)
    basis = basis_of(recorded, workspace)
    if isinstance(basis, Reproduction):
        reproduction = basis
    else:
        dagster = dagster_of(workspace.settings)
        refuse_without_daemons(dagster)
        refuse_other_servers(dagster.tables(), [recorded.table.name], workspace.lake.root, dagster.url)
        reproduction = reproduced_by(dagster, recorded, table, sleep)
    code = CODES.get(reproduction.result, exit_codes.STOPPED)
    if as_json:
        print(json.dumps(reproduction.contents() | {"exit_code": code}))
    else:
        show(reproduction)
    return code


def reproduced_by(dagster: Dagster, recorded: RecordedBuild, name: str, sleep: Callable[[float], None]) -> Reproduction:
    """Have the server compute the day, and wait until it is done."""
    config = {"table": name, "day": str(recorded.day), "release": recorded.release or 0}
    who = {tags.WHO: getpass.getuser(), "dagster/max_retries": "0"}
    launched = launch_job(dagster, REPRODUCE, "build_again", config, who)
    terminal(stderr=True).print(f"Rebuilt by {launched}: {dagster.url}{launched.page}")
    return read_reproduction(observed(dagster, launched, REPRODUCTION, sleep))


def show(reproduction: Reproduction) -> None:
    console = terminal()
    console.print(text.heading(reproduction))
    for line in text.lines(reproduction):
        console.print(f"  {line}")
    console.print("Nothing was written.")
