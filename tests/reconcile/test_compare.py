"""Three records compared: values in, disagreements out. Nothing is read and nothing written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.lake.record import Build
from backfill_assets.lake.recovery import left_out
from backfill_assets.lake.table_state import ForeignCommits, TableState
from backfill_assets.reconcile.compare import Comparison, Records, compare
from backfill_assets.reconcile.dagster_record import Known
from backfill_assets.reconcile.disagreement import Kind
from tests.deliveries import day, days
from tests.lake.builds import build as of_day

NAME = "staging/o"


def build(number: int = 0, minutes: int = 0, **fields: Any) -> Build:
    return of_day(number, minutes, **{"fingerprint": f"f{number}", "rows": 5, "delta_version": 3} | fields)


def table(*told: Build, version: int = 3, rows: Mapping[int, int | None] | None = None, **fields: Any) -> TableState:
    """A table whose commits tell of these builds, and whose files hold what those say unless `rows` are given."""
    held = {b.day: b.rows for b in told} if rows is None else {day(n): count for n, count in rows.items()}
    return TableState(version, told=told, rows=held, **fields)


def dagster(*builds: Build, **other: str) -> Known:
    """Dagster knows days 0 to 9, and these builds; `other` names data versions by day, as d0="..."."""
    versions = {b.day: b.fingerprint for b in builds} | {day(int(name[1:])): text for name, text in other.items()}
    return Known(day(0), day(9), versions)


def looked(
    ledger: Iterable[Build] = (), held: TableState | None = None, known: Known | None = None, **fields: Any
) -> Comparison:
    asked = None if known is None else {NAME: known}
    return compare(Records([NAME], list(ledger), {NAME: held or TableState()}, asked, **fields))


def odd(found: Comparison) -> dict[Kind, list[Any]]:
    return {each.kind: list(each.days) for each in found.disagreements}


BUILT = build()
STRETCH = ForeignCommits(5, 6, ["DELETE"], frozenset(days(0)))


def test_three_records_of_one_day_agree():
    found = looked([BUILT], table(BUILT), dagster(BUILT))
    assert (found.disagreements, found.sound, found.unasked) == ([], 1, [])


@pytest.mark.parametrize(
    ("ledger", "held", "known", "kind"),
    [
        pytest.param([], table(BUILT), dagster(BUILT), Kind.UNRECORDED, id="a crash between commit and ledger"),
        pytest.param([BUILT], TableState(), dagster(BUILT), Kind.NO_COMMIT, id="a table that was deleted"),
        pytest.param([BUILT], table(version=2), dagster(BUILT), Kind.NO_COMMIT, id="a table put back to an earlier copy"),
        pytest.param([BUILT], table(rows={0: 5}), dagster(BUILT), Kind.NO_COMMIT, id="a table made anew"),
        pytest.param([BUILT], table(BUILT, rows={}), dagster(BUILT), Kind.OTHER_ROWS, id="a day whose files are gone"),
        pytest.param([BUILT], table(BUILT, rows={0: 9}), dagster(BUILT), Kind.OTHER_ROWS, id="a day with more rows"),
        pytest.param([BUILT], table(BUILT, version=6, foreign_commits=[STRETCH]), dagster(BUILT), Kind.NOT_OURS, id="a hand"),
        pytest.param([], table(rows={0: 9}), dagster(), Kind.UNKNOWN, id="rows that nobody recorded"),
        pytest.param([], table(rows={0: None}), dagster(), Kind.UNKNOWN, id="files that do not tell how many rows"),
        pytest.param([BUILT], table(BUILT), dagster(), Kind.UNTOLD, id="a crash before Dagster was told"),
        pytest.param([BUILT], table(BUILT), dagster(d0="f1"), Kind.OTHER_VERSION, id="Dagster was told of other rows"),
        pytest.param([BUILT], table(BUILT), dagster(d0=""), Kind.OTHER_VERSION, id="Dagster was told by a click"),
        pytest.param([], TableState(), dagster(d0="f0"), Kind.NOT_STANDING, id="Dagster was told of a day never built"),
    ],
)
def test_one_thing_at_odds_is_named_once_with_its_day(ledger, held, known, kind):
    found = looked(ledger, held, known)
    assert odd(found) == {kind: days(0)}
    assert found.sound == 0


@pytest.mark.parametrize(
    ("ledger", "held", "known"),
    [
        pytest.param([BUILT], table(rows={0: 5}, oldest=4, version=9), dagster(BUILT), id="a commit since forgotten"),
        pytest.param([build(rows=0)], table(rows={}), dagster(BUILT), id="an empty day, which makes no commit"),
        pytest.param([BUILT], table(BUILT, rows={0: None}), dagster(BUILT), id="files that do not count their rows"),
        pytest.param([build(1, outcome="failed", rows=7)], TableState(), dagster(), id="a day that failed and never stood"),
        pytest.param([build(30)], table(build(30)), dagster(), id="a day that Dagster's calendar does not have"),
        pytest.param(
            [BUILT, build(0, 1, outcome="unchanged", run="b")], table(BUILT), dagster(BUILT), id="a day built again, the same"
        ),
        pytest.param(
            [BUILT, build(0, 1, run="b", delta_version=7)],
            table(BUILT, build(0, 1, run="b", delta_version=7), version=7, rows={0: 5}, foreign_commits=[STRETCH]),
            dagster(BUILT),
            id="a day rebuilt since somebody's hand",
        ),
        pytest.param(
            [BUILT, build(0, 1, delta_version=9)], table(build(0, 1, delta_version=9), version=9), dagster(BUILT),
            id="an earlier build whose commit is not there",
        ),
    ],
)  # fmt: skip
def test_what_is_as_it_should_be_is_not_named(ledger, held, known):
    assert odd(looked(ledger, held, known)) == {}


def test_a_day_left_out_by_a_crash_is_recorded_and_told_at_once():
    found = looked([], table(BUILT), dagster())
    assert odd(found) == {Kind.UNRECORDED: days(0), Kind.UNTOLD: days(0)}
    assert (found.to_record(), found.to_tell) == ([NAME], [BUILT])


def test_dagster_is_not_told_of_a_day_whose_rows_are_in_doubt():
    found = looked([BUILT], table(BUILT, rows={}), dagster())
    assert (odd(found), found.to_tell) == ({Kind.OTHER_ROWS: days(0)}, [])


def test_days_that_a_run_is_building_are_not_judged():
    built, first = build(run="at work"), build(1)
    later = build(1, 1, run="at work", rows=6, delta_version=4)
    found = looked([built, first], table(built, first, later, version=4), dagster(first), at_work=frozenset({"at work"}))
    assert (odd(found), found.busy, found.sound) == ({}, 2, 0)


def test_days_that_were_built_while_the_records_were_read_are_not_judged():
    found = looked([build(delta_version=4)], table(version=3), dagster(), moved=frozenset({(NAME, day(0))}))
    assert (odd(found), found.busy) == ({}, 1)


def test_without_dagster_the_ledger_and_the_table_are_compared():
    found = looked([BUILT, build(1)], table(BUILT))
    assert (odd(found), found.unasked, found.sound) == ({Kind.NO_COMMIT: days(1)}, [NAME], 1)


def test_a_table_that_dagster_does_not_have_is_named():
    found = compare(Records([NAME], [BUILT], {NAME: table(BUILT)}, {NAME: None}))
    assert (found.disagreements, found.unasked) == ([], [NAME])


def test_a_table_that_nothing_builds_any_more_is_compared_while_its_files_are_there():
    gone = replace(BUILT, table="raw/old")
    assert compare(Records([], [gone], {"raw/old": TableState()})).disagreements == []
    (found,) = compare(Records([], [gone], {"raw/old": table(version=3)})).disagreements
    assert (found.kind, found.remedy()) == (
        Kind.NO_COMMIT,
        "No table of that name is built any more: bring it back into the catalog, or remove its folder.",
    )


def test_a_remedy_is_a_command_with_the_days_and_the_table():
    found = looked([build(n) for n in (0, 1, 3)], TableState())
    assert found.disagreements[0].remedy() == (
        "Build again: `backfill run --partitions 2019-08-15..2019-08-16,2019-08-18 --target staging/o --force`."
    )
    found = looked([], table(rows={0: 2}))
    assert found.disagreements[0].remedy() == "Build again: `backfill run --partitions 2019-08-15 --target staging/o`."


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
    ForeignCommits, st.integers(0, 4), st.just(4), st.just(["WRITE"]), st.sets(st.sampled_from(days(0, 1))).map(frozenset)
)
some_records = st.builds(
    lambda ledger, told, version, oldest, rows, stretch, versions, busy: Records(
        [NAME],
        sorted(ledger, key=lambda b: b.at),
        {NAME: TableState(version, oldest, rows, [b for b in told if b.outcome == "accepted"], stretch)},
        {NAME: Known(day(0), day(2), versions)},
        busy,
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
def test_after_mending_nothing_is_left_that_could_be_mended_and_nothing_new_is_at_odds(records):
    before = compare(records)
    known = (records.known or {})[NAME]
    assert known
    lacking = left_out(records.ledger, records.held[NAME].told) if before.to_record() else []
    told = {b.day: b.fingerprint for b in before.to_tell}
    mended = replace(
        records,
        ledger=sorted([*records.ledger, *lacking], key=lambda b: b.at),
        known={NAME: replace(known, versions={**known.versions, **told})},
    )
    after = compare(mended)
    assert after.mendable() == []
    assert odd(after) == {kind: at for kind, at in odd(before).items() if kind not in {e.kind for e in before.mendable()}}


@given(some_records)
def test_every_cell_is_sound_or_busy_or_at_odds(records):
    found = compare(records)
    partitions = {b.day for b in [*records.ledger, *records.held[NAME].told] if b.succeeded}
    odd_days = {at for each in found.disagreements for at in each.days}
    assert found.sound + len(partitions & odd_days) + found.busy >= len(partitions)
    assert found.sound + len(partitions & odd_days) <= len(partitions)
