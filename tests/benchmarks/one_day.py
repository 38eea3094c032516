"""`backfill run` of one forced day through all six tables on running servers, in phases: `python -m
tests.benchmarks.one_day`.

From the key pressed to the prompt back: planning (until the launch is asked for), launching (until
Dagster has it), the queue and the run's start (until its first step), the steps, what is between
them, and noticing the end (until the prompt).
"""

import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime

from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.cli.demo import folder_of, workspace_for
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.datasets.outages.sample import deliver
from backfill_assets.plan.store import REQUESTED, Plans
from backfill_assets.servers.stack import Servers, servers_on

DAYS = "2019-08-15..2019-08-26"
TIMES = 3
STEPS = """query ($run: ID!) {
  runOrError(runId: $run) { ... on Run { stepStats { startTime endTime } } }
}"""


def backfill(*arguments: str, env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "backfill_assets.cli", *arguments]
    subprocess.run(command, env=os.environ | env, check=True, capture_output=True)


def phases(servers: Servers, lake: str, env: dict[str, str]) -> dict[str, float]:
    """The seconds of each phase of one command."""
    plans = Plans(lake)
    before = set(Plans(lake).ids())
    pressed = time.time()
    flags = ("--force", "--canary", "0", "--into", "live", "--yes")
    backfill("run", "--partitions", "2019-08-20", *flags, env=env)
    back = time.time()
    (plan_id,) = set(plans.ids()) - before
    asked = plans.events(plan_id, REQUESTED)[0].at.timestamp()
    dagster: Dagster = servers.dagster
    (launched,) = dagster.launched({"backfill/plan": plan_id})
    steps = dagster.ask(STEPS, {"run": launched.id})["runOrError"]["stepStats"]
    began = min(step["startTime"] for step in steps)
    ended = max(step["endTime"] for step in steps)
    seconds = sum(step["endTime"] - step["startTime"] for step in steps)
    return {
        "plan": asked - pressed,
        "launch": launched.created - asked,
        "queue and run start": began - launched.created,
        "steps": seconds,
        "between steps": ended - began - seconds,
        "noticing the end": back - ended,
        "in all": back - pressed,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        os.environ["BACKFILL_HOME"] = root
        workspace = workspace_for(DAYS)
        console = Console(width=120)
        settings = workspace.settings
        deliver(folder_of(settings))
        with servers_on(settings, log=console.print) as servers:
            env = {
                "BACKFILL_FIRST_DAY": str(workspace.calendar.first),
                "BACKFILL_LAST_DAY": str(workspace.calendar.last),
            }
            backfill(
                "run", "--partitions", DAYS, "--canary", "0", "--into", "live", "--yes", env=env
            )
            found = [phases(servers, settings.lake, env) for _ in range(TIMES)]
        drawn = Drawn(
            "phase",
            *[f"run {n + 1}" for n in range(TIMES)],
            title=f"{datetime.now():%Y-%m-%d}: one day, six tables",
        )
        for name in found[0]:
            drawn.add_row(name, *[f"{each[name]:.1f} s" for each in found])
        drawn.add_row(
            "in all / steps", *[f"{each['in all'] / each['steps']:.2f}" for each in found]
        )
        console.print(drawn)


if __name__ == "__main__":
    main()
