"""`backfill demo --story outage`, played without a reader: the drill ends as it says, and DuckDB
computes the same rows from the bundled files.
"""

import gzip
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from backfill_assets.calendar import between
from backfill_assets.cli.story import read_story
from backfill_assets.datasets.outages.sample import FIRST_DAY, deliver, file_of
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import LIVE, PLAN_PUBLISHED, PLAN_ROLLED_BACK, Releases
from backfill_assets.plan.store import Plans
from backfill_assets.servers.home import servers_record
from backfill_assets.verify.checklist import CheckOutcome
from backfill_assets.verify.verify import Verdicts
from tests.worlds.outages import NAMES, ORACLE_TABLES, OUTAGES, RAW, differences, oracle_of
from tests.worlds.servers import Played, commands, play

pytestmark = pytest.mark.nightly

OUTAGE = read_story("outage")
WEEK = list(between(FIRST_DAY, date(2019, 8, 21)))
# A part of the file of the first day is late, and the file of the second one is cut off.
LATE = date(2019, 8, 17)
CUT_OFF = date(2019, 8, 20)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Played:
    return play(OUTAGE, tmp_path_factory.mktemp("story"), "--auto")


@pytest.fixture(scope="module")
def root(story: Played) -> str:
    return str(story.folder / ".backfill" / "lake")


@pytest.fixture(scope="module")
def plans(root: str) -> list[str]:
    """The plans of the drill, oldest first."""
    return sorted(
        Plans(root).ids(), key=lambda plan: Path(root, "_plans", f"{plan}.json").stat().st_mtime_ns
    )


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """The tables that DuckDB makes of the bundled files of the week."""
    landing = tmp_path_factory.mktemp("bundled")
    deliver(landing, WEEK[-1])
    with oracle_of(landing, WEEK[0], WEEK[-1]) as database:
        yield database


def test_every_step_is_played_and_ends_as_the_story_says(story):
    assert story.code == 0, story.printed
    expected = commands(OUTAGE)
    assert [
        line[: len(beginning)] for line, beginning in zip(story.typed(), expected, strict=True)
    ] == expected
    assert servers_record(story.folder / ".backfill") is None


@pytest.mark.parametrize("name", ORACLE_TABLES)
def test_live_holds_what_duckdb_computes_from_the_bundled_files(root, oracle, name):
    found = DeltaTable(Lake(root).path(name)).to_pyarrow_table()
    assert differences(oracle, name, found if name != RAW else with_the_bundled_files(found)) == []


def with_the_bundled_files(rows: pa.Table) -> pa.Table:
    """Raw rows as if the late file had been a part of the file of its day."""
    bundled = file_of(LATE).as_posix().partition("/sample/")[2]
    files = pc.replace_substring(
        rows["source_file"], f"outage_events/{LATE}-late.jsonl.gz", bundled
    )
    return rows.set_column(rows.column_names.index("source_file"), "source_file", files)


def test_readers_got_the_late_file_then_the_cut_one_and_then_the_day_from_before(root):
    releases = Releases(root).all()
    published, wrong, taken_back = (each for each in releases if each.kind != LIVE)
    assert [each.kind for each in (published, wrong, taken_back)] == [
        PLAN_PUBLISHED,
        PLAN_PUBLISHED,
        PLAN_ROLLED_BACK,
    ]

    def lines(release, day: date) -> int:
        return ReleasedTable(root, release, RAW).dataset([day]).count_rows()

    delivered = {day: len(gzip.decompress(file_of(day).read_bytes()).splitlines()) for day in WEEK}
    first = next(each for each in releases if each.kind == LIVE)
    assert lines(first, LATE) == 2_400 < delivered[LATE] == lines(published, LATE)
    assert lines(wrong, CUT_OFF) == 1_200 < delivered[CUT_OFF] == lines(published, CUT_OFF)
    assert {day: lines(taken_back, day) for day in WEEK} == delivered


def test_the_wrong_rule_failed_its_drift_check_and_got_to_no_reader(root, plans):
    verdict = Verdicts(root).newest(plans[2])
    assert verdict
    failed = [line.name for line in verdict.lines if line.outcome == CheckOutcome.FAILED]
    assert failed == [f"drift {OUTAGES}.customers"]
    assert Plans(root).state(plans[2]) == "discarded"


def test_the_killed_plan_was_resumed_and_published_once(root, plans):
    kinds = Counter(event.kind for event in Plans(root).history(plans[3]))
    assert (kinds["started"], kinds["ended"], kinds["published"]) == (2, 1, 1)


def test_the_second_build_of_every_day_came_to_the_same_rows(root, plans):
    builds = [build for build in Lake(root).ledger.builds() if build.plan == plans[-1]]
    assert Counter(build.outcome for build in builds) == {"unchanged": len(NAMES) * len(WEEK)}
