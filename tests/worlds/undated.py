"""A project with two tables without days, each read by a daily table. It is in a folder of its own.

What the daily tables should be, DuckDB says, from the delivered files.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.step.inputs import InputReader, deliveries
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.command_line import Done, backfill_main
from tests.worlds.deliveries import days
from tests.worlds.keyed_lake import KeyedLake
from tests.worlds.suite import environment_without_session

DAYS = days(*range(4))
REGIONS = "ref/regions"
TARIFFS = "ref/tariffs"
CHANGES = "raw/changes"
PLACED = "features/placed"
PRICED = "features/priced"
Rows = Sequence[Mapping[str, Any]]
MODULE = """
import json
from datetime import date
from pathlib import Path

import backfill_assets
from backfill_assets import JsonLines, Landing, field, reference, same_day, table

HERE = Path(__file__).parent
DELIVERED = Landing(
    "changes", format=JsonLines(), fields=[field("region STRING"), field("customers BIGINT")],
    fewest=0, unparsed_at_most=1, malformed_at_most=1,
)


def regions_now():
    return json.loads((HERE / "regions.json").read_text())


def tariffs_now():
    rows = json.loads((HERE / "tariffs.json").read_text())
    return [row | {"since": row["since"] and date.fromisoformat(row["since"])} for row in rows]


regions = reference(
    "ref/regions", source=regions_now, columns="region STRING, zone BIGINT", key=["region"],
    version="1",
)
tariffs = reference(
    "ref/tariffs", source=tariffs_now, columns="region STRING, tariff BIGINT, since DATE",
    key=["region"], valid_from="since", version="1",
)


@table(
    "raw/changes", partition_by="day", key=["region"], reads={"rows": DELIVERED}, version="1",
    columns="day DATE, region STRING, customers BIGINT",
)
def changes(rows):
    return rows.selectExpr("arrival_day AS day", "region", "customers")


@table(
    "features/placed", partition_by="day", key=["region"], version="1",
    columns="day DATE, region STRING, customers BIGINT, zone BIGINT",
    reads={"changes": same_day(changes), "regions": regions},
)
def placed(changes, regions):
    return changes.join(regions, "region").select("day", "region", "customers", "zone")


@table(
    "features/priced", partition_by="day", key=["region"], version="1",
    columns="day DATE, region STRING, cost BIGINT",
    reads={"changes": same_day(changes), "tariffs": tariffs},
)
def priced(changes, tariffs):
    by_day = changes.join(tariffs, ["day", "region"])
    return by_day.selectExpr("day", "region", "customers * tariff AS cost")


defs = backfill_assets.definitions(
    tables=[changes, regions, tariffs, placed, priced],
    first_day=date(2019, 8, 15), last_day=date(2019, 8, 18),
)
"""
ROWS = """
    WITH changes AS (
        SELECT CAST(regexp_extract(filename, '\\d+-\\d+-\\d+') AS DATE) AS day, region, customers
        FROM read_json('{root}/landing/changes/*.jsonl', filename = true)
    ), regions AS (FROM read_json('{root}/regions.json')),
    tariffs AS (
        SELECT region, tariff, coalesce(CAST(since AS DATE), DATE '0001-01-01') AS since
        FROM read_json('{root}/tariffs.json')
    )
