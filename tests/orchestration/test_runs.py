"""Runs as Dagster executes them, in this process: the events of each day, and what a day that fails
does to a run.
"""

import re
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    DagsterInvalidConfigError,
    RunRequest,
    build_schedule_context,
)
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.execution.api import execute_run
from dagster._core.loader import LoadingContextForTest

from backfill_assets.dagster_client import tags
from backfill_assets.errors import ServiceUnavailable
from backfill_assets.lake.history import latest
from backfill_assets.orchestration import assets
from backfill_assets.orchestration.assets import asset_key
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import INTERRUPTED
from backfill_assets.step.request import EarlyStop
from tests.worlds.code_location import (
    END,
    START,
    CodeLocation,
    built_location,
    copied_location,
    delivered,
)
from tests.worlds.deliveries import arriving, day, days
from tests.worlds.outages import FOUR, HISTORY, NAMES, OUTAGES, RAW, REJECTED, UPDATES


@pytest.fixture(scope="module")
def good(tmp_path_factory, spark) -> Iterator[tuple[CodeLocation, Any]]:
    """A run of four good days. Read only."""
    with built_location(tmp_path_factory.mktemp("good"), spark) as made:
        yield made


@pytest.fixture(scope="module")
def refused(tmp_path_factory, spark) -> Iterator[tuple[CodeLocation, Any]]:
    """A run of four days up to the outages, of which staging refuses the third. Read only."""
    with delivered(tmp_path_factory.mktemp("refused"), spark) as made:
        spoil(made)
        yield made, made.run_assets([REJECTED, RAW, UPDATES, OUTAGES], FOUR)


@pytest.fixture
def built(good, tmp_path) -> Iterator[CodeLocation]:
    """The same four good days after their run, to be changed."""
    with copied_location(good[0], tmp_path) as made:
        yield made


EVERY = {str(at) for at in FOUR}


def test_a_range_run_tells_every_day_of_every_table_with_figures_and_tags(good):
    location, result = good
    assert result.success
    assert {name: location.materialized(name) for name in NAMES} == dict.fromkeys(NAMES, EVERY)
    builds = latest(location.world.lake.ledger, dict.fromkeys(NAMES)).accepted
    for (name, at), build in builds.items():
        event = (
            location.instance.fetch_materializations(_of(name, at), limit=1)
            .records[0]
            .asset_materialization
        )
        assert event is not None
        assert event.metadata["dagster/partition_row_count"].value == build.rows
        assert event.metadata["reason"].value == "to see it"
        assert event.tags is not None
        assert event.tags["dagster/data_version"] == build.fingerprint
        assert event.tags["dagster/code_version"] == build.code_version
    assert {b.rows for (name, _), b in builds.items() if name == OUTAGES} == {20}


def test_no_two_days_are_of_one_millisecond_of_which_the_events_page_shows_one(good):
    location, _ = good
    records = location.instance.fetch_materializations(
        AssetKey(UPDATES.split("/")), limit=10
    ).records
    assert len({int(1000 * record.timestamp) for record in records}) == len(records) == len(FOUR)


def stale(location: CodeLocation, name: str) -> dict[str, list[str]]:
    """Why Dagster calls days of a table unsynced, as its UI shows it."""
    graph = location.defs.get_repository_def().asset_graph
    context = LoadingContextForTest(location.instance)
    resolver = CachingStaleStatusResolver(location.instance, graph, context)
    causes = {str(at): resolver.get_stale_causes(AssetKey(name.split("/")), str(at)) for at in FOUR}
    return {at: [cause.reason for cause in of] for at, of in causes.items() if of}


@pytest.mark.nightly
def test_what_a_run_has_built_is_in_sync_until_an_input_comes_out_different(built):
    assert {name: stale(built, name) for name in NAMES} == {name: {} for name in NAMES}
    assert built.run(force=True).success  # the same rows again
    assert {name: stale(built, name) for name in NAMES} == {name: {} for name in NAMES}
    tags = {
        "dagster/data_version": "another",
        "dagster/code_version": built.world.table(UPDATES).version,
    }
    corrected = AssetMaterialization(AssetKey(UPDATES.split("/")), partition=str(day(1)), tags=tags)
    built.instance.report_runless_asset_event(corrected)
    assert stale(built, OUTAGES)[str(day(1))] == ["has a new dependency data version"]


