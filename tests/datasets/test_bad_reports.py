"""Reports that are broken in the ways that real ones were: refused with the figures, the version
before intact, or accepted.

Steps on Spark: that a refusal leaves the committed rows, and an acceptance is recorded with its
reason, no pure test shows.
"""

import csv
import gzip
import io
from datetime import date

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.case_reports.sample import deliver
from backfill_assets.datasets.case_reports.tables import TABLES
from backfill_assets.lake.ledger import SCHEMA
from backfill_assets.plan.status import State
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from tests.worlds.case_reports import FEATURES, RAW, STAGING, Reports

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
    "a file with only a header": (
        lambda lines: lines.splitlines()[0] + "\n",
        f"the source for {DAY} may be incomplete: {FILE} has no lines. The day stays as it was.",
    ),
    "a file cut short at a line": (
        lambda lines: "\n".join(lines.splitlines()[:40]) + "\n",
        (
            f"the source for {DAY} may be incomplete: {FILE} has 39 lines, and all files of the day"
            " had 125. The day stays"
        ),
    ),
    "a file cut short within a line": (
        lambda lines: lines.rstrip()[:-25],
        f"the source for {DAY} cannot be used: {FILE} is cut off",
    ),
    "a file of another data set": (
        lambda lines: "poll,pollster,share\n" + "1,a,0.5\n" * 125,
        (
            f"the source for {DAY} cannot be used: {FILE} has no column Country_Region, also called"
            " Country/Region, which country"
        ),
    ),
    "a column that turned null": (
        lambda lines: without_values(lines, "Latitude"),
        (
            "columns_still_filled: latitude null in all 125 rows, and had values in the accepted"
            " ones. If that is right, accept it: --accept latitude"
        ),
    ),
    "counts that are no numbers": (
        lambda lines: (
            f"{lines.splitlines()[0]}\n"
            + "Hubei,Mainland China,2020-03-01T10:13:19,n/a,n/a,n/a,1,1\n" * 125
        ),
        "columns_still_filled: confirmed, deaths, recovered null in all 125 rows",
    ),
}


@pytest.mark.parametrize(("broken", "why"), BROKEN.values(), ids=BROKEN)
def test_a_broken_report_is_refused_and_the_version_before_stays(built, tmp_path, broken, why):
    reports = built.copied(tmp_path)
    before = reports.rows(RAW, "report_day", "country", "confirmed")
    (reports.landing / FILE).write_bytes(gzip.compress(broken(text(reports)).encode()))
    reports.run(run="broken")
    last = reports.workspace.lake.latest({RAW: [DAY]}).last[RAW, DAY]
    assert (last.outcome, last.message[: len(why)]) == ("failed", why)
    assert ("unparsed_at_most: unreadable: confirmed 125 of 125" in last.message) == (
        "confirmed" in why
    )
    assert reports.rows(RAW, "report_day", "country", "confirmed") == before
    assert reports.states(RAW)[RAW] == {State.UP_TO_DATE: DAYS.days()[:-1], State.FAILED: [DAY]}
    assert reports.due(STAGING, FEATURES) == {STAGING: [], FEATURES: []}


@pytest.mark.parametrize(
    ("way", "accept", "rows", "due"),
    [
        ("a file with only a header", f"{FILE}, has_rows", 0, [DAY]),
        ("a file cut short at a line", "case_reports/*", 39, []),
        ("a file cut short within a line", FILE, 125, []),
        ("a file of another data set", f"{FILE},nulls_at_most,columns_still_filled", 125, [DAY]),
        ("a column that turned null", "latitude", 125, []),
    ],
)
def test_what_is_accepted_by_name_is_built_and_the_record_says_so_and_why(
    built, tmp_path, way, accept, rows, due
):
    """Days of staging stay due where its own rules refuse what was accepted: no country, no row."""
    reports = built.copied(tmp_path)
    (reports.landing / FILE).write_bytes(gzip.compress(BROKEN[way][0](text(reports)).encode()))
    reports.run(run="accepting", accept=accept, reason="as it was published")
    build = reports.workspace.lake.latest({RAW: [DAY]}, SCHEMA.names).accepted[RAW, DAY]
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
        gzip.compress(BROKEN["a file with only a header"][0](text(reports)).encode())
    )
    reports.run(run="accepting", accept=FILE, reason="as it was published")
    last = reports.workspace.lake.latest({RAW: [DAY]}).last[RAW, DAY]
    assert (last.outcome, last.message[:10]) == ("failed", "has_rows: ")
    assert reports.rows(RAW, "report_day", "country", "confirmed") == before
