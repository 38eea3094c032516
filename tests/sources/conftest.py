"""Servers and tables that tests of sources ask: of a broker, one for all that a process runs."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from backfill_assets.sources.http.client import RetryPolicy
from backfill_assets.sources.postgres.source import PostgresTable
from tests.worlds import weather as weather_service
from tests.worlds.deliveries import day
from tests.worlds.golden import Golden
from tests.worlds.services import (
    CREDENTIALS,
    NAMES,
    Broker,
    Bucket,
    PostgresServer,
    Topic,
    broker,
    moto_server,
    postgres_table,
)
from tests.worlds.weather import Clock


@pytest.fixture
def refused(golden: Golden) -> Callable[..., str]:
    """Makes a call that raises this error, and compares its text, which is returned."""

    def compare(
        call: Callable[[], object],
        part: str = "",
        kind: type[Exception] = ValueError,
        **values: object,
    ) -> str:
        with pytest.raises(kind) as raised:
            call()
        text = str(raised.value)
        golden(text, part, "", **values)
        return text

    return compare


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def weather() -> Iterator[weather_service.WeatherService]:
    with weather_service.running() as service:
        yield service


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def policy(clock: Clock) -> RetryPolicy:
    return RetryPolicy(sleep=clock.sleep, clock=clock, silence=5)


@pytest.fixture
def topic(running: Broker) -> Topic:
    return Topic(running, f"events-{next(NAMES)}")


@pytest.fixture
def reader_password(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READER_PASSWORD", postgres.password)


@pytest.fixture
def orders(postgres, reader_password) -> PostgresTable:
    """Three rows on a day and one on the next."""
    postgres.execute(
        "DROP TABLE IF EXISTS orders CASCADE",
        "CREATE TABLE orders (ordered_on date, id int, cents bigint, changed_at timestamptz DEFAULT"
        " now())",
        f"INSERT INTO orders VALUES ('{day(0)}', 1, 100), ('{day(0)}', 2, 200), ('{day(0)}', 3,"
        f" NULL), ('{day(1)}', 4, 400)",
    )
    return postgres_table(postgres, "orders", "ordered_on")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Bucket]]:
    """Makes a new bucket, each of a name that no test had before."""
    folder = tmp_path_factory.mktemp("moto")
    with moto_server(folder) as endpoint:
        yield lambda: Bucket(endpoint, f"bucket-{uuid4().hex[:12]}", folder / "moto.log").make()


@pytest.fixture
def bucket(server: Callable[[], Bucket], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = server()
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": made.endpoint}.items():
        monkeypatch.setenv(name, value)
    return made
