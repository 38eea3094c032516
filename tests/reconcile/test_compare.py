"""Three records compared: values in, disagreements out. Nothing is read and nothing written."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.lake.history import Latest, build_key, unrecorded
from backfill_assets.lake.integrity import ForeignCommits, TableState
from backfill_assets.lake.ledger import Build
from backfill_assets.reconcile.compare import DisagreementKind, Records, RecordsComparison, compare
from backfill_assets.reconcile.dagster_record import DagsterRecord
from tests.worlds.deliveries import day, days
from tests.worlds.recorded import build as of_day

NAME = "staging/o"


def build(number: int = 0, minutes: int = 0, **fields: Any) -> Build:
    return of_day(
        number, minutes, **{"fingerprint": f"f{number}", "rows": 5, "delta_version": 3} | fields
    )


def table(
    *builds: Build, version: int = 3, rows: Mapping[int, int | None] | None = None, **fields: Any
) -> TableState:
    """A table whose commits tell of these builds, and whose files hold what those say unless `rows`
    are given.
    """
    counts = (
        {b.day: b.rows for b in builds}
        if rows is None
        else {day(n): count for n, count in rows.items()}
    )
    return TableState(version, builds=builds, rows=counts, **fields)


def dagster(*builds: Build, **other: str) -> DagsterRecord:
    """Dagster has days 0 to 9 and these builds; `other` has data versions, as d0="..."."""
    versions = {b.day: b.fingerprint for b in builds} | {
        day(int(name[1:])): text for name, text in other.items()
    }
    return DagsterRecord(day(0), day(9), versions)


def compared(
    ledger: Iterable[Build] = (),
    state: TableState | None = None,
    known: DagsterRecord | None = None,
    **fields: Any,
) -> RecordsComparison:
    dagster = None if known is None else {NAME: known}
    return compare(Records([NAME], list(ledger), {NAME: state or TableState()}, dagster, **fields))


def by_kind(comparison: RecordsComparison) -> dict[DisagreementKind, list[Any]]:
    return {each.kind: list(each.days) for each in comparison.disagreements}


BUILT = build()


@pytest.mark.parametrize(
    ("shown", "kind"),
    [("failed", DisagreementKind.SHOWN_FAILED), ("stale", DisagreementKind.SHOWN_STALE)],
)
def test_an_up_to_date_day_shown_as_failed_or_stale_is_reported_and_others_are_left(shown, kind):
    builds = [BUILT, build(1)]
    both_days: dict[str, Any] = {shown: {day(0), day(1)}}
    known = replace(dagster(*builds), **both_days)
    comparison = compared(builds, table(*builds), known, up_to_date={(NAME, day(0))})
    assert by_kind(comparison) == {kind: [day(0)]}
    assert (comparison.to_report, comparison.disagreements[0].is_repairable) == (
        [(NAME, BUILT.day)],
        True,
    )


DELETED = ForeignCommits(5, 6, ["DELETE"], frozenset(days(0)))
REPLACED = ForeignCommits(BUILT.delta_version, BUILT.delta_version, ["WRITE"], frozenset(days(0)))
CHANGED_BY_HAND = table(BUILT, version=6, foreign_commits=[DELETED])


def test_three_records_of_one_day_agree():
    comparison = compared([BUILT], table(BUILT), dagster(BUILT))
    assert (comparison.disagreements, comparison.agreeing, comparison.not_in_dagster) == ([], 1, [])


@pytest.mark.parametrize(
    ("ledger", "state", "known", "kind"),
    [
        pytest.param(
            [],
            table(BUILT),
            dagster(BUILT),
            DisagreementKind.UNRECORDED,
            id="a crash between commit and ledger",
        ),
        pytest.param(
            [BUILT],
            TableState(),
            dagster(BUILT),
            DisagreementKind.NO_COMMIT,
            id="a table that was deleted",
        ),
        pytest.param(
            [BUILT],
            table(version=2),
            dagster(BUILT),
            DisagreementKind.NO_COMMIT,
            id="a table put back to an earlier copy",
        ),
        pytest.param(
            [BUILT],
            table(rows={0: 5}),
            dagster(BUILT),
            DisagreementKind.NO_COMMIT,
            id="a table made anew",
        ),
        pytest.param(
            [BUILT],
            table(rows={0: 5}, foreign_commits=[REPLACED]),
            dagster(BUILT),
            DisagreementKind.OVERWRITTEN,
            id="a commit that another writer has overwritten",
        ),
        pytest.param(
            [BUILT],
            table(BUILT, rows={}),
            dagster(BUILT),
            DisagreementKind.ROW_COUNT_DIFFERS,
            id="a day whose files are gone",
        ),
        pytest.param(
            [BUILT],
            table(BUILT, rows={0: 9}),
            dagster(BUILT),
            DisagreementKind.ROW_COUNT_DIFFERS,
            id="a day with more rows",
        ),
        pytest.param(
            [BUILT],
            table(BUILT, version=6, foreign_commits=[DELETED]),
            dagster(BUILT),
            DisagreementKind.FOREIGN_COMMIT,
            id="a hand",
        ),
        pytest.param(
            [],
            table(rows={0: 9}),
            dagster(),
            DisagreementKind.UNKNOWN_ROWS,
            id="rows that nobody recorded",
        ),
        pytest.param(
            [],
            table(rows={0: None}),
            dagster(),
            DisagreementKind.UNKNOWN_ROWS,
            id="files that do not tell how many rows",
        ),
        pytest.param(
            [BUILT],
            table(BUILT),
            dagster(),
            DisagreementKind.NOT_REPORTED,
            id="a crash before the report to Dagster",
        ),
        pytest.param(
            [BUILT],
            table(BUILT),
            dagster(d0="f1"),
            DisagreementKind.DATA_VERSION_DIFFERS,
            id="Dagster has another data version",
        ),
        pytest.param(
            [BUILT],
            table(BUILT),
            dagster(d0=""),
            DisagreementKind.DATA_VERSION_DIFFERS,
            id="materialized by a click in the UI",
        ),
        pytest.param(
            [],
            TableState(),
            dagster(d0="f0"),
            DisagreementKind.NOT_ACCEPTED,
            id="Dagster has a day that was never built",
        ),
    ],
)
def test_one_thing_at_odds_is_named_once_with_its_day(ledger, state, known, kind):
    comparison = compared(ledger, state, known)
    assert by_kind(comparison) == {kind: days(0)}
    assert comparison.agreeing == 0


@pytest.mark.parametrize(
    ("ledger", "state", "known"),
    [
        pytest.param(
            [BUILT],
            table(rows={0: 5}, oldest=4, version=9),
            dagster(BUILT),
            id="a commit since forgotten",
        ),
        pytest.param(
            [build(rows=0)],
            table(rows={}),
            dagster(BUILT),
            id="an empty day, which makes no commit",
        ),
        pytest.param(
            [BUILT],
            table(BUILT, rows={0: None}),
            dagster(BUILT),
            id="files that do not count their rows",
        ),
        pytest.param(
            [build(1, outcome="failed", rows=7)],
            TableState(),
            dagster(),
            id="a day that failed and never stood",
        ),
        pytest.param(
            [build(30)],
            table(build(30)),
            dagster(),
            id="a day that Dagster's calendar does not have",
        ),
        pytest.param(
            [BUILT, build(0, 1, outcome="unchanged", run="b")],
            table(BUILT),
            dagster(BUILT),
            id="a day built again, the same",
        ),
        pytest.param(
            [BUILT, build(0, 1, run="b", delta_version=7)],
            table(
                BUILT,
                build(0, 1, run="b", delta_version=7),
                version=7,
                rows={0: 5},
                foreign_commits=[DELETED],
            ),
            dagster(BUILT),
            id="a day rebuilt since somebody's hand",
        ),
        pytest.param(
            [BUILT, build(0, 1, delta_version=9)],
            table(build(0, 1, delta_version=9), version=9),
            dagster(BUILT),
            id="an earlier build whose commit is not there",
        ),
    ],
)
def test_what_is_as_it_should_be_is_not_named(ledger, state, known):
    assert by_kind(compared(ledger, state, known)) == {}


def test_a_day_left_out_by_a_crash_is_recorded_and_reported_at_once():
    comparison = compared([], table(BUILT), dagster())
    assert by_kind(comparison) == {
        DisagreementKind.UNRECORDED: days(0),
        DisagreementKind.NOT_REPORTED: days(0),
    }
    assert (comparison.unrecorded(), comparison.to_report) == ([NAME], [(NAME, BUILT.day)])


def test_no_day_is_reported_to_dagster_whose_rows_are_in_doubt():
    comparison = compared([BUILT], table(BUILT, rows={}), dagster())
    assert (by_kind(comparison), comparison.to_report) == (
        {DisagreementKind.ROW_COUNT_DIFFERS: days(0)},
        [],
    )


def test_days_that_a_run_is_building_are_not_compared():
    built = build(run="at work")
    first = build(1)
    later = build(1, 1, run="at work", rows=6, delta_version=4)
    comparison = compared(
        [built, first],
        table(built, first, later, version=4),
        dagster(first),
        running=frozenset({"at work"}),
    )
    assert (by_kind(comparison), comparison.in_progress, comparison.agreeing) == ({}, 2, 0)


def test_days_that_were_built_while_the_records_were_read_are_not_compared():
    comparison = compared(
        [build(delta_version=4)], table(version=3), dagster(), changed=frozenset({(NAME, day(0))})
    )
    assert (by_kind(comparison), comparison.in_progress) == ({}, 1)


def test_without_dagster_the_ledger_and_the_table_are_compared():
    comparison = compared([BUILT, build(1)], table(BUILT))
    assert (by_kind(comparison), comparison.not_in_dagster, comparison.agreeing) == (
        {DisagreementKind.NO_COMMIT: days(1)},
        [NAME],
        1,
    )


def test_a_table_that_dagster_does_not_have_is_named():
    comparison = compare(Records([NAME], [BUILT], {NAME: table(BUILT)}, {NAME: None}))
    assert (comparison.disagreements, comparison.not_in_dagster) == ([], [NAME])


def test_a_table_that_nothing_builds_any_more_is_compared_while_its_files_are_there():
    gone = replace(BUILT, table="raw/old")
    assert compare(Records([], [gone], {"raw/old": TableState()})).disagreements == []
    (disagreement,) = compare(Records([], [gone], {"raw/old": table(version=3)})).disagreements
    assert (disagreement.kind, disagreement.buildable) == (DisagreementKind.NO_COMMIT, False)
    assert "backfill run" not in disagreement.remedy()


def test_a_remedy_is_a_command_with_the_days_and_the_table(golden):
    comparison = compared([build(n) for n in (0, 1, 3)], TableState())
    golden(comparison.disagreements[0].remedy(), "not there")
    comparison = compared([], table(rows={0: 2}))
    golden(comparison.disagreements[0].remedy(), "not in the ledger")


a_build = st.builds(
    build,
    st.integers(0, 3),
    st.integers(0, 40),
    outcome=st.sampled_from(["accepted", "unchanged", "failed"]),
    run=st.sampled_from(["a", "b", "c"]),
    fingerprint=st.sampled_from(["f", "g"]),
    rows=st.integers(0, 2),
    delta_version=st.integers(0, 4),
)
foreign_commits = st.builds(
    ForeignCommits,
    st.integers(0, 4),
    st.just(4),
    st.just(["WRITE"]),
    st.sets(st.sampled_from(days(0, 1))).map(frozenset),
)


def commits_of(committed: list[Build], ledger: list[Build]) -> list[Build]:
    """The accepted builds, without those that the ledger has with another outcome: a build of a run
    at a time has one.
    """
    outcomes = {build_key(b): b.outcome for b in ledger}
    return [
        b for b in committed if b.outcome == "accepted" == outcomes.get(build_key(b), "accepted")
    ]


some_records = st.builds(
    lambda ledger, committed, version, oldest, rows, foreign, versions, running: Records(
        [NAME],
        sorted(ledger, key=lambda b: b.at),
        {NAME: TableState(version, oldest, rows, commits_of(committed, ledger), foreign)},
        {NAME: DagsterRecord(day(0), day(2), versions)},
        running,
    ),
    st.lists(a_build, max_size=5, unique_by=lambda b: b.at),
    st.lists(a_build, max_size=4, unique_by=lambda b: b.at),
    st.integers(-1, 5),
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(days(0, 1, 2, 3)), st.sampled_from([None, 0, 1, 2])),
    st.lists(foreign_commits, max_size=1),
    st.dictionaries(st.sampled_from(days(0, 1, 2)), st.sampled_from(["", "f", "g"])),
    st.sets(st.sampled_from(["a", "b"])).map(frozenset),
)


@given(some_records)
def test_after_a_repair_nothing_repairable_is_left_and_nothing_new_disagrees(records):
    before = compare(records)
    known = (records.dagster or {})[NAME]
    assert known
    lacking = unrecorded(records.ledger, records.states[NAME].builds) if before.unrecorded() else []
    ledger = sorted([*records.ledger, *lacking], key=lambda b: b.at)
    latest = Latest()
    latest.add(ledger)
    reported = {day: latest.accepted[name, day].fingerprint for name, day in before.to_report}
    repaired = replace(
        records,
        ledger=ledger,
        dagster={NAME: replace(known, versions={**known.versions, **reported})},
    )
    after = compare(repaired)
    assert after.repairable() == []
    assert by_kind(after) == {
        kind: at
        for kind, at in by_kind(before).items()
        if kind not in {e.kind for e in before.repairable()}
    }


@given(some_records)
def test_every_partition_agrees_or_is_in_progress_or_disagrees(records):
    comparison = compare(records)
    partitions = {b.day for b in [*records.ledger, *records.states[NAME].builds] if b.succeeded}
    odd_days = {at for each in comparison.disagreements for at in each.days}
    assert comparison.agreeing + len(partitions & odd_days) + comparison.in_progress >= len(
        partitions
    )
    assert comparison.agreeing + len(partitions & odd_days) <= len(partitions)
