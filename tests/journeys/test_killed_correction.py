"""A correction of two days, killed at each stage and typed again, on real servers: nothing is built
twice, readers have it once, and a rollback takes back all of it.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.locks import writing
from backfill_assets.lake.recorded_acts import Acts
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.shadow import ledgers_of_shadows, shadow_root
from backfill_assets.plan.store import Plans
from backfill_assets.tries import wait_until
from backfill_assets.verify.verify import Verdicts
from tests.benchmarks.correction import deliver_again, file_of
from tests.worlds.outages import DAILY, ORACLE_TABLES, differences, oracle_of
from tests.worlds.servers import station_on
from tests.worlds.station import FIRST, Station, ended, eventually

pytestmark = pytest.mark.nightly

LAST = FIRST + timedelta(days=7)
CORRECTED = [FIRST + timedelta(days=1), FIRST + timedelta(days=5)]
CORRECT = ("run", "--partitions", "all", "--only", "outdated", "--downstream", "--yes")


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[Station]:
    """Servers on a lake whose days are built and released. Then two days are delivered again."""
    home = tmp_path_factory.mktemp("correction")
    with station_on(home, LAST, own_engine=False) as found:
        found.backfill("run", "--partitions", "all", "--into", "live", "--canary", "0", "--yes")
        found.backfill("release", "--reason", "everything")
        for day in CORRECTED:
            deliver_again(file_of(found.landing, day))
        yield found


def killed(station: Station, *command: str, when: Callable[[], object]) -> None:
    """Kill a command with SIGKILL when something is true, at whatever it does then."""
    process = station.started(*command)
    wait_until(lambda: process.poll() is not None or bool(when()), every=0.01)
    process.kill()
    process.communicate()


def is_begun(root: str, number: int) -> bool:
    """True if the act with this number is recorded."""
    newest = Acts(root).documents.newest()
    return newest is not None and newest.number >= number


def live(station: Station) -> dict[str, DeltaTable]:
    return {name: DeltaTable(station.lake.path(name)) for name in ORACLE_TABLES}


def files(station: Station) -> dict[str, set[str]]:
    """The data files of live, which are never written twice."""
    return {name: set(table.file_uris()) for name, table in live(station).items()}


def wrong(station: Station) -> dict[str, int]:
    """The number of rows of each table that are not those that DuckDB makes from the files."""
    with oracle_of(station.landing, FIRST, LAST) as oracle:
        found = {
            name: len(differences(oracle, name, table.to_pyarrow_table()))
            for name, table in live(station).items()
        }
    return {name: number for name, number in found.items() if number}


def newest_release(root: str) -> int:
    release = Releases(root).newest()
    assert release
    return release.number


def builds_in(shadow: Ledger, plan: str) -> Counter[tuple[str, date]]:
    return Counter(
        (build.table, build.day)
        for build in shadow.builds()
        if build.plan == plan and build.outcome == "accepted"
    )


def test_a_correction_that_is_killed_at_each_stage_is_built_once_and_read_once(station: Station):
    root = station.lake.root
    before = files(station)
    first_release = newest_release(root)
    assert wrong(station)

    # While the shadow is opened, before anything is launched.
    killed(station, *CORRECT, when=lambda: ledgers_of_shadows(root))
    (plan,) = ledgers_of_shadows(root)
    # While steps compute, the command, and then the run: no step can commit meanwhile.
    with writing(shadow_root(root, plan), DAILY):
        killed(station, "resume", plan, when=lambda: station.of_plan(plan))
        (run,) = station.of_plan(plan)
        shadow = Ledger(shadow_root(root, plan))
        eventually(lambda: len(builds_in(shadow, plan)) > 2, what="some days are built")
        resumed = station.started("resume", plan)
        eventually(lambda: len(Plans(root).events(plan, "started")) == 3, what="it is resumed")
        os.kill(station.process_of(run), signal.SIGKILL)
    assert f"Plan {plan} is built in its shadow" in ended(resumed, 0)
    planned = Plans(root).read(plan).partitions()
    assert set(builds_in(shadow, plan).values()) == {1}
    assert builds_in(shadow, plan).keys() <= planned.keys()
    assert files(station) == before

    # While it is compared, before a verdict is there; then with one that needs a decision.
    killed(station, "verify", plan, when=lambda: [*Path(root, "_diffs").glob("*.json")])
    assert Verdicts(root).newest(plan) is None
    station.backfill("verify", plan, code=4)
    accept = ("--accept", "changes *", "--reason", "delivered again")
    station.backfill("verify", plan, *accept)

    # While it is published, and while it is taken back.
    newest = Acts(root).documents.newest()
    act = newest.number if newest else 0
    killed(station, "publish", plan, when=lambda: is_begun(root, act + 1))
    station.backfill("publish", plan)
    assert (Plans(root).state(plan), wrong(station)) == ("published", {})
    assert newest_release(root) == first_release + 1
    killed(station, "rollback", plan, "--yes", when=lambda: is_begun(root, act + 2))
    station.backfill("rollback", plan, "--yes")
    assert (Plans(root).state(plan), files(station)) == ("rolled_back", before)
    assert newest_release(root) == first_release + 2
