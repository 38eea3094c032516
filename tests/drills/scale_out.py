"""The demo on a cluster, an object store and PostgreSQL, by settings alone.

    python -m tests.drills.scale_out [DAYS]

A standalone Spark cluster of two workers, versitygw and PostgreSQL are started on this machine.
`backfill demo --exit` gets their addresses as settings, and nothing else. Then the rows of each
table must be those that DuckDB computes from the delivered files. It builds 60 days, or as many as
DAYS says, and prints the settings, the seconds and the requests that the store counted.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.datasets.outages.sample import FIRST_DAY, LAST_DAY
from backfill_assets.lake.object_store import delta_options
from backfill_assets.servers.child import free_port
from tests.worlds.cluster import Cluster, cluster
from tests.worlds.outages import ORACLE_TABLES, differences, oracle_of
from tests.worlds.s3 import S3, s3_server
from tests.worlds.services import PostgresServer, postgres_server
from tests.worlds.started import environment_without_spark

LIMIT_S = 3000
LAKE = "lake"


@dataclass(frozen=True)
class Machines:
    """What a team has besides its laptop: a cluster, an object store and a database."""

    spark: Cluster
    store: S3
    database: PostgresServer

    def settings(self, home: Path) -> dict[str, str]:
        """The settings by which a project uses all of them."""
        secret = {"spark.authenticate.secret": self.spark.secret}
        return {
            "BACKFILL_HOME": str(home),
            "BACKFILL_LAKE": self.store.place(LAKE),
            "BACKFILL_SPARK_MASTER": self.spark.master,
            "BACKFILL_SPARK_CONF": json.dumps({"spark.driver.memory": "2g", **secret}),
            "BACKFILL_DAGSTER_STORAGE": self.database.new_database(),
            **self.store.environment(),
        }


@contextmanager
def machines(root: Path) -> Iterator[Machines]:
    """All of them, with their files below `root`, until the block ends."""
    with ExitStack() as until_done:
        folders = [root / name for name in ("spark", "store")]
        for folder in folders:
            folder.mkdir()
        spark = until_done.enter_context(cluster(folders[0]))
        store = until_done.enter_context(s3_server(folders[1]))
        # Its files are elsewhere: it runs as another user if this one is root.
        database = until_done.enter_context(postgres_server())
        yield Machines(spark, store, database)


def demo(settings: Mapping[str, str], last: date) -> str:
    """Type `backfill demo --exit`. Returns what it printed. Raises RuntimeError if it fails."""
    others = environment_without_spark().items()
    kept = {k: v for k, v in others if not k.startswith(("BACKFILL_", "DAGSTER_"))}
    typed = ["demo", "--exit", "--partitions", f"{FIRST_DAY}..{last}", "--port", str(free_port())]
    ended = subprocess.run(
        [sys.executable, "-m", "backfill_assets.cli", *typed],
        env={**kept, **settings},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"{ended.stdout}\n{ended.stderr}")
    return ended.stdout


def wrong_rows(store: S3, landing: Path, last: date) -> dict[str, int]:
    """By table, the rows that only the lake or only DuckDB has. `landing` is what was delivered."""
    place = store.place(LAKE)
    options = delta_options(place)

    def rows(name: str) -> pa.Table:
        return DeltaTable(f"{place}/{name}", storage_options=options).to_pyarrow_table()

    # DuckDB reads every file, and the project only those of its days.
    for file in landing.glob("outage_events/year=*/month=*/day=*/*"):
        if _day_of(file) > last:
            file.unlink()
    with oracle_of(landing, FIRST_DAY, last) as oracle:
        return {name: len(differences(oracle, name, rows(name))) for name in ORACLE_TABLES}


def _day_of(file: Path) -> date:
    """The day in a path like `year=2019/month=09/day=05/events.jsonl.gz`."""
    year, month, day = (part.partition("=")[2] for part in file.parts[-4:-1])
    return date(int(year), int(month), int(day))


def main(days: int) -> None:
    last = min(FIRST_DAY + timedelta(days=days - 1), LAST_DAY)
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="scale") as folder:
        root = Path(folder)
        with machines(root) as found:
            home = root / "home"
            settings = found.settings(home)
            started = time.monotonic()
            with found.store.counting() as requests:
                printed = demo(settings, last)
            seconds = time.monotonic() - started
            os.environ.update(found.store.environment())
            wrong = wrong_rows(found.store, home / "landing", last)
    console.print(printed)
    drawn = Drawn("what", "figure", title=f"{FIRST_DAY} to {last}")
    drawn.add_row("seconds", f"{seconds:.0f}")
    drawn.add_row("requests", str(requests.total()))
    for name, rows in wrong.items():
        drawn.add_row(f"wrong rows of {name}", str(rows))
    console.print(drawn)
    sys.exit(1 if any(wrong.values()) else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
