"""A store that fails while a night writes, a plan is published and taken back: nothing is lost, and
nothing is there twice. On versitygw behind a proxy, without Spark.
"""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from backfill_assets.errors import BackfillError, NotRecorded, RefusedByGuard
from backfill_assets.lake import leases
from backfill_assets.publish.rollback import Kind
from tests.worlds.faulty_s3 import Fault, FaultyS3, Rule, faulty_s3
from tests.worlds.s3 import S3, s3_server
from tests.worlds.small_lake import (
    DAYS,
    RELEASED,
    A,
    B,
    SmallLake,
    everywhere,
    publish,
    rebuilt_in_shadow,
    released_lake,
)

pytestmark = pytest.mark.scale

D0, D1, D2, D3 = DAYS
OF_A = "/raw/a/_delta_log/"
OF_THE_LEDGER = "/_ledger/_delta_log/"
OF_RELEASES = "/_releases/"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture(scope="module")
def proxy(server) -> Iterator[FaultyS3]:
    with faulty_s3(server.endpoint) as started:
        yield started


@pytest.fixture
def lake(server, proxy, monkeypatch) -> Iterator[SmallLake]:
    for name, value in (server.environment(proxy.endpoint) | {"AWS_ALLOW_HTTP": "true"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(leases, "LENGTH_S", 3.0)
    monkeypatch.setattr(leases, "RENEWED_EVERY_S", 0.5)
    yield released_lake(server.place(f"lake-{uuid4().hex[:12]}"))
    proxy.set()


FAULTS = {
    "commits": [
        Rule(Fault.LOSE, "PUT", OF_A),
        Rule(Fault.LOSE, "PUT", OF_THE_LEDGER),
        Rule(Fault.LOSE, "PUT", OF_RELEASES),
        Rule(Fault.CUT, "PUT", OF_A, after=1),
        Rule(Fault.CUT, "PUT", OF_THE_LEDGER, after=1),
        Rule(Fault.CUT, "PUT", ".parquet"),
    ],
    "busy and slow": [Rule(Fault.BUSY, times=0, every=10), Rule(Fault.SLOW, times=0)],
}


@pytest.mark.parametrize("rules", FAULTS.values(), ids=FAULTS)
def test_a_store_that_fails_loses_and_repeats_nothing(lake, proxy, rules):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    proxy.set(*rules)
    for table in (A.name, B.name):
        lake.write({D3: 9}, table=table)
    of_the_night = proxy.set(*rules)
    publish(lake, plan)
    of_the_publication = proxy.set(*rules)
    assert set(lake.roll_back(plan).values()) == {Kind.RESTORE}
    came = zip(of_the_night, of_the_publication, proxy.set(), strict=True)
    assert all(map(any, came))
    assert everywhere(lake) == RELEASED | {D3: 9}
    records = lake.workspace.lake.ledger.rows(["day", "run", "outcome", "at", "table"]).to_pylist()
    assert len({tuple(record.values()) for record in records}) == len(records)
    builds = lake.workspace.lake.latest({A.name: DAYS})
    assert {at: build.rows for (_, at), build in builds.accepted.items()} == lake.values()
    assert not lake.workspace.lake.damaged(builds, {A.name: None})


EXPIRED = [
    *[pytest.param(Rule(Fault.EXPIRED, times=0, after=n), id=f"{n} requests") for n in (10, 210)],
    pytest.param(Rule(Fault.EXPIRED, "PUT", "/raw/a/", times=0), id="before the copies of files"),
]


@pytest.mark.parametrize("rule", EXPIRED)
def test_credentials_that_expire_end_an_act_which_new_ones_finish(lake, proxy, rule):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    proxy.set(rule)
    with pytest.raises((BackfillError, OSError)):
        publish(lake, plan)
    assert proxy.set()[0]
    # Its lock could not be given back: it ends by itself.
    until_free = Retrying(
        retry=retry_if_exception_type(RefusedByGuard), stop=stop_after_delay(60), wait=wait_fixed(1)
    )
    until_free(publish, lake, plan)
    assert everywhere(lake) == RELEASED | {D1: 7}


def test_credentials_that_expire_before_the_ledger_is_written_lose_no_record(lake, proxy):
    proxy.set(Rule(Fault.EXPIRED, "PUT", OF_THE_LEDGER, times=0))
    with pytest.raises(NotRecorded):
        lake.write({D3: 9})
    assert proxy.set()[0]
    assert lake.values() == RELEASED | {D3: 9}
    (build,) = lake.write({D3: 9})
    assert build.outcome == "unchanged"
    assert [*lake.workspace.lake.ledger.rows(["rows"])["rows"].to_pylist()].count(9) == 2
