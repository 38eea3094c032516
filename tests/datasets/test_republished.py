"""The published states of the case reports in the sample, one after the other: status names the day
of each. No Spark.
"""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.case_reports import sample
from backfill_assets.datasets.case_reports.sample import SAMPLE, versions
from backfill_assets.datasets.case_reports.tables import TABLES
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.status import State, status_of
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import tables_read
from tests.worlds.case_reports import FEATURES, RAW, STAGING, Reports, shuffled


def no_spark():
    raise AssertionError("nothing is computed here")


def due(reports: Reports, builds: Latest) -> dict[str, list[date]]:
    """The days of each table that were built and are not up to date any more, or were never built
    and can be.
    """
    workspace = reports.workspace
    status = status_of(workspace, workspace.tables, workspace.calendar.days(), latest=builds)
    days: dict[str, list[date]] = {table: [] for table in status.tables}
    for (table, day), found in status.partitions.items():
        if found.state != State.UP_TO_DATE and not found.why.startswith(("no source", "needs")):
            days[table].append(day)
    return days


def week_before(day: date, calendar: Calendar) -> list[date]:
    """What a day of features reads."""
    return list(calendar.clip(day - timedelta(days=n) for n in range(8)))


def build(reports: Reports, builds: Latest, table: str, day: date, number: int) -> None:
    """Record the day as a step does that finds other rows."""
    workspace = reports.workspace
    declared = next(each for each in TABLES if each.name == table)
    source = declared.source()
    delivery = source.delivered(workspace.area, [day])[day] if source else None
    made = Build(
        table,
        day,
        "accepted",
        f"run{number}",
        declared.version,
        fingerprint=f"{table} {day} {number}",
    )
    inputs = tables_read(declared, day, builds.accepted, workspace.calendar)
    if source:
        assert isinstance(delivery, Delivery)
        made = replace(made, delivered=delivery.fingerprint, files=delivery.files)
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    builds.add([replace(made, inputs=inputs, at=at, rules=declared.rules_version)])


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "in any order within a day"])
def test_exactly_the_published_day_is_due_and_then_what_is_read_from_it(
    tmp_path, in_order: bool, seed
):
    reports = Reports(tmp_path, Calendar(sample.FIRST_DAY, sample.LAST_DAY), no_spark)
    builds = Latest()
    published = list(versions(SAMPLE)) if in_order else shuffled(list(versions(SAMPLE)), seed)
    assert len(published) == 44
    for number, version in enumerate(published):
        version.deliver(reports.landing)
        found = due(reports, builds)
        assert found[RAW] == [version.day], version
        build(reports, builds, RAW, version.day, number)
        found = due(reports, builds)
        assert (found[RAW], found[STAGING]) == ([], [version.day])
        build(reports, builds, STAGING, version.day, number)
        built = {day for table, day in builds.accepted if table == STAGING}
        found = due(reports, builds)
        reading = reports.calendar.clip(version.day + timedelta(days=n) for n in range(8))
        assert found[FEATURES] == [
            day for day in reading if built.issuperset(week_before(day, reports.calendar))
        ]
        for day in found[FEATURES]:
            build(reports, builds, FEATURES, day, number)
    assert due(reports, builds) == {RAW: [], STAGING: [], FEATURES: []}
