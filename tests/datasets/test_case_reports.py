"""The case reports as they were republished: status names the days whose files changed, and the tables are DuckDB's."""

import random
from datetime import date
from functools import partial

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.case_reports.sample import FIRST_DAY, LAST_DAY, versions
from tests.datasets.killed import killed
from tests.datasets.replay import Replay, differences, other_than_built_once, shuffled
from tests.datasets.reports import FEATURES, RAW, STAGING, Reports

BATCHES = 4
# Days of two layouts, which were published again on several days.
FEW = Calendar(date(2020, 3, 18), LAST_DAY)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory, spark):
    """Each version delivered in the order of publication, in batches, and what each step came to."""
    replay = Replay(Reports(tmp_path_factory.mktemp("reports"), Calendar(FIRST_DAY, LAST_DAY), lambda: spark))
    order = list(versions())
    parts = [order[n * len(order) // BATCHES : (n + 1) * len(order) // BATCHES] for n in range(BATCHES)]
    return replay, [replay.play(part) for part in parts]


def test_the_days_whose_files_changed_are_named_and_what_duckdb_makes_otherwise_of_them_is_all_that_is_rewritten(replayed):
    _, steps = replayed
    assert [list(step.wrong()) for step in steps] == [[]] * BATCHES
    assert sum(len(step.rebuilt[RAW]) for step in steps) > len(Calendar(FIRST_DAY, LAST_DAY).days()), "some were rebuilt"


def test_in_the_end_every_table_is_the_oracles_and_that_of_one_build(replayed, tmp_path):
    replay, _ = replayed
    assert differences(replay.reports, replay.landed()) == []
    assert other_than_built_once(replay.reports, tmp_path, replay.landed()) == []


def test_nothing_is_due_in_the_end_and_all_times_could_be_read(replayed):
    reports = replayed[0].reports
    assert reports.due() == {RAW: [], STAGING: [], FEATURES: []}
    assert {(tuple(unparsed), malformed) for unparsed, malformed in reports.rows(RAW, "unparsed", "malformed")} == {((), None)}


def test_arriving_in_another_order_and_built_by_processes_that_are_killed_they_come_to_the_same(tmp_path, spark, seed):
    """One is killed with rows written and not committed, one with rows committed that the ledger does not know of."""
    replay = Replay(Reports(tmp_path / "killed", FEW, lambda: spark))
    order = shuffled([version for version in versions() if version.day in FEW.days()], seed, together=lambda version: "")
    first, second = sorted(random.Random(seed).sample(range(1, len(order)), 2))
    steps = [replay.play(order[:first], partial(killed, replay.reports, STAGING, "commit"))]
    steps += [replay.play(order[first:second], partial(killed, replay.reports, RAW, "record"))]
    steps += [replay.play(order[second:])]
    assert [list(step.wrong()) for step in steps] == [[]] * 3
    assert differences(replay.reports, replay.landed()) == []
    assert other_than_built_once(replay.reports, tmp_path / "once", replay.landed()) == []