def _of(name: str, at: Any) -> Any:
    return AssetRecordsFilter(asset_key=AssetKey(name.split("/")), asset_partitions=[str(at)])


def evaluated(result: Any, name: str) -> list[Any]:
    found = [
        e.asset_check_evaluation_data
        for e in result.all_events
        if e.event_type_value == "ASSET_CHECK_EVALUATION"
    ]
    return [each for each in found if each.asset_key == AssetKey(name.split("/"))]


def checks(result: Any, name: str) -> dict[tuple[str, str], bool]:
    return {(each.partition, each.check_name): each.passed for each in evaluated(result, name)}


def test_a_range_run_evaluates_every_rule_for_every_day(good):
    location, result = good
    for table in location.world.tables:
        names = [*(rule.name for rule in table.rules), "up_to_date"]
        expected = {(at, name): True for at in EVERY for name in names}
        assert checks(result, table.name) == expected


def test_every_output_has_a_type_check_without_which_the_run_shows_no_log(good):
    outputs = [
        event.step_output_data
        for event in good[1].all_events
        if event.event_type_value == "STEP_OUTPUT"
    ]
    assert len(outputs) > len(NAMES)
    assert all(output.type_check_data and output.type_check_data.success for output in outputs)


def test_every_verdict_points_at_the_materialization_it_is_about(good):
    location, result = good
    for verdict in evaluated(result, OUTAGES):
        target = verdict.target_materialization_data
        (made,) = location.instance.fetch_materializations(
            _of(OUTAGES, verdict.partition), limit=1
        ).records
        assert (target.storage_id, target.run_id) == (made.storage_id, result.run_id)
        assert target.timestamp == made.timestamp


def spoil(location: CodeLocation) -> None:
    """Make the third day's delivery one that staging refuses."""
    location.world.write(day(2), arriving(2, *range(20), began=2, estCustAffected="many"))


def mend(location: CodeLocation) -> None:
    location.world.write(day(2), arriving(2, *range(20), began=2))


def test_a_refused_day_fails_the_run_and_the_message_names_day_rule_figures_and_rows(
    refused, golden
):
    location, result = refused
    assert not result.success
    golden(location.failures(result)[UPDATES])
    assert checks(result, UPDATES)["2019-08-17", "unparsed_at_most"] is False
    assert checks(result, UPDATES)["2019-08-18", "unparsed_at_most"] is True


def test_downstream_of_the_good_days_goes_on_in_the_same_run(refused):
    location, result = refused
    assert location.materialized(UPDATES) == EVERY - {"2019-08-17"}
    # The days before wait for the third.
    assert {row["outage_day"] for row in location.world.rows(OUTAGES)} == {day(3)}
    assert f"blocked: needs {UPDATES} {day(2)}" in location.failures(result)[OUTAGES]


@pytest.mark.scale
def test_a_re_execution_from_failure_after_mending_builds_the_rest(location):
    spoil(location)
    refused = location.run()
    assert not refused.success
    mend(location)
    location.run()  # raw, whose days did not fail, must take the mended file in
    result = location.again(refused)
    assert result.success
    assert {name: location.materialized(name) for name in NAMES[2:]} == dict.fromkeys(
        NAMES[2:], EVERY
    )
    assert len(location.world.rows(HISTORY)) == 4


def test_checks_alone_audit_every_day_as_it_stands_and_materialize_none(built):
    """What "Execute all" on a table's checks launches: a run of checks, without the asset and
    without days.
    """
    table = asset_key(built.world.table(OUTAGES))
    every = {
        key for key in built.defs.resolve_asset_graph().asset_check_keys if key.asset_key == table
    }
    job = built.defs.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=set(), asset_check_selection=every
    )
    run = built.instance.create_run_for_job(job)
    result = execute_run(InMemoryJob(job), run, built.instance, raise_on_error=False)
    assert result.success
    verdicts = checks(result, OUTAGES)
    assert {at for at, _ in verdicts} == EVERY
    assert {rule for _, rule in verdicts} == {key.name for key in every}
    assert not [
        event for event in result.all_events if event.event_type_value == "ASSET_MATERIALIZATION"
    ]
    assert {b.outcome for b in built.world.lake.ledger.builds({OUTAGES: None})[-4:]} == {"audited"}


