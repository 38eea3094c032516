"""A table that another program keeps in S3 is adopted, corrected, published and forgotten.

Spark loads S3's jars when its process starts, so the story is a process of its own.
"""

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backfill_assets.calendar import Calendar
from backfill_assets.lake.maintenance import maintain
from backfill_assets.lake.object_store import delta_options, store_at
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.spark.session import open_session, session_conf
from backfill_assets.plan.status import State
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.tables.columns import types_of
from backfill_assets.verify.verify import require_verified
from tests.worlds.adopted import Adopting
from tests.worlds.market import CLOSES, QUOTES, closes_of, no_spark, quotes_of
from tests.worlds.s3 import s3_server
from tests.worlds.servers import PROJECT
from tests.worlds.small_lake import verdict_of
from tests.worlds.suite import environment_without_session

DAYS = [date(2024, 6, n) for n in range(3, 7)]
CORRECTED = DAYS[2]


@pytest.mark.parametrize(
    "lake",
    [
        pytest.param("s3://tests/lake", id="in the store", marks=pytest.mark.scale),
        pytest.param("", id="on a disk", marks=pytest.mark.nightly),
    ],
)
def test_a_table_in_a_store_is_adopted_corrected_and_forgotten(lake, tmp_path):
    with s3_server(tmp_path) as store:
        ran = subprocess.run(
            [sys.executable, "-m", "tests.scale.test_adopted_in_a_store", str(tmp_path), lake],
            cwd=PROJECT,
            env=environment_without_session() | store.environment(),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert ran.stdout.endswith("done\n"), ran.stdout + ran.stderr[-8000:]


def story(root: Path, lake: str) -> None:
    place = "s3://tests/warehouse/quotes"
    quotes = replace(quotes_of(None, rules=[]), path=place)
    tables = (quotes, closes_of(quotes, rules=[]))
    market = Adopting(root, no_spark, tables, Calendar(DAYS[0], DAYS[-1]), Path(place), lake)
    workspace = market.workspace
    spark = open_session(session_conf(workspace.settings, workspace.packages))
    market.spark = lambda: spark
    market.deliver(*DAYS)
    written(market, place)
    first = market.delivered()

    market.adopt(as_of_code=True, fingerprint=True)
    market.run(DAYS, [CLOSES])
    assert market.in_duckdb(CLOSES) == market.in_duckdb(QUOTES) == first
    assert isinstance(release_live(workspace, who="sensor"), Released)

    market.deliver(CORRECTED, rows=3, cents=250)
    assert market.states(QUOTES)[State.SOURCE_CHANGED] == [CORRECTED]
    plan = market.built_in_shadow(partitions="all")
    assert market.in_duckdb(QUOTES) == first
    verdict_of(plan, workspace)
    approve = require_verified(plan, workspace)
    assert Publication(plan, workspace, "ada", "corrected").publish(approve).release
    assert market.in_duckdb(QUOTES) == market.in_duckdb(CLOSES) == market.delivered()

    assert roll_back(plan, workspace, who="ada", reason="a wrong file").release
    assert market.in_duckdb(QUOTES) == market.in_duckdb(CLOSES) == first
    later = datetime.now(UTC) + timedelta(days=500)
    done = maintain(workspace.lake, 30, later, "ada")
    assert [table.problem for table in done.tables if table.problem] == []
    assert market.in_duckdb(QUOTES) == first

    market.tables = (quotes,)
    market.adopt(undo=True, partitions=f"{DAYS[0]}..{DAYS[-1]}")
    assert market.accepted() == {}
    assert market.in_duckdb(QUOTES) == first
    there = listed(place)
    maintain(workspace.lake, 30, later, "ada")
    assert listed(place) == there
    release = Releases(workspace.lake.root).newest()
    assert release
    rows = ReleasedTable(workspace.lake.root, release, QUOTES).dataset().to_table()
    assert rows.num_rows == len(first)


def written(market: Adopting, place: str) -> None:
    """The delivered rows in a table, as another program writes them."""
    texts = pa.map_(pa.string(), pa.string())
    kinds = {"arrival_day": pa.date32(), "cents": pa.int64(), "unparsed": texts}
    kinds |= {"unknown_fields": texts}
    columns = types_of(market.table(QUOTES).columns)
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
    names = ("arrival_day", "symbol", "cents")
    lines = [dict(zip(names, row, strict=True)) for row in market.delivered()]
    rows = pa.Table.from_pylist(lines, schema=schema)
    write_deltalake(place, rows, partition_by=["arrival_day"], storage_options=delta_options(place))


def listed(place: str) -> set[tuple[str, str | None]]:
    """The objects of a table, with their contents' tags."""
    return {(o["path"], o["e_tag"]) for part in obstore.list(store_at(place)) for o in part}


if __name__ == "__main__":
    story(Path(sys.argv[1]), sys.argv[2])
    # Threads of Arrow may not have ended.
    print("done", flush=True)
    os._exit(0)
