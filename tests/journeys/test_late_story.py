"""`backfill demo --story late`, as a new user gives it: a late file, a republished day and half a
file, on real servers.
"""

from datetime import date

import pytest

from backfill_assets.calendar import between
from backfill_assets.cli.story import read_story
from backfill_assets.datasets.case_reports.tables import TABLES
from backfill_assets.lake.lake import Lake
from tests.worlds.case_reports import FEATURES, RAW, STAGING, oracle, rows_of
from tests.worlds.servers import Played, commands, play

pytestmark = pytest.mark.nightly

WEEK = list(between(date(2020, 3, 8), date(2020, 3, 14)))
PUBLISHED_AGAIN = date(2020, 3, 13)
CUT_SHORT = date(2020, 3, 12)
LATE = read_story("late")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Played:
    return play(LATE, tmp_path_factory.mktemp("story"))


def test_every_step_is_played_and_ends_as_the_story_says(story):
    assert story.code == 0, story.printed
    assert story.typed() == commands(LATE)


def test_each_day_was_built_once_and_the_republished_one_twice_with_what_reads_it(story):
    lake = Lake(str(story.folder / ".backfill" / "lake"))
    built = {
        t.name: [b.day for b in lake.ledger.builds({t.name: None}) if b.outcome == "accepted"]
        for t in TABLES
    }
    assert sorted(built[RAW]) == sorted(built[STAGING]) == sorted([*WEEK, PUBLISHED_AGAIN])
    assert sorted(built[FEATURES]) == sorted([*WEEK, PUBLISHED_AGAIN, WEEK[-1]])


def test_the_cut_file_was_refused_with_its_figures_and_the_day_kept_its_rows(story):
    lake = Lake(str(story.folder / ".backfill" / "lake"))
    (failed,) = [build for build in lake.ledger.builds({RAW: None}) if build.outcome == "failed"]
    assert failed.day == CUT_SHORT
    assert "03-12-2020.csv.gz has 39 lines, and all files of the day had 218" in failed.message
    files = sorted((story.folder / ".backfill" / "landing" / "case_reports").iterdir())
    with oracle(files, WEEK[0], WEEK[-1]) as database:
        for name, table in {STAGING: "staging", FEATURES: "features"}.items():
            expected = database.execute(f"SELECT * FROM {table}")
            columns = [column[0] for column in expected.description]
            assert rows_of(lake.path(name), columns) == sorted(expected.fetchall(), key=repr)
