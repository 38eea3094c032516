"""The case reports as they were republished: status names the days whose files changed, and the tables are DuckDB's."""

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.case_reports.sample import FIRST_DAY, LAST_DAY, versions
from tests.datasets.reports import FEATURES, RAW, STAGING, Reports, oracle

BATCHES = 6


@pytest.fixture(scope="module")
def replayed(tmp_path_factory, spark):
    """Each version delivered in the order of publication, in batches; what was due before each, and what changed by it."""
    reports = Reports(tmp_path_factory.mktemp("reports"), Calendar(FIRST_DAY, LAST_DAY), lambda: spark)
    order, history = list(versions()), []
    for n in range(BATCHES):
        batch = order[n * len(order) // BATCHES : (n + 1) * len(order) // BATCHES]
        for version in batch:
            version.deliver(reports.landing)
        due = reports.due(RAW)[RAW]
        history.append((sorted({version.day for version in batch}), due, reports.run()))
    return reports, history


def test_status_names_exactly_the_days_whose_reports_were_published(replayed):
    _, history = replayed
    assert [due for _, due, _ in history] == [published for published, _, _ in history]


def test_only_the_days_of_other_files_and_what_is_read_from_them_change(replayed):
    _, history = replayed
    for published, _, changed in history:
        assert changed[RAW] == published
        assert set(changed[STAGING]) <= set(published)
        reach = {day for day in Calendar(FIRST_DAY, LAST_DAY).days() for at in published if 0 <= (day - at).days <= 7}
        assert set(changed[FEATURES]) <= reach


def test_in_the_end_every_table_is_the_oracles(replayed):
    reports, _ = replayed
    files = sorted((reports.landing / "case_reports").iterdir())
    with oracle(files, FIRST_DAY, LAST_DAY) as database:
        for name, table in {STAGING: "staging", FEATURES: "features"}.items():
            expected = database.execute(f"SELECT * FROM {table}")
            columns = [column[0] for column in expected.description]
            assert reports.rows(name, *columns) == sorted(expected.fetchall(), key=repr)
        assert database.execute("SELECT count(*) FROM cells").fetchall() == [(len(reports.rows(RAW, "report_day")),)]


def test_nothing_is_due_in_the_end_and_all_times_could_be_read(replayed):
    reports, _ = replayed
    assert reports.due() == {RAW: [], STAGING: [], FEATURES: []}
    assert {(tuple(unparsed), malformed) for unparsed, malformed in reports.rows(RAW, "unparsed", "malformed")} == {((), None)}
