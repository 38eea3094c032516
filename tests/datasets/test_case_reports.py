"""The case reports as they were republished: status names the days whose files changed, and the
tables are DuckDB's.
"""

import csv
import gzip
import io
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from backfill_assets import Archive, TwoFlows, same_day, window
from backfill_assets.calendar import Calendar
from backfill_assets.datasets.case_reports import sample
from backfill_assets.datasets.case_reports.sample import (
    FIRST_DAY,
    LAST_DAY,
    SAMPLE,
    Version,
    deliver,
    versions,
)
from backfill_assets.datasets.case_reports.tables import (
    REPORTS,
    TABLES,
    WEEK,
    case_counts,
    case_reports,
    new_cases,
)
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build
from backfill_assets.plan.status import State, status_of
from backfill_assets.sources.archives.loading import load_archives
from backfill_assets.sources.files.formats import Csv
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import InputReader
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from tests.worlds.case_reports import (
    FEATURES,
    RAW,
    STAGING,
    Replay,
    Reports,
    differences,
    other_than_built_once,
    shuffled,
)
from tests.worlds.deliveries import put
from tests.worlds.depth import deep
from tests.worlds.processes import killed_at_point

pytestmark = [pytest.mark.long, pytest.mark.lake]

BATCHES = 4
# Days of two layouts, which were published again on several days.
FEW = Calendar(date(2020, 3, 18), LAST_DAY)
PAST = Archive("history", files="%m-%d-%Y.csv.gz", format=Csv())


