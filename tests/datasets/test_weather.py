"""The weather beside the outages: asked for by the step that builds it, waited for by no other
table, off by itself.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from typing import Any

import duckdb
import pytest

from backfill_assets.datasets.outages.features import region_daily
from backfill_assets.datasets.outages.weather import REGIONS, VARIABLES, region_weather, weather
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.status import Status, latest_builds, status_of
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.http.open_meteo import OpenMeteo
from backfill_assets.step.request import StepResult
from backfill_assets.tables.declaration import Table, same_day, window
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.code_location import opened_location
from tests.worlds.outages import EIGHT, World
from tests.worlds.suite import SAMPLE
from tests.worlds.weather import WeatherService, running, value

pytestmark = pytest.mark.long

WEATHER = weather.name
BESIDE = region_weather.name
THREE = EIGHT[:3]
OFF = "backfill_assets.datasets.outages.project"
ON = "backfill_assets.datasets.outages.with_weather"
# All places in one request, one day in each, so that a budget of two requests is one of two days.
ONE_DAY = 252
# A region whose place these tables do not know.
NOWHERE = "Oakland"
MEDIANS = """
    SELECT regionName, median(latitude), median(longitude)
    FROM read_json($1, columns = {regionName: 'VARCHAR', latitude: 'DOUBLE', longitude: 'DOUBLE'})
    GROUP BY 1