def test_an_audit_of_an_outdated_day_does_not_call_it_up_to_date(built):
    (file,) = built.world.folder(FOUR[1]).glob("*.jsonl")
    file.write_bytes(file.read_bytes() + file.read_bytes())
    result = built.run_assets([REJECTED], FOUR, audit_only=True)
    assert result.success
    found = {at: ok for (at, name), ok in checks(result, REJECTED).items() if name == "up_to_date"}
    assert found == dict.fromkeys(EVERY, True) | {str(FOUR[1]): False}
    materialized = [
        event.partition
        for event in result.all_events
        if event.event_type_value == "ASSET_MATERIALIZATION"
    ]
    assert set(materialized) == EVERY - {str(FOUR[1])}


def test_options_reach_every_step(built):
    built.run_assets([UPDATES, OUTAGES], FOUR[:1], force=True, reason="again", accept="a.jsonl")
    last = built.world.lake.ledger.builds()[-2:]
    assert {(b.outcome, b.reason, b.accept) for b in last} == {("unchanged", "again", "a.jsonl")}


def test_the_early_stop_of_a_cumulative_table_is_in_the_log_and_on_the_day(built):
    reasons = {
        at: Reason(ReasonKind.FORCED) if at == day(1) else Reason(ReasonKind.READS, HISTORY)
        for at in FOUR[1:]
    }
    code = {HISTORY: built.world.table(HISTORY).version}
    plan = Plan(code, {HISTORY: reasons}, [Chunk(0, {HISTORY: FOUR[1:]})], PlanOptions(force=True))
    Plans(str(built.world.root)).keep(plan)
    result = built.run_assets([HISTORY], FOUR[1:], {tags.PLAN: plan.id})
    assert result.success
    records = built.instance.fetch_materializations(AssetKey(HISTORY.split("/")), limit=3).records
    metadata = {record.partition_key: record.asset_materialization.metadata for record in records}
    stops = {at: of["early stop"].value for at, of in metadata.items() if "early stop" in of}
    stop = str(EarlyStop(HISTORY, day(1), days(2, 3)))
    assert stops == {str(day(1)): stop}
    outcomes = {at: values["outcome"].value for at, values in metadata.items()}
    assert outcomes == {
        str(day(1)): "unchanged",
        str(day(2)): "up to date",
        str(day(3)): "up to date",
    }
    messages = [event.user_message for event in built.instance.all_logs(result.run_id)]
    assert messages.count(stop) == 1


@pytest.fixture
def location(tmp_path, spark) -> Iterator[CodeLocation]:
    with delivered(tmp_path, spark) as made:
        yield made


def test_a_run_without_days_computes_nothing_and_says_to_choose_some(location, golden):
    job = location.defs.resolve_job_def("backfill_rebuild")
    run = location.instance.create_run_for_job(job)
    result = execute_run(InMemoryJob(job), run, location.instance, raise_on_error=False)
    (message,) = location.failures(result).values()
    golden(message)
    assert location.world.lake.ledger.builds() == []


def test_a_write_mode_that_cannot_be_used_fails_the_step_and_says_why(location, golden):
    result = location.run_assets([REJECTED], FOUR, write_mode="merge")
    golden(location.failures(result)[REJECTED])
    assert location.world.versions()[REJECTED] == -1


