"""Each tool as its user types it: first builds, corrected days, and the routine of a night."""

import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from backfill_assets.servers.child import free_port
from tests.benchmarks.peers.deliveries import TABLES

PROJECTS = Path(__file__).parent
REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_S = 3600


class Tool(ABC):
    """A tool with its project in `folder`, a copy of `project`. `landing` holds the files."""

    name: str
    project: str
    requirements: Sequence[str] = ()

    def __init__(self, folder: Path, landing: Path, python: Path):
        self.folder = folder
        self.landing = landing
        self.python = python
        shutil.copytree(PROJECTS / self.project, folder)
        (folder / "landing").symlink_to(landing)

    @abstractmethod
    def build(self, first: date, last: date) -> None:
        """Build days that were never built."""

    @abstractmethod
    def rebuild(self, first: date, last: date) -> None:
        """Rebuild these days of the first table, and what is made from them."""

    @abstractmethod
    def routine(self, last: date) -> None:
        """What is typed every night, when `last` is the newest day."""

    @abstractmethod
    def change_code(self) -> None:
        """Sum up `customers` of a day by `sum` instead of `max`."""

    @abstractmethod
    def tables(self) -> dict[str, pa.Table]:
        """The rows that readers get now."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Its servers run, for tools that have some."""
        yield

    def run(self, *command: str) -> None:
        """Type a command. Raises RuntimeError with its last lines if it fails."""
        ended = subprocess.run(
            [str(self.python.parent / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if ended.returncode:
            lines = (ended.stdout + ended.stderr).splitlines()
            raise RuntimeError("\n".join([f"{self.name}: {' '.join(command)}", *lines[-20:]]))

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("BACKFILL_", "DAGSTER_"))}
        return kept | {"LANDING": str(self.landing), "LAKE": str(self.folder / "lake")}

    def replace(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text()
        if old not in text:
            raise ValueError(f"{path} has no {old!r}")
        path.write_text(text.replace(old, new))


class Ours(Tool):
    """This package, with its servers."""

    name = "backfill_assets"
    project = "ours"

    @contextmanager
    def running(self) -> Iterator[None]:
        """`backfill up` in the background. Commands wait for servers that start."""
        log = (self.folder / "up.log").open("w")
        up = [str(self.python.parent / "backfill"), "up", "--port", str(free_port())]
        servers = subprocess.Popen(
            up, cwd=self.folder, env=self.environment(), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            servers.terminate()
            servers.wait(60)
            log.close()

    def environment(self) -> dict[str, str]:
        home = {"BACKFILL_HOME": str(self.folder / "home"), "BACKFILL_LANDING": "landing"}
        return super().environment() | home

    def build(self, first: date, last: date) -> None:
        self._run(first, last)

    def rebuild(self, first: date, last: date) -> None:
        self._run(first, last, "--downstream")

    def routine(self, last: date) -> None:
        self.run("backfill", "reload")
        self._run(date(2019, 8, 15), last, "--only", "outdated", "--downstream")

    def change_code(self) -> None:
        self.replace("sales.py", 'F.max("customers").alias("customers"))\n\n\n@table', CHANGED)

    def tables(self) -> dict[str, pa.Table]:
        return rows_in(self.folder / "home" / "lake")

    def _run(self, first: date, last: date, *options: str) -> None:
        days = f"{first}..{last}"
        self.run("backfill", "run", "--partitions", days, *options, "--into", "live", "--yes")


CHANGED = 'F.sum("customers").alias("customers"))\n\n\n@table'


def rows_in(lake: Path) -> dict[str, pa.Table]:
    """The rows of the live tables of this package."""
    places = {"events": "raw", "daily": "staging", "weekly": "features"}
    found = {
        name: DeltaTable(str(lake / layer / name)).to_pyarrow_table()
        for name, layer in places.items()
    }
    events = found["events"]
    named = [name.replace("arrival_day", "day") for name in events.column_names]
    return found | {"events": events.rename_columns(named)}


class PlainDagster(Tool):
    """Dagster assets without this package: PySpark and Delta Lake, one run per day."""

    name = "plain Dagster"
    project = "plain"

    def build(self, first: date, last: date) -> None:
        day = first
        while day <= last:
            arguments = ("asset", "materialize", "-f", "sales.py", "--select", "*")
            self.run("dagster", *arguments, "--partition", str(day))
            day += timedelta(days=1)

    def rebuild(self, first: date, last: date) -> None:
        self.build(first, last)

    def routine(self, last: date) -> None:
        self.build(last, last)

    def change_code(self) -> None:
        old = 'F.max("customers").alias("customers")), "daily"'
        self.replace("sales.py", old, old.replace("max", "sum"))

    def tables(self) -> dict[str, pa.Table]:
        lake = self.folder / "lake"
        return {name: DeltaTable(str(lake / name)).to_pyarrow_table() for name in TABLES}

    def environment(self) -> dict[str, str]:
        home = self.folder / "dagster"
        home.mkdir(exist_ok=True)
        return super().environment() | {"DAGSTER_HOME": str(home)}


class OnDuckDB(Tool):
    """A tool that keeps its tables in `lake.duckdb`. `schema` holds them."""

    schema: str

    def tables(self) -> dict[str, pa.Table]:
        with duckdb.connect() as connection:
            file = self.folder / "lake.duckdb"
            connection.execute(f"ATTACH '{file}' AS lake (READ_ONLY)")
            return {
                name: connection.sql(f"FROM lake.{self.schema}.{name}").to_arrow_table()
                for name in TABLES
            }


class SqlMesh(OnDuckDB):
    """SQLMesh on DuckDB: incremental models by day, the weekly one with `lookback 6`."""

    name = "SQLMesh"
    project = "sqlmesh"
    requirements = ("sqlmesh==0.236.4", "duckdb==1.5.6")
    schema = "lake"

    def build(self, first: date, last: date) -> None:
        self.routine(last)

    def rebuild(self, first: date, last: date) -> None:
        days = ("--start", str(first), "--end", str(last))
        self._plan(last, "--restate-model", "lake.events", *days)

    def routine(self, last: date) -> None:
        self._plan(last)

    def change_code(self) -> None:
        self.replace("models/daily.sql", "max(customers)", "sum(customers)::BIGINT")

    def _plan(self, last: date, *options: str) -> None:
        now = ("--execution-time", str(last + timedelta(days=1)))
        self.run("sqlmesh", "plan", "--auto-apply", "--no-prompts", *options, *now)


class Dbt(OnDuckDB):
    """dbt on DuckDB: microbatch models by day, the weekly one with `lookback=6`."""

    name = "dbt microbatch"
    project = "dbt"
    requirements = ("dbt-core==1.10.23", "dbt-duckdb==1.10.1", "duckdb==1.5.6")
    schema = "main"

    def build(self, first: date, last: date) -> None:
        end = str(last + timedelta(days=1))
        days = ("--event-time-start", str(first), "--event-time-end", end)
        self.run("dbt", "run", "--profiles-dir", ".", *days)

    def rebuild(self, first: date, last: date) -> None:
        self.build(first, last)

    def routine(self, last: date) -> None:
        # Its lookback counts from today, and these days are of 2019: the same seven days by hand.
        self.build(last - timedelta(days=6), last)

    def change_code(self) -> None:
        self.replace("models/daily.sql", "max(customers)", "sum(customers)::BIGINT")


TOOLS: tuple[type[Tool], ...] = (Ours, SqlMesh, Dbt, PlainDagster)


def installed(tool: type[Tool], environments: Path) -> Path:
    """The Python of a tool's own environment, made if it is not there."""
    if not tool.requirements:
        return Path(sys.executable)
    folder = environments / tool.project
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *tool.requirements], check=True)
    return python
