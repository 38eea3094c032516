"""Backfills that a person launches in Dagster's UI, by Dagster's own daemon in this process.

It ends a backfill as failed if a targeted day has no materialization when its runs are over.
"""

import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from types import ModuleType
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster_graphql.client.query import LAUNCH_PARTITION_BACKFILL_MUTATION
from dagster_graphql.test.utils import execute_dagster_graphql

from backfill_assets.dagster_client.names import OPTIONS
from backfill_assets.dagster_client.tags import BEFORE
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.run import SparkResource
from backfill_assets.servers.home import EVENT_BATCH_SIZE
from tests.worlds.code_location import sharing
from tests.worlds.databases import INSTANCE
from tests.worlds.market import (
    CLOSES,
    DAYS,
    NAMES,
    OPEN,
    QUOTES,
    WEEK,
    Market,
    closes_of,
    quotes_of,
    week_of,
)

FIRST_CLOSES = DAYS[4]
PROTECTED = DAYS[5]
NOT_DELIVERED, EMPTY, AFTER = DAYS[11:14]
INSTANCE_OF_RUNS = {
    "instance_class": INSTANCE,
    "run_launcher": {
        "module": "dagster._core.launcher.sync_in_memory_run_launcher",
        "class": "SyncInMemoryRunLauncher",
    },
    "run_coordinator": {
        "module": "dagster._core.run_coordinator.default_run_coordinator",
        "class": "DefaultRunCoordinator",
    },
}


@pytest.fixture(scope="module")
def once(tmp_path_factory, spark) -> Market:
    """Two weeks of quotes, of which two days have not come. The closes begin on the fifth day."""
    quotes = quotes_of()
    closes = closes_of(quotes, first_day=FIRST_CLOSES, rules=())
    tables = (quotes, closes, week_of(closes, first=-1, rules=()))
    market = Market(tmp_path_factory.mktemp("market"), lambda: spark, tables)
    market.deliver(*(day for day in OPEN if day not in (NOT_DELIVERED, EMPTY)))
    market.run()
    return market


@pytest.fixture
def market(once, tmp_path, monkeypatch) -> Market:
    """The same days, to be changed, with at most seven days a run."""
    shutil.copytree(once.root, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("BACKFILL_DAYS_PER_RUN", "7")
    return replace(once, root=tmp_path)


@dataclass
class Daemon:
    context: WorkspaceProcessContext

    @property
    def instance(self) -> DagsterInstance:
        return self.context.instance

    def backfill(
        self, names: Sequence[str], days: Sequence[date], **options: bool
    ) -> tuple[bool, dict[str, set[date]]]:
        """Launch a backfill as the UI does, and carry it out. Return whether it ended well, and the
        failed days of each table.
        """
        params: dict[str, Any] = {
            "assetSelection": [{"path": name.split("/")} for name in names],
            "partitionNames": list(map(str, days)),
            "runConfigData": {"resources": {OPTIONS: {"config": options}}} if options else {},
        }
        request = self.context.create_request_context()
        answer = execute_dagster_graphql(
            request, LAUNCH_PARTITION_BACKFILL_MUTATION, {"backfillParams": params}
        )
        name = answer.data["launchPartitionBackfill"]["backfillId"]
        while (backfill := self._of(name)).status == BulkActionStatus.REQUESTED:
            assert not any(execute_backfill_iteration(self.context, logging.getLogger("tests")))
        found = backfill.get_asset_backfill_data(request.asset_graph)
        # As the page of the backfill shows them.
        failed = found.failed_and_downstream_subset - found.materialized_subset
        return backfill.status == BulkActionStatus.COMPLETED_SUCCESS, {
            key.to_user_string(): {
                date.fromisoformat(day)
                for day in failed.get_partitions_subset(key).get_partition_keys()
            }
            for key in failed.asset_keys
        }

    def _of(self, name: str) -> PartitionBackfill:
        backfill = self.instance.get_backfill(name)
        assert backfill
        return backfill

    def outcomes(self, name: str) -> dict[date, Any]:
        """The outcome that the last materialization of each day shows."""
        found = self.instance.fetch_materializations(AssetKey(name.split("/")), limit=100)
        return {
            date.fromisoformat(str(record.partition_key)): event.metadata["outcome"].value
            for record in reversed(found.records)
            if (event := record.asset_materialization)
        }


@contextmanager
def daemon_on(market: Market, spark: SparkResource) -> Iterator[Daemon]:
    # Dagster keeps what it has loaded from a module of this name.
    name = market.root.name
    module = ModuleType(name)
    module.defs = definitions_of(market.workspace, spark)  # type: ignore[attr-defined]
    target = LoadableTargetOrigin(module_name=name, attribute="defs")
    location = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(target))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, module)
        patch.setenv("DAGSTER_EVENT_BATCH_SIZE", EVENT_BATCH_SIZE)
        with (
            DagsterInstance.local_temp(str(market.root), INSTANCE_OF_RUNS) as instance,
            WorkspaceProcessContext(instance, location) as context,
        ):
            yield Daemon(context)


def no_spark() -> SparkResource:
    return sharing(None, [AssertionError("Spark was started")] * 9)  # type: ignore[arg-type]


@pytest.mark.scale
def test_a_backfill_of_days_that_need_nothing_ends_well(market):
    """Days that are built, closed, or before the first day of the table, in runs of seven days."""
    days = DAYS[:10]
    with daemon_on(market, no_spark()) as daemon:
        assert daemon.backfill([CLOSES], days) == (True, {})
        assert daemon.backfill(NAMES, days) == (True, {})
        assert len(daemon.instance.get_runs()) > len(NAMES)
        shown = daemon.outcomes(CLOSES)
    assert set(shown) == set(days)
    before = {day for day, outcome in shown.items() if outcome == BEFORE}
    assert before == {day for day in days if day < FIRST_CLOSES}


def test_a_backfill_fails_with_exactly_the_days_that_were_not_built(market, spark, monkeypatch):
    """A day that was not delivered, one that a rule refuses, a changed one that is protected, and
    those of later runs that read these: Dagster does not launch them.
    """
    market.deliver(EMPTY, rows=0)
    market.deliver(PROTECTED, cents=7)
    monkeypatch.setenv("BACKFILL_PROTECTED_DAYS", str(PROTECTED))
    with daemon_on(market, sharing(spark, [])) as daemon:
        assert daemon.backfill(NAMES, DAYS) == (
            False,
            {
                QUOTES: {PROTECTED, NOT_DELIVERED, EMPTY},
                CLOSES: {NOT_DELIVERED, EMPTY},
                WEEK: {PROTECTED, DAYS[6], NOT_DELIVERED, EMPTY, AFTER},
            },
        )


@pytest.mark.scale
@pytest.mark.parametrize(
    ("option", "protected"), [("audit_only", ""), ("skip_not_due", str(PROTECTED))]
)
def test_a_changed_day_that_an_option_leaves_as_it_is_counts_as_failed(
    market, spark, monkeypatch, option, protected
):
    market.deliver(PROTECTED, cents=7)
    monkeypatch.setenv("BACKFILL_PROTECTED_DAYS", protected)
    with daemon_on(market, sharing(spark, [])) as daemon:
        assert daemon.backfill([QUOTES], DAYS[:6], **{option: True}) == (
            False,
            {QUOTES: {PROTECTED}},
        )
        assert all(run.is_success for run in daemon.instance.get_runs())
