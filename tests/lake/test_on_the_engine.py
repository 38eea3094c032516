"""A Spark Connect engine, on which the tests run, against a driver of a run's own."""

from dataclasses import replace

<<<<<<< HEAD
import psutil
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.calendar import Calendar
from backfill_assets.errors import UsageError
from backfill_assets.lake.engine import Engine, engine_command
from backfill_assets.servers.child import free_port, is_taken, process_tree, wait_or_kill
from backfill_assets.settings import settings
from tests.conftest import SMALL
from tests.deliveries import days
from tests.world import RAW, SAMPLE, World, assert_same

PROJECT = Path(__file__).resolve().parents[2]
THREE = days(0, 1, 2)
# What a session of this kind could do otherwise: functions of rows, the write modes, nothing twice, bad deliveries.
ON_BOTH = [
    "tests/datasets",
    "tests/step/test_rerun.py",
    "-k",
    "datasets or merge or append or computes_and_writes_nothing or forced",
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory, spark) -> Iterator[Mapping[str, str]]:
    """The environment of a client of an engine of this test's own."""
    folder, made = tmp_path_factory.mktemp("engine"), Engine(free_port())
    environment = {**os.environ, **made.environment(), "BACKFILL_SPARK_REMOTE": made.remote}
    with (folder / "log").open("wb") as log:
        command = engine_command(settings(), made, folder)
        server = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    up = Retrying(stop=stop_after_delay(120), wait=wait_fixed(0.2), retry=retry_if_result(lambda there: not there))
    try:
        up(is_taken, made.port)
        yield environment
    finally:
        left = process_tree(server.pid) if psutil.pid_exists(server.pid) else []
        server.terminate()
        wait_or_kill(left)


def on_it(engine: Mapping[str, str], *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env=dict(engine), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def build(root: str) -> None:
    """What the engine's client does: three days of every table."""
    from backfill_assets.lake.session import start

    spark = start(settings())
=======
from tests.lake.sessions import THREE, in_a_process, three_days
from tests.world import RAW, assert_same


def test_every_table_has_the_same_rows_and_fingerprints_on_both_kinds_of_session(spark, tmp_path):
>>>>>>> 705b0fc (Tests: one Spark engine for the whole session, lakes built once and shared, the demo's lake for the oracle; profile tests (slice 1, to be verified))
    assert "connect" in type(spark).__module__
    on_the_engine = three_days(str(tmp_path / "engine"), spark)
    assert "connect" not in in_a_process("three_days_on_a_driver_of_its_own", str(tmp_path / "driver"))
    assert sorted(on_the_engine.fingerprints(RAW)) == THREE
    assert_same(on_the_engine, replace(on_the_engine, root=tmp_path / "driver"))


def test_one_plans_settings_hold_for_its_session_only_and_those_of_the_engine_are_refused(spark):
    plan = in_a_process("settings_of_one_plan")
    assert plan["a session of its own"]
    assert plan["held"] == plan["after the refusals"] == plan["wanted"]
    assert plan["of another client"] == plan["for all"]
    assert plan["for all"] == {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "1"}
    late, unknown, no_number = plan["refusals"]
    assert late.startswith("spark.executor.instances=9 cannot be set for one plan: the engine at REMOTE is running already")
    assert unknown.startswith("spark.sql.shufle.partitions=8 cannot be set for one plan")
    assert no_number.startswith("Spark refuses a setting. ")
    assert "'many'" in no_number
