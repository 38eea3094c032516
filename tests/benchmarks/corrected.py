"""One corrected delivery among sixty: what `backfill run --only outdated --downstream` builds, and
how long it takes beside building all sixty days. `python -m tests.benchmarks.corrected`

Both are plans carried out on the same real servers, one after the other, waits for Dagster's daemon
included.
"""

import gzip
import os
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.cli.run import carry_out_and_show
from backfill_assets.datasets.outages.sample import deliver
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.rebuild.carry_out import rebuild_of
from backfill_assets.servers.stack import servers_on
from backfill_assets.workspace import open_workspace

CORRECTED = "year=2019/month=09/day=10"
CALENDAR = {"BACKFILL_FIRST_DAY": "2019-08-15", "BACKFILL_LAST_DAY": "2019-10-13"}


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        os.environ |= CALENDAR | {"BACKFILL_HOME": root}
        measure(Path(root))


def measure(root: Path) -> None:
    console = Console(width=120)
    workspace = open_workspace()
    deliver(Path(workspace.settings.landing))
    drawn = Drawn(
        "rebuild", "partitions planned", "computed", "up to date", "seconds", "of all sixty"
    )
    days = f"{workspace.calendar.first}..{workspace.calendar.last}"
    seconds = 0.0
    with servers_on(workspace.settings, log=console.print) as servers:
        for name in ("all sixty days", "one corrected delivery"):
            if seconds:
                correct(root / "landing" / "outage_events" / CORRECTED / "events.jsonl.gz")
            request = RebuildRequest(
                partitions=days, only="outdated" if seconds else "", downstream=True
            )
            plan = make_plan(request, workspace).plan
            rebuild = rebuild_of(plan.id, workspace, dagster=servers.dagster, who="benchmark")
            end = carry_out_and_show(console, rebuild, workspace)
            took = (end.at - end.started).total_seconds()
            seconds = seconds or took
            builds = Counter(b.outcome for b in workspace.lake.ledger.builds() if b.plan == plan.id)
            counts = (len(plan.partitions()), builds.total(), len(end.remaining.saved))
            drawn.add_row(name, *map(str, counts), f"{took:.0f}", f"{took / seconds:.2f}")
    console.print(drawn)


def correct(file: Path) -> None:
    """The delivery again, without its last hundred lines."""
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    file.write_bytes(gzip.compress(b"".join(lines[:-100])))


if __name__ == "__main__":
    main()
