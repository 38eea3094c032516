"""From a Dagster project and a lake that exist to a corrected, published and undone day, on real
servers.

After each act every table is compared with DuckDB, and `dg check defs` is typed.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.calendar import between
from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import Launched, asset_key
from tests.worlds.dg import dg, dg_project, environment_of_dg
from tests.worlds.grid import (
    BY_REGION,
    DAYS,
    DOWNSTREAM,
    EVENTS,
    OUR_TABLES,
    THEIR_ASSETS,
    UPSTREAM,
    WRONG,
    ZONE,
    Grid,
)
from tests.worlds.servers import environment_alone, servers_of
from tests.worlds.station import Station, eventually
from tests.worlds.suite import SAMPLE

pytestmark = pytest.mark.scale

LAST_FOLDER = DAYS[-1] + timedelta(days=1)
ALL = f"{DAYS[0]}..{DAYS[-1]}"


@pytest.fixture(scope="module")
def grid(tmp_path_factory, spark) -> Grid:
    """The folders, the project, and the table that plain Spark has written, with a wrong day."""
    root = tmp_path_factory.mktemp("grid")
    for name in ("weather", "newsletter", "landing/reference"):
        (root / name).mkdir(parents=True)
    for day in between(DAYS[0], DAYS[-1]):
        folder = Path("outage_events", f"year={day:%Y}", f"month={day:%m}", f"day={day:%d}")
        shutil.copytree(SAMPLE / folder, root / "landing" / folder)
    shutil.copy(SAMPLE / "regions.csv", root / "landing" / "reference")
    given = {"root": root, "zone": ZONE, "first": DAYS[0], "last": DAYS[-1], "end": LAST_FOLDER}
    files = {
        "defs/theirs.py": THEIR_ASSETS.format(**given),
        "defs/outages.py": OUR_TABLES.format(**given),
    }
    made = Grid(root, dg_project(root, "grid", files))
    write_their_table(made, spark)
    return made


def write_their_table(grid: Grid, spark) -> None:
    at = F.to_timestamp("_captured_at")
    customers = F.col("estCustAffected").cast("bigint")
    day = F.to_date(F.from_utc_timestamp(at, ZONE))
    rows = (
        spark.read.json(str(grid.landing / "outage_events"))
        .where("_op = 'I'")
        .select(
            day.alias("day"),
            F.col("outageNumber").alias("outage"),
            F.col("regionName").alias("region"),
            F.when(day == F.lit(WRONG), customers * 10).otherwise(customers).alias("customers"),
            at.alias("at"),
        )
        .where(F.col("day").between(F.lit(DAYS[0]), F.lit(DAYS[-1])))
    )
    rows.write.format("delta").partitionBy("day").save(str(grid.their_table))


class Journey:
    """The commands of a user in the project's folder."""

    def __init__(self, grid: Grid, station: Station) -> None:
        self.grid = grid
        self.station = station

    def check(self, *, is_corrected: bool) -> None:
        """Compare both tables with DuckDB, and load the project as Dagster does."""
        for table in (EVENTS, BY_REGION):
            assert self.grid.held(table) == self.grid.expected(table, is_corrected=is_corrected)
        dg_checks(self.grid)

    def check_release(self, *, is_corrected: bool) -> None:
        for table in (EVENTS, BY_REGION):
            expected = self.grid.expected(table, is_corrected=is_corrected)
            assert self.grid.released(table) == expected

    def states(self, table: str) -> set[str]:
        status = self.station.asked_json("status", "--target", table)
        return {day["state"] for day in status["tables"][table].values()}

    def materialize(self, asset: str) -> None:
        """Materialize all days of an ordinary asset, as its button in Dagster does."""
        span = {"start": str(DAYS[0]), "end": str(DAYS[-1])}
        selected = [{"assetKey": asset_key(asset), "partitions": {"ranges": [span]}}]
        params = {"partitionsByAssets": selected, "tags": []}
        launched = self.station.ask(documents.LAUNCH_BACKFILL, params=params)["backfillId"]
        backfill = Launched(launched, is_run=False)
        assert self.station.finished(backfill) == "COMPLETED_SUCCESS"

    def await_written(self, *, is_corrected: bool) -> None:
        """Wait until the asset downstream has written what it should."""
        expected = self.grid.expected(BY_REGION, is_corrected=is_corrected)
        eventually(
            lambda: self.grid.written() == expected, what="the asset downstream", patience=300
        )


def dg_checks(grid: Grid) -> None:
    env = environment_of_dg(grid.project / "src")
    assert "All definitions loaded successfully" in dg(
        "check", "defs", folder=grid.project, env=env
    )


@contextmanager
def journey_of(grid: Grid) -> Iterator[Journey]:
    home = grid.project / ".backfill"
    home.mkdir()
    env = environment_alone() | {
        "BACKFILL_LANDING": str(grid.landing),
        "PYTHONPATH": str(grid.project / "src"),
    }
    with servers_of(home, env, grid.project) as station:
        yield Journey(grid, station)


def test_a_wrong_day_of_an_adopted_table_is_corrected_published_and_taken_back(grid):
    dg_checks(grid)
    theirs = grid.parquet_files()
    with journey_of(grid) as at:
        station = at.station
        station.backfill("adopt", EVENTS, "--fingerprint", "--reason", "ours from now on")
        assert grid.parquet_files() == theirs
        assert at.states(EVENTS) == {"up to date (adopted)"}
        assert grid.held(EVENTS) == grid.expected(EVENTS, is_corrected=False)

        at.materialize(UPSTREAM)
        station.backfill("run", "--partitions", ALL, "--yes")
        assert grid.parquet_files() == theirs
        at.check(is_corrected=False)
        at.materialize(DOWNSTREAM)
        at.await_written(is_corrected=False)
        station.backfill("release", "--reason", "the first one")
        at.check_release(is_corrected=False)

        found = station.asked_json("evaluate", EVENTS, str(WRONG))
        changed = [row for row in grid.expected(EVENTS, is_corrected=True) if row[0] == WRONG]
        assert [day["changed"] for day in found["diff"]["tables"][0]["days"]] == [len(changed)]

        plan = station.asked_json(
            "plan", "--target", EVENTS, "--partitions", str(WRONG), "--force", "--downstream",
            "--into", "shadow",
        )  # fmt: skip
        reasons = plan["plan"]["reasons"]
        assert {table: [*days] for table, days in reasons.items()} == {
            EVENTS: [str(WRONG)],
            BY_REGION: [str(WRONG)],
        }
        assert plan["downstream"] == [DOWNSTREAM]
        station.backfill("run", plan["id"], "--yes")
        at.check(is_corrected=False)
        at.check_release(is_corrected=False)
        station.backfill("verify", code=4)
        station.backfill("verify", "--accept", "changes *", "--reason", "ten times too many")
        at.check_release(is_corrected=False)

        station.backfill("publish", "--downstream")
        at.check(is_corrected=True)
        at.check_release(is_corrected=True)
        at.await_written(is_corrected=True)

        station.backfill(
            "rollback", plan["id"], "--yes", "--downstream", "--reason", "the meters were right"
        )
        at.check(is_corrected=False)
        at.check_release(is_corrected=False)
        at.await_written(is_corrected=False)
        assert at.states(EVENTS) == {"up to date (adopted)"}
        assert grid.parquet_files().items() >= theirs.items()
