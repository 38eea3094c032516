"""A project of one's own, from nothing: the README's example, typed as it stands there."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from backfill_assets.dagster_client.client import Dagster
from tests.worlds.command_line import README
from tests.worlds.servers import Up, environment_alone
from tests.worlds.station import Station

pytestmark = [pytest.mark.long, pytest.mark.servers]

SETUP = README.block_with("bash", "pyproject.toml")
COMMANDS = README.block_with("bash", "backfill up")
MODULE = README.block_with("python", "definitions(")

TABLES = ["staging/orders", "features/store_sales"]

# The same tables, computed by DuckDB from the delivered files.
LINES = (
    "SELECT regexp_extract(filename, '([0-9-]{10}).jsonl', 1)::DATE AS day, * FROM"
    " read_json('{}/*.jsonl', filename = true)"
)
STAGING = f'SELECT DISTINCT day, "order", store, cents FROM ({LINES})'
FEATURES = f"""
    SELECT day, store, sum(cents)::BIGINT AS cents,
        (SELECT sum(w.cents)::BIGINT FROM ({STAGING}) w
            WHERE w.store = o.store AND w.day BETWEEN o.day - 6 AND o.day)
    FROM ({STAGING}) o GROUP BY day, store
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's folder, made by the README's commands; its module is the README's too."""
    empty = tmp_path_factory.mktemp("own")
    subprocess.run(["bash", "-ec", SETUP], cwd=empty, check=True)
    (empty / "shop" / "shop.py").write_text(MODULE)
    return empty / "shop"


@pytest.fixture(scope="module")
def station(folder: Path, spark: object) -> Iterator[Station]:
    """The project with its servers, which `backfill up` starts."""
    env = environment_alone()
    home = folder / ".backfill"
    up = Up(home, folder, env)
    client = Dagster(f"http://127.0.0.1:{up.port}")
    try:
        yield Station(client, home, folder / "deliveries", folder, env, up)
        up.end()
    finally:
        if up.process and up.process.poll() is None:
            up.process.terminate()
            up.process.wait(timeout=90)


@pytest.fixture(scope="module")
def printed(station: Station) -> dict[str, str]:
    """What each command of the README prints, by verb, and `status` once more at the end."""
    verbs: dict[str, str] = {}
    for line in [*COMMANDS.splitlines(), "backfill status"]:
        _, verb, *arguments = shlex.split(line, comments=True)
        if verb == "up":
            station.home.mkdir(exist_ok=True)
            station.up.start()
        else:
            verbs[f"{verb} again" if verb in verbs else verb] = station.backfill(verb, *arguments)
    return verbs


@pytest.fixture(scope="module")
def taken_back(folder: Path, station: Station, printed: dict[str, str]) -> dict[str, str]:
    """What is printed when a wrong delivery is built, rolled back, and put right; "wrong": the
    sales of its day meanwhile.
    """
    delivery = folder / "deliveries" / "orders" / "2024-06-02.jsonl"
    right = delivery.read_text()
    delivery.write_text(right + '{"order": "a4", "store": "north", "cents": 999999}\n')
    built = station.backfill(
        "run",
        "--partitions",
        "2024-06-01..2024-06-02",
        "--only",
        "outdated",
        "--downstream",
        "--into",
        "live",
        "--yes",
    )
    (plan_id,) = re.findall(r"Plan (\w+): done", built)
    wrong = str(sorted(str(row[2]) for row in rows(folder, "features/store_sales")))
    rolled_back = station.backfill("rollback", plan_id, "--yes", "--reason", "a wrong delivery")
    delivery.write_text(right)
    after = {f"{verb} after": station.backfill(verb) for verb in ("status", "reconcile", "log")}
    return after | {"wrong": wrong, "rollback": rolled_back, "plan id": plan_id}


@pytest.fixture(scope="module")
def in_a_shadow(folder: Path, station: Station, printed: dict[str, str]) -> dict[str, str]:
    """What is printed when a late order is built in a shadow, compared, verified, published to each
    channel, and taken back.

    "live meanwhile" and "live published": the sales of its day.
    """
    delivery = folder / "deliveries" / "orders" / "2024-06-02.jsonl"
    right = delivery.read_text()
    delivery.write_text(right + '{"order": "a5", "store": "south", "cents": 70}\n')
    flags = ("--only", "outdated", "--downstream", "--into", "shadow", "--yes")
    said = {"shadow": station.backfill("run", "--partitions", "2024-06-01..2024-06-02", *flags)}
    said["refused"] = station.backfill("publish", code=4)
    said["live meanwhile"] = sales_of_the_second_day(folder)
    said |= {"diff": station.backfill("diff", *re.findall(r"Plan (\w+) is built", said["shadow"]))}
    verdict = json.loads(station.backfill("verify", "--json", code=4))
    said["undecided"] = json.dumps(
        [line["name"] for line in verdict["lines"] if line["outcome"] == "decision"]
    )
    said["failed"] = json.dumps([line for line in verdict["lines"] if line["outcome"] == "failed"])
    accept = [word for name in json.loads(said["undecided"]) for word in ("--accept", name)]
    said["verified"] = station.backfill("verify", *accept, "--reason", "one order of two is new")
    said["candidate"] = station.backfill(
        "preview", "--channel", "candidate", "--reason", "a late order"
    )
    said["stable"] = station.backfill("publish", verdict["plan"])
    said["live published"] = sales_of_the_second_day(folder)
    said["reconcile published"] = station.backfill("reconcile")
    said["taken back"] = station.backfill("rollback", verdict["plan"], "--yes")
    said["live taken back"] = sales_of_the_second_day(folder)
    delivery.write_text(right)
    return said


