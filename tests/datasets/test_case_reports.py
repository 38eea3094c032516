"""The case reports as they were republished: status names the days whose files changed, and the
tables are DuckDB's.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pytest

from backfill_assets import Archive, TwoFlows, same_day, window
from backfill_assets.calendar import Calendar
from backfill_assets.datasets.case_reports.sample import FIRST_DAY, LAST_DAY, Version, versions
from backfill_assets.datasets.case_reports.tables import (
    REPORTS,
    WEEK,
    case_counts,
    case_reports,
    new_cases,
)
from backfill_assets.sources.archives.loading import take_in
from backfill_assets.sources.files.formats import Csv
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
from tests.worlds.processes import killed_at_point

BATCHES = 4
# Days of two layouts, which were published again on several days.
FEW = Calendar(date(2020, 3, 18), LAST_DAY)
PAST = Archive("history", files="%m-%d-%Y.csv.gz", format=Csv())


@pytest.fixture(scope="module")
def replayed(tmp_path_factory, spark):
    """Each version delivered in the order of publication, in batches, and what each step came to."""
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
            (taken,) = take_in(PAST, reports.workspace.area)
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
