"""One Spark engine a test session, and a world (a lake and a landing area) a test."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.lake.spark.session import start_session
from backfill_assets.settings import read_settings
from tests.worlds.deliveries import arriving, day
from tests.worlds.golden import TESTS, Golden
from tests.worlds.kept import keep
from tests.worlds.outages import EIGHT, FOUR, World
from tests.worlds.servers import demo_once
from tests.worlds.services import PostgresServer, postgres_server
from tests.worlds.suite import SAMPLE, connect, made_once, store_classes

NOBODY = 65534

keep()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """This process's session on the one engine.

    Tests that start a Spark elsewhere ask for it too: after it, Delta's jars are on this machine.
    """
    session = start_session(read_settings(spark_remote=connect()))
    store_classes(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def nobody() -> Callable[[Path], AbstractContextManager[None]]:
    """Runs a block as a user who owns nothing, for root may read everything. `path` is opened to
    all until the block ends.

    The folders above it are opened for good: they are the test session's own, and other processes
    of it need them open too.
    """
    user = os.geteuid()
    for needed in (Path(sys.prefix, "bin"), Path(__file__)):
        for folder in needed.parents:
            if user == 0 and not folder.stat().st_mode & stat.S_IXOTH:
                pytest.skip(
                    f"{folder} is closed to other users, so that none could run what it holds"
                )

    @contextmanager
    def as_nobody(path: Path) -> Iterator[None]:
        mode = path.stat().st_mode
        for folder in (path, *path.parents):
            if folder.stat().st_uid == user:
                folder.chmod(folder.stat().st_mode | 0o555)
        try:
            if user == 0:
                os.seteuid(NOBODY)
            yield
        finally:
            os.seteuid(user)
            path.chmod(mode)

    return as_nobody


@pytest.fixture
def golden(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Golden:
    """Compares texts with the golden file of the test's folder."""
    test = f"{request.path.name}::{request.node.name}"
    shown = {
        str(tmp_path): "<tmp>",
        str(tmp_path_factory.getbasetemp()): "<tmp>",
        str(SAMPLE): "<sample>",
        str(TESTS.parent): "<repository>",
    }
    return Golden(request.path.parent, test, shown, request.config.getoption("--golden"))


@pytest.fixture
def world(tmp_path: Path, spark: SparkSession) -> World:
    """A lake with nothing in it, and a landing area with nothing in it."""
    return World(tmp_path / "lake", tmp_path / "landing", lambda: spark)


@pytest.fixture(scope="session")
def sixty(spark: SparkSession) -> World:
    """All 60 days of the sample, as the demo built them on real servers. Read only."""
    home = demo_once().home
    return World(home / "lake", home / "landing", lambda: spark)


def built_once(
    name: str, spark: SparkSession, calendar: Calendar, fill: Callable[[World], object]
) -> World:
    """A world that `fill` has delivered and built, in whichever process came first. Read only."""

    def on(root: Path) -> World:
        return World(root / "lake", root / "landing", lambda: spark, calendar)

    return on(made_once(name, lambda root: fill(on(root))))


@pytest.fixture(scope="session")
def eight(spark: SparkSession) -> World:
    """Eight days of every table, built in one run on a calendar of those days. Read only."""
    return built_once(
        "eight", spark, Calendar(EIGHT[0], EIGHT[-1]), lambda world: world.deliver(EIGHT).run(EIGHT)
    )


@pytest.fixture(scope="session")
def once(spark: SparkSession) -> World:
    """Four days of every table, three outages a day. Read only."""

    def fill(world: World) -> None:
        for n in range(4):
            world.write(day(n), arriving(n, 0, 1, 2, began=n))
        world.run(FOUR, run="first")

    return built_once("four", spark, Calendar(FOUR[0], FOUR[-1]), fill)


@pytest.fixture
def built(once: World, tmp_path: Path) -> World:
    """The same four days, to be changed."""
    return once.copied(tmp_path)
