"""Another team's Spark appends to a table of a lake in an object store while we write to it.

It has Delta's default log store. A proxy holds its commit back until ours is there.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from backfill_assets.lake.damage import DamageKind
from backfill_assets.lake.delta import version_of
from backfill_assets.lake.integrity import read_state
from backfill_assets.lake.spark.jars import jars_conf
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.reconcile.compare import DisagreementKind, Records, compare
from backfill_assets.reconcile.put_back import put_back
from backfill_assets.settings import read_settings
from tests.worlds import foreign_spark
from tests.worlds.cluster import OF_TESTS, RESULT_TIMEOUT_S
from tests.worlds.faulty_s3 import Fault, Rule, faulty_s3
from tests.worlds.s3 import REGION, S3, s3_server
from tests.worlds.small_lake import DAYS, RELEASED, A, SmallLake, released_lake
from tests.worlds.started import environment_without_spark, kill

pytestmark = pytest.mark.nightly

D0, D1, D2, D3 = DAYS
PLAIN = {
    "spark.master": "local[1]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.hadoop.fs.s3a.endpoint.region": REGION,
    "spark.hadoop.fs.s3a.path.style.access": "true",
}


@contextmanager
def appending(
    folder: str, number: int, environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that appends `number` rows to D0 of the table in `folder`."""
    endpoint = {"spark.hadoop.fs.s3a.endpoint": environment["AWS_ENDPOINT_URL"]}
    conf = OF_TESTS | PLAIN | jars_conf(read_settings(lake=folder)) | endpoint
    place = folder.replace("s3://", "s3a://")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                foreign_spark.__file__,
                place,
                str(D0),
                str(number),
                json.dumps(conf),
            ],
            env=environment_without_spark() | {**environment},
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        kill(process)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def lake(server: S3, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    for name, value in (server.environment() | {"AWS_ALLOW_HTTP": "true"}).items():
        monkeypatch.setenv(name, value)
    return released_lake(server.place("lake"))


def commit_at_once(lake: SmallLake, server: S3, log: Path) -> int:
    """Write 9 to D3 while the other team appends two rows to D0. Its commit comes after ours.

    Returns the version that both have written.
    """
    folder = f"{lake.root}/{A.name}"
    version = version_of(folder) + 1
    with faulty_s3(server.endpoint) as proxy:
        proxy.set(Rule(Fault.HELD, "PUT", f"/{A.name}/_delta_log/{version:020}.json"))
        with appending(folder, 2, server.environment(proxy.endpoint), log) as process:
            proxy.wait_until_held()
            lake.write({D3: 9})
            assert version_of(folder) == version
            proxy.release()
            assert process.wait(RESULT_TIMEOUT_S) == 0, log.read_text()[-4000:]
    return version


def test_a_commit_that_sparks_log_store_overwrites_is_found_and_built_again(lake, server, tmp_path):
    version = commit_at_once(lake, server, tmp_path / "spark.log")
    live = lake.workspace.lake
    found = live.damaged(live.latest({A.name: DAYS}), {A.name: None})
    assert {at: damage.kind for (_, at), damage in found.items()} == {
        D0: DamageKind.REWRITTEN,
        D3: DamageKind.OVERWRITTEN,
    }
    assert found[A.name, D3].version == version
    latest = latest_builds(lake.workspace)
    shown = status_of(lake.workspace, [A], DAYS, latest=latest).partitions
    assert [at for (_, at), each in shown.items() if each.state != State.UP_TO_DATE] == [D0, D3]
    tables = {A.name: read_state(f"{lake.root}/{A.name}")}
    compared = compare(Records([A.name], live.ledger.builds({A.name: None}), tables))
    assert {each.kind: list(each.days) for each in compared.disagreements} == {
        DisagreementKind.FOREIGN_COMMIT: [D0],
        DisagreementKind.OVERWRITTEN: [D3],
    }
    restored = put_back(A, live, "ada")
    assert ([build.day for build in restored.builds], [*restored.not_restored]) == ([D0], [D3])
    lake.write({D3: 9})
    assert not live.damaged(live.latest({A.name: DAYS}), {A.name: None})
    assert lake.values() == RELEASED | {D3: 9}