def test_a_spark_setting_that_comes_too_late_fails_the_step_once(location, golden):
    result = location.run_assets([REJECTED], FOUR, spark_conf={"spark.executor.instances": "9"})
    golden(location.failures(result)[REJECTED])
    assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    builds = location.world.lake.ledger.builds({REJECTED: None})
    assert [(b.day, b.outcome) for b in builds] == [(at, "failed") for at in FOUR]
    (message,) = {b.message for b in builds}
    golden(message, "ledger")
    assert location.world.versions() == dict.fromkeys(NAMES, -1)


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param(
            {"backfill_options": {"config": {"write_mode": "append_once"}}},
            id="a write mode that does not exist",
        ),
        pytest.param(
            {"backfill_spark": {"config": {"spark_config": {"spark.sql.ansi.enabled": "false"}}}},
            id="settings of Spark",
        ),
    ],
)
def test_a_configuration_that_there_is_not_is_refused_before_anything_starts(location, resources):
    with pytest.raises(DagsterInvalidConfigError):
        location.defs.resolve_job_def("backfill_rebuild").execute_in_process(
            run_config={"resources": resources},
            instance=location.instance,
            tags={START: str(FOUR[0]), END: str(FOUR[-1])},
        )
    assert not (location.world.root / "_ledger").exists()


def test_the_nightly_schedule_asks_for_the_days_that_late_rows_may_have_changed(location):
    schedule = location.defs.resolve_schedule_def("backfill_nightly")
    context = build_schedule_context(
        location.instance, scheduled_execution_time=datetime(2019, 8, 19, 1, 30, tzinfo=UTC)
    )
    request = schedule.evaluate_tick(context).run_requests[0]
    assert isinstance(request, RunRequest)
    assert (request.tags[START], request.tags[END]) == ("2019-08-15", "2019-08-18")
    assert request.tags[tags.REASON] == "nightly of 2019-08-19"


def test_every_table_is_an_asset_with_a_check_for_each_rule(location):
    graph = location.defs.resolve_asset_graph()
    for table in location.world.tables:
        checks = {
            key.name: graph.get(key).blocking
            for key in graph.asset_check_keys
            if key.asset_key == asset_key(table)
        }
        rules = {rule.name: rule.severity == "error" for rule in table.rules}
        assert checks == rules | {"up_to_date": False}


def test_a_step_that_finds_no_engine_tries_again(tmp_path, spark, monkeypatch):
    monkeypatch.setattr(assets, "_RETRY_AFTER_S", 0.1)
    with delivered(
        tmp_path, spark, ServiceUnavailable("No Spark Connect server answers.")
    ) as location:
        result = location.run_assets([REJECTED], FOUR)
        assert result.success
        tried = [e.step_key for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
        assert tried == [REJECTED.replace("/", "__")]
        builds = [(b.day, b.outcome) for b in location.world.lake.ledger.builds()]
    assert builds == [(at, "failed") for at in FOUR] + [(at, "accepted") for at in FOUR]


def test_a_step_whose_run_is_interrupted_does_not_try_again(tmp_path, spark):
    """It would outlive its servers, or its cancellation."""
    with delivered(tmp_path, spark, DagsterExecutionInterruptedError()) as location:
        result = location.run_assets([REJECTED], FOUR)
        assert not result.success
        assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
        (run,) = location.instance.get_runs()
        assert run.tags[INTERRUPTED["key"]] == INTERRUPTED["value"]


def test_a_full_disk_is_named_with_the_room_that_there_is_and_not_tried_again(
    tmp_path, spark, golden
):
    full = RuntimeError(
        "org.apache.spark.SparkException: java.io.IOException: No space left on device"
    )
    with delivered(tmp_path, spark, *[full] * 4) as location:
        result = location.run_assets([REJECTED], FOUR)
        message = re.sub(r"\d+ MB", "<ROOM> MB", location.failures(result)[REJECTED])
        golden(message, TEMPORARY=tempfile.gettempdir())
        assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]


def test_an_error_of_a_tables_code_is_not_tried_again(tmp_path, spark):
    every_try = [NameError("colunm")] * 4
    with delivered(tmp_path, spark, *every_try) as location:
        result = location.run_assets([REJECTED], FOUR)
        assert {b.message for b in location.world.lake.ledger.builds()} == {"NameError: colunm"}
        assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