"""


@pytest.fixture
def service() -> Iterator[WeatherService]:
    with running(units=VARIABLES) as service:
        yield service


@dataclass(frozen=True)
class WeatherWorld(World):
    """The same tables and those of the weather, with an own budget of the service at `url`."""

    url: str = ""
    days: list[int] = field(default_factory=lambda: [2])

    @property
    def tables(self) -> list[Table]:
        asked = OpenMeteo(
            "weather", places=places(), variables=VARIABLES, at_a_time=1000, at_once=1,
            limits=((ONE_DAY * self.days[0], 86_400.0),),
        )  # fmt: skip
        own = replace(weather, reads={"answers": asked})
        reads = {
            "daily": same_day(region_daily),
            "weather": window(own, first=0, last=0, wait_for=-1),
        }
        return [*super().tables, own, replace(region_weather, reads=reads)]

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)

    @property
    def workspace(self) -> Workspace:
        area = LandingArea(self.landing, lake=str(self.root), urls={"weather": self.url})
        return replace(super().workspace, tables=tuple(self.tables), area=area)

    def build(self, **request: Any) -> dict[str, StepResult]:
        return self.run(THREE, [WEATHER, BESIDE], **request)

    def status(self) -> Status:
        return status_of(self.workspace, self.tables, THREE, latest=latest_builds(self.workspace))


@pytest.fixture
def world(eight, tmp_path, service) -> WeatherWorld:
    copy = eight.copied(tmp_path)
    return WeatherWorld(copy.root, copy.landing, copy.spark, copy.calendar, service.url)


@cache
def regions() -> dict[str, tuple[float, float]]:
    with REGIONS.open() as file:
        return {
            name: (float(latitude), float(longitude))
            for name, latitude, longitude in list(csv.reader(file))[1:]
        }


def places() -> dict[str, tuple[float, float]]:
    return {name: place for name, place in regions().items() if name != NOWHERE}


def expected(day: date, region: str) -> tuple[float | None, ...]:
    if region not in places():
        return (None,) * len(VARIABLES)
    latitude, longitude = (round(degrees * 4) / 4 for degrees in places()[region])
    return tuple(value(name, latitude, longitude, day) for name in VARIABLES)


def known(world: WeatherWorld) -> dict[date, set[bool]]:
    """By day, what `weather_known` is in its rows of regions that have a place."""
    by_day: dict[date, set[bool]] = {}
    for row in (row for row in world.rows(BESIDE) if row["region"] != NOWHERE):
        by_day.setdefault(row["outage_day"], set()).add(row["weather_known"])
    return by_day


def test_a_day_beyond_the_budget_and_its_readers_are_built_by_a_later_run(world, service):
    built = world.build()
    assert sorted(world.accepted(WEATHER)) == THREE[:2]
    assert [*built[WEATHER].blocked] == [THREE[2]]
    waits = (
        r"waits: weather gets no request before \d{4}-.* UTC: its budget of 504 in 86,400 s is used"
        r" up\. A nightly run builds recent days later\. For this day, type"
        r" `backfill run --partitions 2019-08-17 --target external/weather`"
    )
    assert built[WEATHER].failed() == []
    assert re.fullmatch(waits, built[WEATHER].blocked[THREE[2]])
    assert known(world) == {THREE[0]: {True}, THREE[1]: {True}, THREE[2]: {False}}
    status = world.status()
    assert status.partitions[WEATHER, THREE[2]].state == "missing"
    assert status.of(BESIDE) == {"up to date": THREE}

    assert world.build(skip_not_due=True)[WEATHER].blocked == {}, (
        "a nightly run leaves it to the next"
    )
    world.days[0] = 3  # the next day
    before = world.fingerprints(BESIDE)
    later = world.build()
    assert {name: [build.day for build in result.built] for name, result in later.items()} == {
        WEATHER: [THREE[2]], BESIDE: [THREE[2]],
    }  # fmt: skip
    assert known(world) == {day: {True} for day in THREE}
    assert {
        day for day, print_of in world.fingerprints(BESIDE).items() if print_of != before[day]
    } == {THREE[2]}
    assert service.days() == [(str(day), str(day)) for day in THREE]


def test_rows_are_the_answers_of_the_service_and_no_outage_is_lost(world):
    world.days[0] = 3
    world.build()
    daily = {
        (row["outage_day"], row["region"]): row for row in world.rows(region_daily.name, THREE)
    }
    beside = {(row["outage_day"], row["region"]): row for row in world.rows(BESIDE)}
    assert beside.keys() == daily.keys()
    assert NOWHERE in {region for _, region in beside}
    for (day, region), row in beside.items():
        assert (row["outages"], row["customers"]) == (
            daily[day, region]["outages"],
            daily[day, region]["customers"],
        )
        assert row["weather_known"] == (region in places())
        assert tuple(row[name] for name in VARIABLES) == expected(day, region)
    assert len(world.rows(WEATHER)) == 3 * 885


def test_a_rebuild_asks_nothing_and_gives_the_same_rows(world, service):
    world.days[0] = 3
    world.build()
    before = world.fingerprints(WEATHER)
    asked = len(service.log)
    rebuilt = world.run(THREE, [WEATHER], force=True, run="another")[WEATHER]
    assert [build.outcome for build in rebuilt.built] == ["unchanged"] * 3
    assert (world.fingerprints(WEATHER), len(service.log)) == (before, asked)


def test_a_wrong_answer_fails_its_day_and_says_so_and_the_others_are_built(
    world, service, monkeypatch
):
    service.faults += ["", "400"]
    built = world.build()
    assert {build.day: build.outcome for build in built[WEATHER].built} == {
        THREE[0]: "accepted",
        THREE[1]: "failed",
    }
    assert "the service answered 400" in built[WEATHER].failed()[0].message
    assert known(world) == {THREE[0]: {True}, THREE[1]: {False}, THREE[2]: {False}}


def test_a_run_materializes_the_answered_days_and_every_day_of_the_other_table(world, golden):
    with opened_location(world) as location:
        run = location.run_assets([WEATHER, BESIDE], THREE)
        assert not run.success
        assert location.materialized(WEATHER) == {str(day) for day in THREE[:2]}
        assert location.materialized(BESIDE) == {str(day) for day in THREE}
        failures = location.failures(run)
    assert [*failures] == [WEATHER], "one day of it is not built"
    (later,) = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", failures[WEATHER])
    golden(failures[WEATHER], LATER=later)
    assert known(world) == {THREE[0]: {True}, THREE[1]: {True}, THREE[2]: {False}}


def test_importing_status_and_plan_ask_nothing(tmp_path, service):
    urls = {"weather": service.url}
    workspace = open_workspace(
        tmp_path, project=ON, home=tmp_path, lake="", landing=SAMPLE, service_urls=urls
    )
    assert workspace.names[8:] == [WEATHER, BESIDE]
    assert (
        open_workspace(tmp_path, project=OFF, home=tmp_path, lake="").names == workspace.names[:8]
    )
    definitions_of(workspace).resolve_job_def("backfill_rebuild")
    status = status_of(workspace, workspace.tables, THREE, latest=latest_builds(workspace))
    why = "weather has no answer for 2019-08-15 yet: a run that builds the day asks for it"
    assert (status.partitions[WEATHER, THREE[0]].why, status.of(WEATHER)) == (
        why,
        {"missing": THREE},
    )
    planned = make_plan(
        RebuildRequest(partitions="2019-08-15..2019-08-17", target=WEATHER), workspace
    )
    assert [*planned.plan.partitions()] == [(WEATHER, day) for day in THREE]
    assert (planned.unusable, service.log) == ({}, [])


def test_regions_are_where_their_outages_are():
    with duckdb.connect() as database:
        medians = database.execute(MEDIANS, [f"{SAMPLE}/outage_events/**/*.jsonl.gz"]).fetchall()
    # Half a hundredth either way: versions of DuckDB round a median such as 38.165 up or down.
    nearest = {region: pytest.approx(place, abs=0.005 + 1e-9) for region, *place in medians}
    assert {region: [*place] for region, place in regions().items()} == nearest
    assert {round(degrees, 2) - degrees for place in regions().values() for degrees in place} == {0}
    source = weather.source()
    assert isinstance(source, OpenMeteo)
    assert sum(source.units(query, 14) for query in source.queries()) == ONE_DAY