@pytest.fixture(scope="module")
def replayed(tmp_path_factory, spark):
    """Each version, delivered in the order of publication, and the result of its step."""
    replay = Replay(
        Reports(tmp_path_factory.mktemp("reports"), Calendar(FIRST_DAY, LAST_DAY), lambda: spark)
    )
    order = list(versions())
    parts = [
        order[n * len(order) // BATCHES : (n + 1) * len(order) // BATCHES] for n in range(BATCHES)
    ]
    return replay, [replay.play(part) for part in parts]


def test_changed_days_are_due_and_only_rows_that_differ_are_rewritten(replayed):
    _, steps = replayed
    assert [list(step.wrong()) for step in steps] == [[]] * BATCHES
    assert sum(len(step.rebuilt[RAW]) for step in steps) > len(
        Calendar(FIRST_DAY, LAST_DAY).days()
    ), "some were rebuilt"


def test_in_the_end_every_table_is_the_oracles_and_that_of_one_build(replayed, tmp_path):
    replay, _ = replayed
    assert differences(replay.reports, replay.landed()) == []
    assert other_than_built_once(replay.reports, tmp_path, replay.landed()) == []


def test_nothing_is_due_in_the_end_and_all_times_could_be_read(replayed):
    reports = replayed[0].reports
    assert reports.due() == {RAW: [], STAGING: [], FEATURES: []}
    assert {
        (tuple(unparsed), malformed)
        for unparsed, malformed in reports.rows(RAW, "unparsed", "malformed")
    } == {((), None)}


@pytest.mark.nightly
def test_another_order_of_arrival_and_killed_processes_give_the_same_tables(tmp_path, spark, seed):
    """One is killed with rows written and not committed, one with rows committed that the ledger
    does not know of.
    """
    replay = Replay(Reports(tmp_path / "killed", FEW, lambda: spark))
    order = shuffled(
        [version for version in versions() if version.day in FEW.days()],
        seed,
        together=lambda version: "",
    )
    first, second = sorted(random.Random(seed).sample(range(1, len(order)), 2))
    steps = [
        replay.play(order[:first], partial(killed_at_point, replay.reports, STAGING, "commit"))
    ]
    steps += [
        replay.play(order[first:second], partial(killed_at_point, replay.reports, RAW, "record"))
    ]
    steps += [replay.play(order[second:])]
    assert [list(step.wrong()) for step in steps] == [[]] * 3
    assert differences(replay.reports, replay.landed()) == []
    assert other_than_built_once(replay.reports, tmp_path / "once", replay.landed()) == []


def with_archives() -> tuple[Table, ...]:
    """The tables, of whose days some lie in archives: the reports as they were published, whose day
    is in their names.
    """
    raw = replace(case_reports, reads={"rows": TwoFlows(REPORTS, PAST)})
    counts = replace(case_counts, reads={"reports": same_day(raw)})
    return raw, counts, replace(new_cases, reads={"counts": window(counts, first=-WEEK, last=0)})


def file_away(landing: Path, version: Version) -> None:
    put(landing, f"history/{version.day:%m-%d-%Y}.csv.gz", version.path.read_bytes())


@pytest.mark.nightly
def test_with_both_flows_at_once_they_come_to_the_same(tmp_path, spark, seed):
    """The first three days are archived one after the other, and the fourth as it was at first,
    while the others land.
    """
    reports = Reports(tmp_path / "both", FEW, lambda: spark, with_archives())
    published = [version for version in versions() if version.day in FEW.days()]
    archived = [version for version in published if version.day <= FEW.first + timedelta(days=3)][
        :4
    ]
    land = shuffled(
        [version for version in published if version.day > archived[2].day],
        seed,
        together=lambda version: "",
    )
    assert [version.day for version in archived] == FEW.days()[:4]

    def archives() -> None:
        for version in (archived[3], *archived[:3]):
            file_away(reports.landing, version)
            (taken,) = load_archives(PAST, reports.workspace.area)
            assert not taken.problem

    with ThreadPoolExecutor(1) as beside:
        flow = beside.submit(archives)
        for n in range(0, len(land), 4):
            for version in land[n : n + 4]:
                version.deliver(reports.landing)
            reports.run()
        flow.result()
    reports.run()
    assert reports.due() == {RAW: [], STAGING: [], FEATURES: []}
    final = [version.deliver(tmp_path / "all") for version in published]
    assert differences(reports, sorted({*final})) == []
    assert (
        other_than_built_once(reports, tmp_path / "once", sorted({*final}), (STAGING, FEATURES))
        == []
    )


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
    inputs = InputReader(declared, builds.accepted, workspace.calendar).fingerprints(day)
    if source:
        assert isinstance(delivery, Delivery)
        made = replace(made, delivered=delivery.fingerprint, files=delivery.files)
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    builds.add([replace(made, inputs=inputs, at=at, rules=declared.rules_version)])


@pytest.mark.parametrize("in_order", deep([True, False], [False]), ids=["in order", "in any order"])
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


DAYS = Calendar(date(2020, 2, 28), date(2020, 3, 1))
DAY = DAYS.last
FILE = "case_reports/03-01-2020.csv.gz"


@pytest.fixture(scope="module")
def built(tmp_path_factory, spark) -> Reports:
    reports = Reports(tmp_path_factory.mktemp("reports"), DAYS, lambda: spark)
    deliver(reports.landing)
    for file in (reports.landing / "case_reports").iterdir():
        if file.name[:10] not in {f"{day:%m-%d-%Y}" for day in DAYS.days()}:
            file.unlink()
    reports.run()
    return reports


def text(reports: Reports) -> str:
    return gzip.decompress((reports.landing / FILE).read_bytes()).decode()


def without_values(lines: str, column: str) -> str:
    header, *rows = csv.reader(lines.splitlines())
    at = header.index(column)
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(
        [header, *([*row[:at], "", *row[at + 1 :]] for row in rows)]
    )
    return written.getvalue()


BROKEN = {
    "a file with only a header": lambda lines: lines.splitlines()[0] + "\n",
    "a file cut short at a line": lambda lines: "\n".join(lines.splitlines()[:40]) + "\n",
    "a file cut short within a line": lambda lines: lines.rstrip()[:-25],
    "a file of another data set": lambda lines: "poll,pollster,share\n" + "1,a,0.5\n" * 125,
    "a column that turned null": lambda lines: without_values(lines, "Latitude"),
    "counts that are no numbers": lambda lines: (
        f"{lines.splitlines()[0]}\n"
        + "Hubei,Mainland China,2020-03-01T10:13:19,n/a,n/a,n/a,1,1\n" * 125
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_report_is_refused_and_the_version_before_stays(golden, built, tmp_path, broken):
    reports = built.copied(tmp_path)
    before = reports.rows(RAW, "report_day", "country", "confirmed")
    (reports.landing / FILE).write_bytes(gzip.compress(broken(text(reports)).encode()))
    reports.run(run="broken")
    last = reports.workspace.lake.latest({RAW: [DAY]}).last[RAW, DAY]
    assert last.outcome == "failed"
    golden(last.message)
    assert reports.rows(RAW, "report_day", "country", "confirmed") == before
    assert reports.states(RAW)[RAW] == {State.UP_TO_DATE: DAYS.days()[:-1], State.FAILED: [DAY]}
    assert reports.due(STAGING, FEATURES) == {STAGING: [], FEATURES: []}


@pytest.mark.parametrize(
    ("way", "accept", "rows", "due"),
    [
        ("a file with only a header", f"{FILE}, has_rows", 0, [DAY]),
        ("a file cut short at a line", "case_reports/*", 39, []),
        ("a file cut short within a line", f"{FILE},rows_well_formed", 125, []),
        ("a file of another data set", f"{FILE},nulls_at_most,columns_still_filled", 125, [DAY]),
        ("a column that turned null", "latitude", 125, []),
    ],
)
def test_what_is_accepted_by_name_is_built_and_the_record_says_so_and_why(
    built, tmp_path, way, accept, rows, due
):
    """Days of staging stay due where its own rules refuse what was accepted: no country, no row."""
    reports = built.copied(tmp_path)
    (reports.landing / FILE).write_bytes(gzip.compress(BROKEN[way](text(reports)).encode()))
    reports.run(run="accepting", accept=accept, reason="as it was published")
    build = reports.workspace.lake.latest({RAW: [DAY]}, BUILD_SCHEMA.names).accepted[RAW, DAY]
    assert (build.run, build.accept, build.reason, build.rows) == (
        "accepting",
        accept,
        "as it was published",
        rows,
    )
    assert {name: days for name, days in reports.due(RAW, STAGING).items() if days} == (
        {STAGING: due} if due else {}
    )
    # It stays accepted, by whatever code the same files are read again.
    (again,) = (
        Step(TABLES[0], reports.workspace, StepRequest(run="again", force=True), reports.spark)
        .run([DAY])
        .built
    )
    assert (again.outcome, again.accept, again.message) == ("unchanged", accept, "")


def test_accepting_a_file_does_not_accept_what_rules_say_of_it(built, tmp_path):
    reports = built.copied(tmp_path)
    before = reports.rows(RAW, "report_day", "country", "confirmed")
    (reports.landing / FILE).write_bytes(
        gzip.compress(BROKEN["a file with only a header"](text(reports)).encode())
    )
    reports.run(run="accepting", accept=FILE, reason="as it was published")
    last = reports.workspace.lake.latest({RAW: [DAY]}).last[RAW, DAY]
    assert (last.outcome, last.message[:10]) == ("failed", "has_rows: ")
    assert reports.rows(RAW, "report_day", "country", "confirmed") == before
