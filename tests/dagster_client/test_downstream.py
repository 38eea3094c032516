"""The ordinary assets downstream of tables, as Dagster's webserver has them and launches them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from dagster import (
    AssetKey,
    AssetSpec,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    MultiPartitionsDefinition,
    StaticPartitionsDefinition,
    WeeklyPartitionsDefinition,
    asset,
)

from backfill_assets.calendar import NO_DAY
from backfill_assets.dagster_client import documents, tags
from backfill_assets.dagster_client.client import Dagster, Launched
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.plan.remaining import Readers, readers_left
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.rollback import roll_back
from backfill_assets.tables.reference import reference
from backfill_assets.verbs.downstream import (
    assets_downstream,
    downstream_line,
    launch_once,
    readers_of,
)
from tests.worlds import ordinary
from tests.worlds.deliveries import day, days
from tests.worlds.ordinary import answering
from tests.worlds.small_lake import CALENDAR, A, B, SmallLake
from tests.worlds.tables import workspace_of

pytestmark = pytest.mark.lake

DAILY = DailyPartitionsDefinition(str(day(0)), end_date=str(day(14)))
WEEKLY = WeeklyPartitionsDefinition(str(day(0)), end_date=str(day(14)), day_offset=4)
BOTH = MultiPartitionsDefinition(
    {"day": DAILY, "region": StaticPartitionsDefinition(["north", "south"])}
)
REGIONS = reference(
    "ref/regions", source="ref/regions.csv", columns="region STRING", key=["region"], version="1"
)
ZONES = replace(REGIONS, name="ref/zones")
TABLES = [A, B, REGIONS, ZONES]
NAMES = [table.name for table in TABLES]


def reader(key: str, *deps: str, partitions: Any = None) -> Any:
    @asset(key=key.split("/"), deps=[name.split("/") for name in deps], partitions_def=partitions)
    def made() -> None: ...

    return made


ASSETS = [
    reader("mart/daily", "raw/a", partitions=DAILY),
    reader("mart/weekly", "mart/daily", partitions=WEEKLY),
    reader("mart/regions", "raw/a", partitions=BOTH),
    reader("mart/page", "mart/weekly"),
    reader("mart/of_b", "raw/b", partitions=DAILY),
    reader("other/asset", partitions=DAILY),
    reader("mart/map", "ref/regions"),
    reader("mart/atlas", "mart/map"),
    reader("mart/zoned", "ref/zones", partitions=DAILY),
    reader("mart/placed", "ref/regions", "raw/a", partitions=DAILY),
]
OUTSIDE = AssetSpec("outside", deps=[AssetKey(["raw", "a"])])


@pytest.fixture
def dagster(tmp_path, monkeypatch) -> Iterator[Dagster]:
    workspace = workspace_of(TABLES, CALENDAR, str(tmp_path / "lake"))
    theirs = Definitions(assets=[*ASSETS, OUTSIDE])
    defs = Definitions.merge(definitions_of(workspace), theirs)
    monkeypatch.setattr(ordinary, "SERVED", defs)
    with (
        DagsterInstance.local_temp(str(tmp_path)) as instance,
        answering(instance) as dagster,
    ):
        monkeypatch.setattr(dagster, "instance", instance, raising=False)
        yield dagster


def launched_partitions(dagster: Any) -> dict[str, Any]:
    """The partitions of each asset of the one backfill; None for an asset without partitions."""
    (backfill,) = dagster.instance.get_backfills()
    target = backfill.asset_backfill_data.target_subset
    return {
        key.to_user_string(): sorted(target.get_partitions_subset(key).get_partition_keys())
        if key in target.partitions_subsets_by_asset_key
        else None
        for key in target.asset_keys
    }


def launch_readers(dagster: Dagster, changed: Any, run_tags: Any) -> Launched:
    _, targets = readers_of(dagster, NAMES, changed)
    return launch_once(dagster, targets, run_tags)


def test_ordinary_assets_are_named_and_tables_are_not(dagster, tmp_path):
    workspace = workspace_of(TABLES, CALENDAR, str(tmp_path))
    assert {name: assets_downstream(dagster, [name], workspace) for name in NAMES} == {
        "raw/a": ["mart/daily", "mart/page", "mart/placed", "mart/regions", "mart/weekly"],
        "raw/b": ["mart/of_b"],
        "ref/regions": ["mart/atlas", "mart/map", "mart/placed"],
        "ref/zones": ["mart/zoned"],
    }


def test_the_partitions_that_dagster_maps_are_launched_once(dagster):
    changed = {"raw/a": days(1, 2), "raw/b": days(3)}
    run_tags = {tags.LAUNCH: "a plan-1", tags.REASON: "downstream of a plan"}
    launched = launch_readers(dagster, changed, run_tags)
    assert launched_partitions(dagster) == {
        "mart/daily": [str(day(1)), str(day(2))],
        "mart/weekly": [str(day(0))],
        "mart/regions": [f"{at}|{r}" for at in days(1, 2) for r in ("north", "south")],
        "mart/page": None,
        "mart/placed": [str(day(1)), str(day(2))],
        "mart/of_b": [str(day(3))],
    }
    again = launch_readers(dagster, changed, run_tags)
    assert again.id == launched.id
    assert launch_readers(dagster, changed, run_tags | {tags.LAUNCH: "a plan-2"}) != launched


@pytest.mark.parametrize(
    ("changed", "launched"),
    [
        ({}, {"mart/map": None, "mart/atlas": None}),
        (
            {"raw/b": days(3)},
            {"mart/map": None, "mart/atlas": None, "mart/of_b": [str(day(3))]},
        ),
        (
            {"raw/a": days(2)},
            {"mart/map": None, "mart/atlas": None, "mart/page": None}
            | {"mart/daily": [str(day(2))], "mart/placed": [str(day(2))]}
            | {"mart/weekly": [str(day(0))]}
            | {"mart/regions": [f"{day(2)}|{region}" for region in ("north", "south")]},
        ),
    ],
    ids=["alone", "with days of others", "with days of what its reader reads"],
)
def test_a_changed_table_without_days_launches_its_readers_without_partitions(
    dagster, changed, launched
):
    days_of = {REGIONS.name: [NO_DAY], **changed}
    launch_readers(dagster, days_of, {tags.LAUNCH: "a plan-1"})
    assert launched_partitions(dagster) == launched


@pytest.mark.parametrize("launch", [False, True], ids=["asked", "launched"])
def test_nothing_is_offered_or_launched_if_only_assets_with_partitions_read_it(
    dagster, tmp_path, monkeypatch, golden, launch
):
    lake = SmallLake(tmp_path / "lake", tables=(REGIONS, ZONES))
    plan = lake.plan({ZONES.name: [NO_DAY]})
    readers = Readers({}, changed=[(ZONES.name, NO_DAY)])
    asked: list[str] = []
    ask = Dagster.ask

    def counted(self: Dagster, query: str, *more: Any) -> Any:
        asked.append(query)
        return ask(self, query, *more)

    monkeypatch.setattr(Dagster, "ask", counted)
    line = downstream_line(plan, readers, lake.workspace, lambda: dagster, launch=launch, who="ada")
    golden(line)
    assert asked == [documents.GRAPH]
    assert dagster.instance.get_backfills() == []


def test_a_publication_and_a_rollback_name_and_launch_what_reads_the_changed_days(
    dagster, tmp_path, golden
):
    lake = SmallLake(tmp_path / "lake")
    lake.write(dict.fromkeys(days(0, 1, 2), 1))
    plan = lake.shadow_plan({"raw/a": days(1, 2)})
    lake.write({day(1): 5, day(2): 1}, into=plan)
    Publication(plan, lake.workspace, "ada").publish(lambda _: None)

    def line(*, launch: bool, server: Dagster = dagster) -> str:
        readers = readers_left(plan, lake.workspace)
        return downstream_line(
            plan, readers, lake.workspace, lambda: server, launch=launch, who="ada"
        )

    golden(line(launch=False), "named")
    assert dagster.instance.get_backfills() == []
    launched = line(launch=True)
    assert line(launch=True) == launched
    (backfill,) = dagster.instance.get_backfills()
    golden(launched, "launched", BACKFILL=backfill.backfill_id)
    # The other day has the same rows as before.
    assert launched_partitions(dagster)["mart/daily"] == [str(day(1))]
    assert backfill.tags[tags.WHO] == "ada"
    assert line(launch=False, server=Dagster("")) == ""
    golden(line(launch=True, server=Dagster("")), "without a webserver")
    roll_back(plan, lake.workspace, who="ada")
    line(launch=True)
    line(launch=True)
    assert len(dagster.instance.get_backfills()) == 2
