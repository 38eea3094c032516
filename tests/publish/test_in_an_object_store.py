"""Publishing and taking back in a lake in an object store: no links, only copies, leases and
conditional writes. On versitygw, over HTTP, without Spark.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from backfill_assets.errors import Conflict, RefusedByGuard
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.publish.rollback import Kind
from backfill_assets.publish.shadows import discard
from backfill_assets.verbs.sql import answer_query, tables_of
from tests.worlds.s3 import S3, s3_server
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    everywhere,
    gets,
    half_published,
    preview,
    publish,
    rebuilt_in_shadow,
    released,
    released_lake,
)

pytestmark = pytest.mark.scale

D0, D1, D2, D3 = DAYS


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("store")) as server:
        yield server


@pytest.fixture
def lake(endpoint, monkeypatch) -> SmallLake:
    # Tests read tables with a library of their own, which asks for AWS_ALLOW_HTTP.
    for name, value in (endpoint.environment() | {"AWS_ALLOW_HTTP": "true"}).items():
        monkeypatch.setenv(name, value)
    return released_lake(endpoint.place(f"lake-{uuid4().hex[:12]}"))


def files_of_others(lake: SmallLake) -> dict[object, set[str]]:
    return {at: names for at, names in lake.files().items() if at not in (D1, D2)}


def test_a_killed_publication_is_finished_and_rolled_back_and_a_night_stays(lake):
    others = files_of_others(lake)
    values = {D1: 7, D2: 8}
    plan = half_published(lake, values)
    assert gets(lake) == RELEASED
    publish(lake, plan)
    assert everywhere(lake) == RELEASED | values
    assert not lake.workspace.lake.paths.is_local
    assert files_of_others(lake) == others
    for table in (A.name, B.name):
        lake.write({D3: 9}, table=table)
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)
    assert set(lake.roll_back(plan).values()) == {Kind.RESTORE}
    assert everywhere(lake) == RELEASED | {D3: 9}
    assert files_of_others(lake)[D0] == others[D0]


@pytest.mark.parametrize("end", ["published", "discarded"])
def test_a_few_readers_try_a_plan_until_it_ends(lake, end):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    tried = RELEASED | {D1: 7}
    assert (released(lake), released(lake, B.name, "candidate")) == (RELEASED, tried)
    if end == "published":
        publish(lake, plan)
    else:
        discard(plan, lake.workspace, who="ada", now=lambda: NOW)
    now = tried if end == "published" else RELEASED
    assert released(lake) == released(lake, channel="candidate") == now


def test_a_query_reads_a_release_a_preview_or_live(lake, monkeypatch):
    monkeypatch.setenv("BACKFILL_LAKE", str(lake.root))
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    lake.write({D1: 9})
    query = f"SELECT sum(n) FROM \"{A.name}\" WHERE day = '{D1}'"
    found = {}
    for name, state in (
        ("release", tables_of(None, "", live=False)),
        ("preview", tables_of(None, plan.id, live=False)),
        ("live", tables_of(None, "", live=True)),
    ):
        report = answer_query(query, state, "", None, overwrite=False)
        found[name] = report and report.first
    assert found == {"release": [(2 * 2,)], "preview": [(7 * 7,)], "live": [(9 * 9,)]}


def test_concurrent_publications_lose_nothing(lake):
    rebuilds = {D0: 5, D1: 6}
    plans = [rebuilt_in_shadow(lake, {at: value}) for at, value in rebuilds.items()]

    def published(plan: Plan) -> bool:
        try:
            publish(lake, plan)
        except (RefusedByGuard, Conflict):  # of another that has begun; it is typed again
            return False
        return True

    with ThreadPoolExecutor(len(plans)) as at_once:
        won = dict(zip(rebuilds, at_once.map(published, plans), strict=True))
    got = gets(lake)
    assert got == RELEASED | {at: got[at] for at in rebuilds}
    assert {at: got[at] for at in rebuilds if won[at]} == {
        at: value for at, value in rebuilds.items() if won[at]
    }
    for plan in plans:
        publish(lake, plan)
    assert everywhere(lake) == RELEASED | rebuilds
    numbers = [release.number for release in Releases(str(lake.root)).all()]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert {lake.plans.state(plan.id) for plan in plans} == {"published"}


def test_nights_that_write_other_days_at_once_lose_none(lake):
    with ThreadPoolExecutor(4) as at_once:
        list(at_once.map(lambda at: lake.write({at: 3 + RELEASED[at]}), DAYS))
    assert lake.values() == {at: 3 + value for at, value in RELEASED.items()}
    recorded = lake.workspace.lake.latest({A.name: DAYS}).accepted
    assert {at: build.rows for (_, at), build in recorded.items()} == lake.values()
