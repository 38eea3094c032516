"""Which builds make one line of a log, and which a filter selects. Values only."""

from dataclasses import replace

import pytest

from backfill_assets.lake.history import BuildHistory
from backfill_assets.verbs.log import BuildFilter, fitting_builds, lines_by_run
from tests.worlds.deliveries import day, days
from tests.worlds.recorded import build


def lines(*builds, left_out=(), fold=True):
    """Of each run, its lines as (outcome, days, recorded)."""
    by_run = lines_by_run([*builds, *left_out], BuildHistory(builds, left_out), fold=fold)
    return {
        run: [(line.example.outcome, line.days, line.recorded) for line in lines]
        for run, lines in by_run.items()
    }


def test_days_of_one_run_that_came_to_the_same_are_one_line_in_order_of_days():
    assert lines(build(2), build(0), build(1, outcome="failed")) == {
        "r": [("accepted", days(0, 2), True), ("failed", days(1), True)]
    }


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"delta_version": 7}, id="another commit"),
        pytest.param({"code_version": "2"}, id="other code"),
        pytest.param({"input_versions": {"raw/a": 3}}, id="other input versions"),
        pytest.param({"outcome": "restored"}, id="another outcome"),
    ],
)
def test_what_differs_in_more_than_the_day_is_another_line(other):
    assert len(lines(build(0), build(1, **other))["r"]) == 2


def test_another_table_is_another_line():
    assert len(lines(build(0), replace(build(0), table="raw/a"))["r"]) == 2


def test_unchanged_days_are_one_line_whatever_commits_they_stand_in():
    assert (
        len(
            lines(
                build(0, outcome="unchanged", delta_version=1),
                build(1, outcome="unchanged", delta_version=2),
            )["r"]
        )
        == 1
    )


def test_what_a_crash_left_out_of_the_ledger_is_marked():
    assert lines(build(0), left_out=[build(1)]) == {
        "r": [("accepted", days(0), True), ("accepted", days(1), False)]
    }


def test_runs_are_in_the_order_of_their_last_builds():
    runs = lines(build(0, 0, run="long"), build(0, 1, run="short"), build(1, 2, run="long"))
    assert list(runs) == ["short", "long"]


def test_in_full_every_build_is_a_line():
    assert len(lines(build(0), build(1), build(2), fold=False)["r"]) == 3


def test_each_message_comes_with_the_first_day_that_has_it():
    builds = [
        build(n, outcome="failed", message=said) for n, said in enumerate(["late", "empty", "late"])
    ]
    (line,) = lines_by_run(builds, BuildHistory(builds, []), fold=True)["r"]
    assert list(line.messages().items()) == [("late", day(0)), ("empty", day(1))]


HISTORY = [
    build(0, 0, run="a1", plan="p1"),
    build(1, 1, run="a2", plan="p2"),
    build(0, 2, run="b1", plan="p2"),
]


@pytest.mark.parametrize(
    ("wanted", "runs"),
    [
        pytest.param(BuildFilter(), ["a1", "a2", "b1"], id="everything"),
        pytest.param(BuildFilter(days=days(0)), ["a1", "b1"], id="some days"),
        pytest.param(BuildFilter(plan="p2"), ["a2", "b1"], id="a plan"),
        pytest.param(BuildFilter(run="a"), ["a1", "a2"], id="runs by their first digits"),
        pytest.param(BuildFilter(last=1), ["b1"], id="the last run"),
        pytest.param(BuildFilter(run="a", last=1), ["a2"], id="the last run that fits"),
        pytest.param(BuildFilter(days=[]), [], id="no day"),
    ],
)
def test_builds_are_chosen_by_days_plan_run_and_how_many_runs_back(wanted, runs):
    assert [b.run for b in fitting_builds(HISTORY, wanted)] == runs
