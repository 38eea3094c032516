"""The whole story of a plan in an object store: from a shadow to readers, and back.

Deliveries, tables and records are on versitygw. DuckDB computes what the tables must hold from the
files that were delivered.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import backfill_assets
from backfill_assets.calendar import between
from backfill_assets.lake.delta import open_table
from backfill_assets.verify.checklist import CheckOutcome
from backfill_assets.verify.verify import Verdicts
from tests.worlds.outages import ORACLE_TABLES, RAW, differences, oracle_of
from tests.worlds.s3 import S3, s3_server
from tests.worlds.servers import (
    deliver,
    environment,
    redeliver,
    servers_of,
    with_databases,
)
from tests.worlds.station import FIRST, Station, spans

pytestmark = pytest.mark.nightly

LAST = FIRST + timedelta(days=2)
DAYS = list(between(FIRST, LAST))
CHANGED = FIRST + timedelta(days=1)
ALL = ("--partitions", f"{FIRST}..{LAST}", "--yes")


@dataclass(frozen=True)
class Story:
    """Servers whose lake and landing area are in `store`."""

    station: Station
    store: S3

    @property
    def live(self) -> dict[str, pa.Table]:
        """The rows of live, read without Spark."""
        tables = {name: open_table(self.station.lake.path(name)) for name in ORACLE_TABLES}
        return {name: table.to_pyarrow_table() for name, table in tables.items() if table}

    @property
    def released(self) -> dict[str, pa.Table]:
        """The rows that readers of the newest release get."""
        return {name: backfill_assets.read(name).to_table() for name in ORACLE_TABLES}

    def run(self, *arguments: str) -> dict[str, Any]:
        """Plan these arguments and carry the plan out."""
        end: dict[str, Any] = self.station.asked_json("run", *ALL, *arguments)
        assert end["ending"] == "done", end
        return end


@pytest.fixture
def story(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Story]:
    home = tmp_path_factory.mktemp("story")
    deliver(home / "landing", DAYS)
    with s3_server(tmp_path_factory.mktemp("store")) as store:
        places = {
            "BACKFILL_LAKE": store.place("lake"),
            "BACKFILL_LANDING": store.upload(home / "landing", "landing"),
        }
        for name, value in (store.environment() | places).items():
            monkeypatch.setenv(name, value)
        env = environment(home, LAST) | store.environment() | places
        with servers_of(home, env) as station:
            yield Story(station, store)


def assert_computed_from(landing: Path, rows: dict[str, pa.Table]) -> None:
    """All tables hold what DuckDB computes from the files in `landing`."""
    with oracle_of(landing, FIRST, LAST) as oracle:
        wrong = {name: differences(oracle, name, rows[name])[:3] for name in ORACLE_TABLES}
    assert wrong == {name: [] for name in ORACLE_TABLES}


def test_a_plan_goes_from_a_shadow_to_readers_and_back(story):
    station = story.station
    landing = station.landing
    story.run("--into", "live", "--reason", "the first days")
    assert_computed_from(landing, story.live)

    before = Path(shutil.copytree(landing, station.home / "before"))
    redeliver(station, CHANGED)
    story.store.upload(landing, "landing")
    outdated = ("--only", "outdated", "--downstream", "--into", "shadow", "--canary", "0")
    plan = story.run(*outdated, "--reason", "a delivery was corrected")["plan"]
    assert_computed_from(before, story.live)

    station.started("verify", plan).communicate()
    verdict = Verdicts(station.lake.root).newest(plan)
    assert verdict
    undecided = [each.name for each in verdict.lines if each.outcome == CheckOutcome.DECISION]
    accepted = [word for name in undecided for word in ("--accept", name)]
    station.backfill("verify", plan, *accepted, "--reason", "the rows that were corrected")
    station.backfill("publish", plan)
    assert_computed_from(landing, story.live)
    assert_computed_from(landing, story.released)

    station.backfill("rollback", plan, "--yes", "--reason", "the correction was wrong")
    assert_computed_from(before, story.live)
    station.backfill("maintain", "--apply")
    assert_computed_from(before, story.live)

    station.up.end()
    shutil.rmtree(station.home / "dagster")
    with_databases(station.home)
    station.up.start()
    assert station.materialized(RAW) == ""
    station.backfill("reconcile", code=1)
    station.backfill("reconcile", "--repair")
    assert " agree on " in station.backfill("reconcile")
    assert station.materialized(RAW) == spans(DAYS)
    assert_computed_from(before, story.live)