"""
EXPECTED = {
    CHANGES: "SELECT day, region, customers FROM changes",
    REGIONS: "SELECT region, zone FROM regions",
    TARIFFS: "SELECT region, tariff, nullif(since, DATE '0001-01-01') AS since FROM tariffs",
    PLACED: "SELECT day, region, customers, zone FROM changes JOIN regions USING (region)",
    PRICED: """
        SELECT day, region, customers * arg_max(tariff, since) AS cost
        FROM changes JOIN tariffs USING (region)
        WHERE since <= day GROUP BY day, region, customers
    """,
}
TWO_REGIONS = [{"region": "Alamo", "zone": 3}, {"region": "Chico", "zone": 5}]
THREE_TARIFFS = [
    {"region": "Alamo", "tariff": 1, "since": "2019-01-01"},
    {"region": "Alamo", "tariff": 2, "since": str(DAYS[2])},
    {"region": "Chico", "tariff": 3, "since": None},
]


@dataclass(frozen=True)
class Undated:
    """The project in the folder `root`, its landing area and its lake."""

    root: Path

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    @property
    def workspace(self) -> Workspace:
        return open_workspace(
            self.root, home=self.root / "home", lake="", landing=str(self.landing), last_day=""
        )

    def lay_out(self, edited: tuple[str, str] = ("", "")) -> Undated:
        """Write the project, with the first text `edited` replaced by the second."""
        (self.root / "undated.py").write_text(MODULE)
        self.edit(*edited)
        (self.root / "pyproject.toml").write_text('[tool.backfill]\nproject = "undated"\n')
        (self.landing / "changes").mkdir(parents=True)
        for n, at in enumerate(DAYS):
            rows = [{"region": "Alamo", "customers": 10 + n}, {"region": "Chico", "customers": 3}]
            lines = "".join(f"{json.dumps(row)}\n" for row in rows)
            (self.landing / "changes" / f"{at}.jsonl").write_text(lines)
        return self.change(TWO_REGIONS, THREE_TARIFFS)

    def edit(self, old: str, new: str) -> None:
        module = self.root / "undated.py"
        text = module.read_text()
        assert old in text
        module.write_text(text.replace(old, new, 1))

    def commit(self) -> None:
        """Commit the project to a new git repository."""
        (self.root / ".gitignore").write_text("home\nlanding\n")
        git = ["git", "-C", str(self.root), "-c", "user.name=ada", "-c", "user.email=ada@x.invalid"]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin"]):
            subprocess.run([*git, *command], check=True)

    def change(self, regions: Rows | None = None, tariffs: Rows | None = None) -> Undated:
        """Give the tables without days these rows."""
        for name, rows in (("regions", regions), ("tariffs", tariffs)):
            if rows is not None:
                (self.root / f"{name}.json").write_text(json.dumps(rows))
        return self

    def write(self, plan: Plan | None = None) -> Undated:
        """Write what is expected of each day, and its builds. No Spark.

        Of a plan, its days, into its shadow.
        """
        workspace = workspace_of(plan, self.workspace) if plan else self.workspace
        lake = KeyedLake(Path(workspace.lake.root), workspace.tables)
        accepted = dict(workspace.lake.latest(dict.fromkeys(workspace.names)).accepted)
        for table in workspace.tables:
            found = self.query(table.name)
            for at in sorted(plan.days_of(table.name)) if plan else table.days_of(DAYS):
                rows = [row for row in found.to_pylist() if row.pop("day", at) == at]
                delivered: Any = deliveries(table, [at], workspace.area) if table.sources() else {}
                since = {str(row["since"] or ""): repr(row) for row in rows if "since" in row}
                accepted[table.name, at] = lake.write(
                    table,
                    at,
                    rows,
                    into=workspace.lake,
                    run="run-2" if plan else "run-1",
                    plan=plan.id if plan else "",
                    inputs=InputReader(table, accepted, workspace.calendar).fingerprints(at),
                    delivered=delivered[at].fingerprint if delivered else "",
                    day_fingerprints=since,
                )
        return self

    def type(self, *arguments: str, **settings: str) -> Done:
        """The command `backfill`, typed in the folder of the project."""
        given = {
            "BACKFILL_LANDING": str(self.landing),
            "BACKFILL_DAGSTER_URL": "http://x.invalid:9",
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.root)
            patch.setenv("COLUMNS", "132")
            return backfill_main(*arguments, home=self.root / "home", **given | settings)

    def type_elsewhere(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command in a process of its own, which has not imported the project."""
        given = {
            "BACKFILL_HOME": str(self.root / "home"),
            "BACKFILL_LANDING": str(self.landing),
        }
        command = [sys.executable, "-m", "backfill_assets.cli", *arguments]
        return subprocess.run(
            command,
            cwd=self.root,
            env=environment_without_session() | given,
            check=True,
            capture_output=True,
            text=True,
        )

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        found = DeltaTable(self.workspace.lake.path(name)).to_pyarrow_table()
        return _sorted(found.select(self.query(name).column_names))

    def read(self, name: str, release: int | None = None) -> list[tuple[Any, ...]]:
        """The rows of a table in a release, as readers get them."""
        root = self.workspace.lake.root
        opened = open_channel(root) if release is None else Releases(root).readable(release)
        found = ReleasedTable(root, opened, name).dataset().to_table()
        return _sorted(found.select(self.query(name).column_names))

    def status(self) -> set[str]:
        """The states of all days."""
        tables = json.loads(self.type("status", "--json").stdout)["tables"]
        return {found["state"] for of in tables.values() for found in of.values()}

    def query(self, name: str) -> pa.Table:
        """The rows, in the same order each time: a day's fingerprint depends on it."""
        query = ROWS.format(root=self.root) + EXPECTED[name] + " ORDER BY ALL"
        return duckdb.connect().sql(query).to_arrow_table()

    def expected(self, name: str) -> list[tuple[Any, ...]]:
        return _sorted(self.query(name))


def _sorted(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*rows.to_pydict().values(), strict=True), key=repr)