def sales_of_the_second_day(folder: Path) -> str:
    sales = [row for row in rows(folder, "features/store_sales") if str(row[0]) == "2024-06-02"]
    return str(sorted((str(row[1]), row[2]) for row in sales))


def rows(folder: Path, table: str) -> list[tuple[object, ...]]:
    committed = DeltaTable(str(folder / ".backfill" / "lake" / table)).to_pyarrow_table()
    return [tuple(row.values()) for row in committed.to_pylist()]


def test_status_and_plan_find_the_project_and_its_deliveries(printed):
    assert re.findall(r"^(\S+)  2 missing$", printed["status"], re.MULTILINE) == TABLES
    assert re.findall(r"│ (\S+) +│ 2 +│ 2024-06-01\.\.2024-06-02", printed["plan"]) == TABLES


def test_after_the_run_every_day_is_up_to_date(printed):
    assert re.findall(r"^(\S+)  2 up to date$", printed["status again"], re.MULTILINE) == TABLES


@pytest.mark.parametrize(
    ("table", "query"),
    [
        pytest.param("staging/orders", STAGING, id="orders"),
        pytest.param("features/store_sales", FEATURES, id="sales"),
    ],
)
def test_the_tables_hold_what_duckdb_computes_from_the_delivered_files(
    folder, printed, table, query
):
    expected = duckdb.execute(query.replace("{}", f"{folder}/deliveries/orders")).fetchall()
    assert len(expected) == 3
    assert sorted(rows(folder, table), key=repr) == sorted(expected, key=repr)


@pytest.mark.nightly
def test_a_wrong_delivery_that_was_built_is_taken_back_in_every_table_and_in_dagster(taken_back):
    assert taken_back["wrong"] == "['1000899', '1250', '480']"
    shown = re.findall(
        r"^  (\S+)  (2024-06-02)$", taken_back["rollback"].partition("Plan ")[0], re.MULTILINE
    )
    assert shown == [(table, "2024-06-02") for table in TABLES]
    assert (
        f"Plan {taken_back['plan id']} is rolled back: 2 partition(s) have the rows from before it."
        in taken_back["rollback"]
    )
    assert "Dagster still shows" not in taken_back["rollback"]
    # The delivery is as it was, too: the rows put back are those that it comes to.
    assert re.findall(r"^(\S+)  2 up to date$", taken_back["status after"], re.MULTILINE) == TABLES
    assert (
        "The ledger, the tables and Dagster agree on 4 partition(s)."
        in taken_back["reconcile after"]
    )
    assert f"rollback of plan {taken_back['plan id']}: a wrong delivery" in " ".join(
        taken_back["log after"].split()
    )


@pytest.mark.nightly
def test_a_rebuild_in_a_shadow_is_seen_by_nobody_until_it_is_verified_and_published(in_a_shadow):
    assert "is built in its shadow. No reader sees it." in in_a_shadow["shadow"]
    assert "was not verified. Nothing was published." in in_a_shadow["refused"]
    assert in_a_shadow["live meanwhile"] == "[('north', 900)]" == in_a_shadow["live taken back"]
    assert re.search(r"staging/orders .*\b1\b", in_a_shadow["diff"])
    assert json.loads(in_a_shadow["failed"]) == []
    assert "changes staging/orders" in json.loads(in_a_shadow["undecided"])
    assert ": passed (" in in_a_shadow["verified"]
    assert "Readers of candidate get it now. Nothing of it is in live." in in_a_shadow["candidate"]
    assert " is published as release " in in_a_shadow["stable"]
    assert in_a_shadow["live published"] == "[('north', 900), ('south', 70)]"
    assert (
        "The ledger, the tables and Dagster agree on 4 partition(s)."
        in in_a_shadow["reconcile published"]
    )


def test_everything_is_in_the_projects_folder(folder, printed):
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {
        "pyproject.toml", ".env", "shop.py", "deliveries", ".backfill",
    }  # fmt: skip
