"""A run on days with gaps builds and plans exactly the days that its tag names for each asset."""

from collections.abc import Iterator
from datetime import date

import pytest
from dagster import AssetKey, DagsterEventType, EventRecordsFilter
from dagster._core.storage.partition_status_cache import AssetPartitionStatus

from backfill_assets.dagster_client import tags
from backfill_assets.orchestration.local.event_log import LocalInstance
from tests.worlds.code_location import CodeLocation, built_location, failure
from tests.worlds.deliveries import day, days
from tests.worlds.depth import deep

UPDATES = "staging/outage_updates"
RAW = "raw/outage_events"
LARGEST_IN_AN_INDEX_OF_POSTGRESQL = 2704


@pytest.fixture
def location(tmp_path, spark) -> Iterator[CodeLocation]:
    """Four days of every table, built by a run."""
    with built_location(tmp_path, spark) as (made, _):
        yield made


def launched(location: CodeLocation, named: dict[str, list[date]], **options):
    """A run of exactly these days, with the tags that the client gives it."""
    among = sorted({at for of_table in named.values() for at in of_table})
    return location.run_assets(
        list(named), among, {**tags.tags_of_days(named), tags.REASON: "to see"}, **options
    )


def planned(location: CodeLocation, run: str, name: str) -> set[str | None]:
    """The days of a table that Dagster expects from a run."""
    kind = DagsterEventType.ASSET_MATERIALIZATION_PLANNED
    records = location.instance.get_event_records(
        EventRecordsFilter(kind, AssetKey(name.split("/"))), limit=100
    )
    return {record.partition_key for record in records if record.run_id == run}


def failed_days(location: CodeLocation, name: str) -> set[str]:
    """The days of a table that Dagster shows as failed. It shows none as in progress."""
    key = AssetKey(name.split("/"))
    definition = location.defs.resolve_asset_graph().get(key).partitions_def
    assert definition
    shown = location.instance.get_status_by_partition(
        key, definition.get_partition_keys(), definition
    )
    assert shown
    assert AssetPartitionStatus.IN_PROGRESS not in shown.values()
    return {at for at, status in shown.items() if status == AssetPartitionStatus.FAILED}


def test_the_days_between_are_neither_built_nor_planned(location):
    assert isinstance(location.instance, LocalInstance)
    named = {RAW: days(0, 3), UPDATES: days(0, 2, 3)}
    before = len(location.world.lake.ledger.builds())
    result = launched(location, named, force=True)
    assert result.success
    for table, of_table in named.items():
        assert planned(location, result.run_id, table) == set(map(str, of_table))
    written = location.world.lake.ledger.builds()[before:]
    assert sorted((build.table, build.day) for build in written) == sorted(
        (table, at) for table, of_table in named.items() for at in of_table
    )


def test_a_failed_run_leaves_the_days_between_as_they_were_shown(location):
    location.world.write(day(3), [])
    result = launched(location, {RAW: days(0, 3)}, force=True)
    assert not result.success
    assert failed_days(location, RAW) == {str(day(3))}


def test_a_tag_that_names_no_days_of_an_asset_builds_nothing_of_it(location, golden):
    before = len(location.world.lake.ledger.builds())
    tagged = tags.tags_of_days({UPDATES: days(0, 3)})
    result = location.run_assets([RAW], days(0, 3), tagged, force=True)
    golden(failure(result))
    assert len(location.world.lake.ledger.builds()) == before


@pytest.mark.parametrize("typed", deep(["", "some", f"{UPDATES}: {day(0)}"], ["some"]))
def test_a_run_whose_tag_cannot_be_used_ends_and_builds_nothing(location, typed):
    before = len(location.world.lake.ledger.builds())
    result = location.run_assets([RAW], days(0, 3), {tags.DAYS: typed}, force=True)
    assert failure(result)
    assert len(location.world.lake.ledger.builds()) == before


def test_a_tag_names_the_days_of_each_asset():
    named = {RAW: days(0, 3), UPDATES: days(0, 2, 3)}
    assert tags.days_of_assets(tags.tags_of_days(named)) == named
    assert tags.days_of_assets({}) == {}


def test_many_single_days_are_in_several_tags_that_an_index_takes():
    named = {f"features/table_{n}": days(*range(n % 2, 400, 2)) for n in range(30)}
    tagged = tags.tags_of_days(named)
    assert tags.days_of_assets(tagged) == named
    assert max(map(len, tagged.values())) <= LARGEST_IN_AN_INDEX_OF_POSTGRESQL
