"""A table without days as Dagster shows and runs it: an asset without partitions. In process, with
Spark: Dagster runs real steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetRecordsFilter,
    DagsterInstance,
    RunRequest,
    build_schedule_context,
)
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.loader import LoadingContextForTest

from backfill_assets.calendar import NO_DAY
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.tags import FIRST_DAY, LAST_DAY, tags_of_days
from backfill_assets.orchestration.schedules import nightly_schedule
from backfill_assets.orchestration.shown_status import CHECK, unreported
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.shadow import open_shadow, workspace_of
from backfill_assets.plan.source_changes import source_changes
from tests.worlds.code_location import CodeLocation, sharing
from tests.worlds.databases import INSTANCE
from tests.worlds.regions import (
    CHANGES,
    DAYS,
    NAMES,
    PLACED,
    REGIONS,
    Places,
    from_file,
    since,
    states,
)

HEAD = "region,latitude,longitude,valid_from"


def location_of(places: Places, instance: DagsterInstance) -> CodeLocation:
    world: Any = places
    return CodeLocation(world, sharing(places.spark(), []), instance)


@pytest.fixture(
    scope="module", params=["whole", pytest.param("by valid_from", marks=pytest.mark.scale)]
)
def places(tmp_path_factory, spark, request) -> Places:
    """The tables, with nothing built. Read only."""
    dated = request.param == "by valid_from"
    made = Places(
        tmp_path_factory.mktemp("places"), lambda: spark, since() if dated else from_file()
    )
    rows = [f"Fresno,1,1,{DAYS[0]}", f"Fresno,2,2,{DAYS[2]}", "Chico,4,4,"]
    return made.deliver("\n".join([HEAD, *rows, ""]) if dated else None)


@pytest.fixture(scope="module")
def once(places, tmp_path_factory) -> Places:
    """The tables, with every day built. Read only."""
    made = places.copied(tmp_path_factory.mktemp("built"))
    made.run()
    return made


@pytest.fixture
def location(places, tmp_path) -> Iterator[CodeLocation]:
    with opened(places, tmp_path) as location:
        yield location


@pytest.fixture
def built(once, tmp_path) -> Iterator[CodeLocation]:
    with opened(once, tmp_path) as location:
        yield location


@contextmanager
def opened(places: Places, tmp_path: Path) -> Iterator[CodeLocation]:
    """A code location on a copy."""
    with DagsterInstance.local_temp(str(tmp_path), {"instance_class": INSTANCE}) as instance:
        yield location_of(places.copied(tmp_path), instance)


def launched(location: CodeLocation, days: Mapping[str, Sequence[date]], **more: str) -> Any:
    """A run as the command line launches it."""
    keys = {AssetKey(name.split("/")) for name in days}
    job = location.defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection=keys)
    run = location.instance.create_run_for_job(
        job, tags=tags_of_days(days) | more, asset_selection=frozenset(keys)
    )
    return execute_run(InMemoryJob(job), run, location.instance, raise_on_error=False)


def outcomes(location: CodeLocation, name: str) -> list[tuple[str | None, Any]]:
    """The partition and the outcome of each materialization of a table, the oldest first."""
    wanted = AssetRecordsFilter(AssetKey(name.split("/")))
    found = location.instance.fetch_materializations(wanted, limit=100, ascending=True).records
    return [
        (record.partition_key, record.asset_materialization.metadata["outcome"].value)
        for record in found
        if record.asset_materialization
    ]


def failing(location: CodeLocation) -> dict[str, list[str | None]]:
    """The partitions whose check is to be reported as failed, by table."""
    found: dict[str, list[str | None]] = {}
    for each in unreported(location.world.workspace, location.instance):
        assert isinstance(each, AssetCheckEvaluation)
        assert (each.check_name, each.passed) == (CHECK, False)
        found.setdefault(each.asset_key.to_user_string(), []).append(each.partition)
    return found


def stale(location: CodeLocation) -> list[str]:
    """The days of `placed` that Dagster calls stale."""
    graph = location.defs.get_repository_def().asset_graph
    context = LoadingContextForTest(location.instance)
    resolver = CachingStaleStatusResolver(location.instance, graph, context)
    key = AssetKey(PLACED.split("/"))
    return [str(at) for at in DAYS if resolver.get_stale_causes(key, str(at))]


def test_a_run_of_days_builds_it_first_and_a_change_of_it_shows_days_as_outdated(location):
    texts = [str(day) for day in DAYS]
    places = location.world
    assert location.run_assets(NAMES, DAYS).success
    assert outcomes(location, REGIONS) == [(None, "accepted")]
    assert location.materialized(PLACED) == {*texts}
    assert failing(location) == {}
    assert stale(location) == []
    assert places.rows() == places.expected() != []

    # From the third day on, if rows hold from a day on.
    text = places.file.read_text()
    old, new = (",2,2,", ",3,3,") if "valid_from" in text else ("Fresno,", "Fresno ,")
    assert old in text
    places.deliver_regions(text.replace(old, new))
    later = texts[2:] if "valid_from" in text else texts
    assert failing(location) == {REGIONS: [None]}
    assert launched(location, {REGIONS: [NO_DAY]}).success
    assert outcomes(location, REGIONS)[1:] == [(None, "accepted")]
    assert failing(location) == {PLACED: later}
    assert launched(location, {REGIONS: [NO_DAY], PLACED: [DAYS[0], DAYS[2]]}).success
    assert failing(location) == {PLACED: [at for at in later if at not in (texts[0], texts[2])]}
    assert launched(location, {PLACED: DAYS}).success
    assert (failing(location), stale(location)) == ({}, [])
    assert places.rows() == places.expected()


def test_a_refused_version_fails_its_check_and_stops_no_day(built):
    location = built
    places = location.world
    before = places.rows()
    places.deliver_regions(places.file.read_text() + places.file.read_text().partition("\n")[2])
    result = location.run_assets(NAMES, DAYS)
    assert [*location.failures(result)] == [REGIONS]
    assert location.materialized(PLACED) == {str(day) for day in DAYS}
    assert places.rows() == before
    assert failing(location) == {}
    assert states(places.status(), REGIONS) == {"failed": [NO_DAY]}


def test_the_sensor_of_sources_finds_a_change_of_it(built):
    places = built.world
    assert [change for each in source_changes(places.workspace) for change in each.days] == []
    places.deliver_regions(places.file.read_text().replace("Chico,", "Chico ,"))
    found = [change for each in source_changes(places.workspace) for change in each.days]
    assert [(change.table, change.day) for change in found] == [(REGIONS, NO_DAY)]


@pytest.mark.scale
def test_a_night_takes_the_days_of_daily_tables_and_looks_at_it_too(location):
    places = location.world
    places.run(DAYS[:3])
    schedule = nightly_schedule(places.workspace)
    context = build_schedule_context(scheduled_execution_time=datetime(2019, 8, 19))
    request = schedule(context)
    assert isinstance(request, RunRequest)
    assert (request.tags[FIRST_DAY], request.tags[LAST_DAY]) == (str(DAYS[3]), str(DAYS[3]))
    job = location.defs.resolve_job_def(schedule.job_name)
    assert AssetKey(REGIONS.split("/")) in job.asset_layer.executable_asset_keys


def test_a_plan_builds_it_in_a_shadow_and_days_of_the_plan_read_it_there(built):
    places = built.world
    places.deliver_regions(places.file.read_text().replace("Chico,4,4,", "Chico,9,9,"))
    live = places.rows()
    request = RebuildRequest(
        partitions=str(DAYS[0]), target=REGIONS, downstream="built", into="shadow", force=True
    )
    plan = make_plan(request, places.workspace).plan
    assert {name: [*of] for name, of in plan.reasons.items()} == {REGIONS: [NO_DAY], PLACED: DAYS}
    open_shadow(plan, places.workspace, "ada")
    shadows = {f"shadow/{name}": [*of] for name, of in plan.reasons.items()}
    result = launched(built, shadows, **{tags.PLAN: plan.id})
    assert result.success, built.failures(result)
    lake = workspace_of(plan, places.workspace).lake
    accepted = lake.latest({REGIONS: None, PLACED: None}).accepted
    assert {(name, day) for name, day in accepted} == {(REGIONS, NO_DAY)} | {
        (PLACED, d) for d in DAYS
    }
    assert places.rows() == live
    assert outcomes(built, f"shadow/{REGIONS}") == [(None, "accepted")]
    assert CHANGES not in plan.reasons
