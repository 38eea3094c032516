"""One Spark session a test process, and a world (a lake and a landing area) a test.

The settings of the process are set here, before the package is first imported. With BACKFILL_SPARK_REMOTE in the
environment, everything below runs on that Spark Connect server instead of a driver of its own.
"""

import json
import os
import tempfile
from pathlib import Path

REMOTE = os.environ.get("BACKFILL_SPARK_REMOTE", "")
SAMPLE = Path(__file__).resolve().parent.parent / "backfill_assets" / "sample"
SMALL = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
}
for name in [name for name in os.environ if name.startswith("BACKFILL_") and name != "BACKFILL_SPARK_JARS"]:
    del os.environ[name]
os.environ |= {
    "BACKFILL_HOME": tempfile.mkdtemp(prefix="backfill-tests-"),
    "BACKFILL_LANDING": str(SAMPLE),
    "BACKFILL_LAST_DAY": "2019-10-13",
    "BACKFILL_SPARK_REMOTE": REMOTE,
    "BACKFILL_SPARK_CONF": json.dumps(SMALL),
}

from collections.abc import Callable, Iterator  # noqa: E402

import hypothesis  # noqa: E402
import pytest  # noqa: E402
from filelock import FileLock  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from backfill_assets.calendar import Calendar  # noqa: E402
from backfill_assets.lake.session import start  # noqa: E402
from backfill_assets.lake.store import Lake  # noqa: E402
from backfill_assets.settings import read_settings  # noqa: E402
from tests.deliveries import arriving, day  # noqa: E402
from tests.world import EIGHT, FOUR, World  # noqa: E402

# An example takes as long as a busy machine makes it; one that fails is printed so that it can be tried again.
hypothesis.settings.register_profile("here", deadline=None, print_blob=True)
hypothesis.settings.load_profile("here")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """This process's one session. Tests that start a Spark elsewhere ask for it too: after it, Delta's jars are there.

    On a new machine the first Spark fetches them, into a cache made for one at a time; so the processes take turns.
    """
    with FileLock(tmp_path_factory.getbasetemp().parent / "a-spark-starts.lock"):
        session = start(read_settings())
    yield session
    session.stop()


@pytest.fixture
def new_lake(tmp_path: Path) -> Callable[[], Lake]:
    """Fresh lakes, as many as asked for."""
    made: list[Lake] = []

    def new() -> Lake:
        made.append(Lake(str(tmp_path / f"lake{len(made)}")))
        return made[-1]

    return new


@pytest.fixture
def world(tmp_path: Path, spark: SparkSession) -> World:
    """A lake with nothing in it, and a landing area with nothing in it."""
    return World(tmp_path / "lake", tmp_path / "landing", lambda: spark)


@pytest.fixture(scope="session")
def sixty(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> World:
    """All 60 days of the sample, built in one run. Read only."""
    built = World(tmp_path_factory.mktemp("sixty") / "lake", SAMPLE, lambda: spark)
    built.run(built.calendar.days())
    return built


@pytest.fixture(scope="session")
def eight(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> World:
    """Eight days of every table, built in one run on a calendar of those days. Read only."""
    root = tmp_path_factory.mktemp("eight")
    built = World(root / "lake", root / "landing", lambda: spark, Calendar(EIGHT[0], EIGHT[-1])).deliver(EIGHT)
    built.run(EIGHT)
    return built


@pytest.fixture(scope="session")
def once(tmp_path_factory, spark) -> World:
    """Four days of every table, three outages a day. Read only."""
    root = tmp_path_factory.mktemp("once")
    made = World(root / "lake", root / "landing", lambda: spark, Calendar(FOUR[0], FOUR[-1]))
    for n in range(4):
        made.write(day(n), arriving(n, 0, 1, 2, began=n))
    made.run(FOUR, run="first")
    return made


@pytest.fixture
def built(once, tmp_path) -> World:
    """The same four days, to be changed."""
    return once.copied(tmp_path)
