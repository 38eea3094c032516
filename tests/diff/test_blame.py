"""Since which commit a day, a row or a value is as it is. The tests know which write put what."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.diff.blame import DayCommit, histories, rows_with
from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake.ledger import Build
from backfill_assets.tables.declaration import SliceDays, Table
from backfill_assets.verbs.blame import BlameReport, blame
from tests.worlds.keyed_lake import KeyedLake
from tests.worlds.small_lake import (
    DAYS,
    A,
    SmallLake,
    copy_of,
    publish,
    rebuilt_in_shadow,
    release_live_now,
    released_lake,
)

D0, D1, *_ = DAYS
SHOPS = Table(
    "raw/shops",
    lambda: None,
    "day",
    "day DATE, shop STRING, cents BIGINT, note STRING, source_file STRING",
    {"days": SliceDays()},
    (),
    "1",
    key=["day", "shop"],
    lineage=["source_file"],
)


def row(shop: str, cents: int | None, **more: Any) -> dict[str, Any]:
    return {"shop": shop, "cents": cents, **more}


def asked(
    lake: KeyedLake | SmallLake, *typed: str, column: str = "", table: str = SHOPS.name
) -> BlameReport:
    return blame(lake.workspace, table, str(D1), typed, column)


def told(report: BlameReport, column: str = "cents") -> list[tuple[Any, str | None]]:
    """What the only row was, newest first: its values of a column, and the run of the commit."""
    (only,) = report.rows
    return [
        ([row.get(column) for row in version.rows], getattr(version.by, "run", None))
        for version in only.versions
    ]


@pytest.fixture
def lake(tmp_path: Path) -> KeyedLake:
    return KeyedLake(tmp_path / "lake", (SHOPS,))


KEYS = st.sampled_from("abc")
STATES = st.lists(st.dictionaries(KEYS, st.integers(0, 2)), min_size=1, max_size=6)


@given(STATES, st.sets(st.integers(0, 5)))
def test_versions_of_rows_are_the_states_without_repetitions(states, released):
    releases = [6 - n if n in released else None for n in range(6)]
    commits = [DayCommit(f"commit {n}", n, releases[n]) for n in range(len(states))]
    rows = [[{"shop": key, "cents": n} for key, n in state.items()] for state in states]
    found = histories(commits, rows, replace(SHOPS, key=["shop"]), "")
    assert {history.key["shop"] for history in found} == {key for state in states for key in state}
    for history in found:
        values = [state.get(history.key["shop"]) for state in states]
        expected = []
        for n, value in enumerate(values):
            if n == 0 or values[n - 1] != value:
                expected.append([value, n, releases[n]])
            else:
                # An earlier commit had the value too, and its release came first.
                expected[-1] = [value, n, releases[n] or expected[-1][2]]
        given_versions = [
            [
                version.rows[0]["cents"] if version.rows else None,
                int(str(version.by)[7:]),
                version.release,
            ]
            for version in history.versions
        ]
        assert given_versions == expected


def test_a_value_is_from_the_first_of_the_commits_in_a_row_that_had_it(lake):
    lake.write(SHOPS, D1, [row("a", 1), row("b", 1)], run="one")
    lake.write(SHOPS, D1, [row("a", 2), row("b", 1)], run="two")
    lake.write(SHOPS, D1, [row("a", 2), row("b", 3)], run="three")
    lake.write(SHOPS, D1, [row("a", 1), row("b", 3)], run="four")
    lake.write(SHOPS, D0, [row("a", 9)], run="another day")
    assert told(asked(lake, "shop=a")) == [([1], "four"), ([2], "two"), ([1], "one")]
    assert told(asked(lake, "shop=b")) == [([3], "three"), ([1], "one")]
    (day,) = asked(lake).rows
    assert day.key == {}
    runs = [getattr(version.by, "run", None) for version in day.versions]
    assert runs == ["four", "three", "two", "one"]


def test_a_removed_row_is_told_with_the_commit_that_removed_it(lake):
    lake.write(SHOPS, D1, [row("a", 1), row("b", 1)], run="one")
    lake.write(SHOPS, D1, [row("b", 1)], run="two")
    assert told(asked(lake, "shop=a")) == [([], "two"), ([1], "one")]


def test_rows_that_share_a_part_of_the_key_are_told_one_by_one(lake):
    lake.write(SHOPS, D1, [row(f"{n:02}", n) for n in range(25)], run="one")
    report = asked(lake, f"day={D1}")
    assert (report.count, [found.key["shop"] for found in report.rows]) == (
        25,
        [f"{n:02}" for n in range(20)],
    )


def test_only_the_column_that_was_asked_for_counts(lake):
    lake.write(SHOPS, D1, [row("a", 1, note="x")], run="one")
    lake.write(SHOPS, D1, [row("a", 1, note="y")], run="two")
    lake.write(SHOPS, D1, [row("a", 2, note="y")], run="three")
    assert told(asked(lake, "shop=a", column="note"), "note") == [(["y"], "two"), (["x"], "one")]
    assert told(asked(lake, "shop=a", column="cents")) == [([2], "three"), ([1], "one")]
    # Without a key, of all rows.
    assert told(asked(lake, column="cents")) == [([2], "three"), ([1], "one")]


def test_another_file_of_the_same_row_changes_no_row(lake):
    lake.write(SHOPS, D1, [row("a", 1, source_file="one.csv")], run="one")
    lake.write(SHOPS, D1, [row("a", 1, source_file="two.csv")], run="two")
    assert told(asked(lake, "shop=a"), "source_file") == [(["one.csv"], "one")]
    of_file = asked(lake, "shop=a", column="source_file")
    assert told(of_file, "source_file") == [(["two.csv"], "two"), (["one.csv"], "one")]


def test_a_column_that_was_added_later_changes_the_rows_that_have_it(lake):
    lake.write(SHOPS, D1, [row("a", 1), row("b", 1)], run="one")
    lake.write(SHOPS, D1, [row("a", 1, note="x"), row("b", 1)], run="two")
    assert told(asked(lake, "shop=a"), "note") == [(["x"], "two"), ([None], "one")]
    assert told(asked(lake, "shop=b"), "note") == [([None], "one")]
    assert told(asked(lake, "shop=a", column="note"), "note") == [(["x"], "two"), ([None], "one")]


def test_a_key_column_that_was_added_later_was_in_no_earlier_row(lake):
    lake.write(SHOPS, D1, [{"cents": 1}], run="one")
    lake.write(SHOPS, D1, [row("a", 1)], run="two")
    assert told(asked(lake, "shop=a")) == [([1], "two"), ([], "one")]


def test_a_merge_is_told_as_the_commit_that_it_is(lake):
    lake.write(SHOPS, D1, [row("a", 1), row("b", 1)], run="one")
    lake.write(SHOPS, D1, [row("a", 1), row("b", 2), row("c", 2)], run="m", write_mode="merge")
    found = {shop: told(asked(lake, f"shop={shop}")) for shop in "abc"}
    assert found == {
        "a": [([1], "one")],
        "b": [([2], "m"), ([1], "one")],
        "c": [([2], "m"), ([], "one")],
    }


def test_a_row_of_another_program_is_told_without_a_build(lake):
    lake.write(SHOPS, D1, [row("a", 1), row("b", 1)], run="one")
    lake.write_as_others(SHOPS, D0, [row("a", 5)])
    lake.write_as_others(SHOPS, D1, [row("a", 2), row("b", 1)])
    lake.write(SHOPS, D1, [row("a", 3), row("b", 1)], run="two")
    report = asked(lake, "shop=a")
    assert told(report) == [([3], "two"), ([2], None), ([1], "one")]
    assert "commit" in str(report.rows[0].versions[1].by)
    assert told(asked(lake, "shop=b")) == [([1], "one")]


def test_nothing_is_said_about_rows_whose_files_were_removed(lake):
    for n, run in enumerate(["one", "two", "three"]):
        lake.write(SHOPS, D1, [row("a", n), row("b", 1)], run=run)
    lake.vacuum(SHOPS)
    report = asked(lake, "shop=a")
    assert told(report) == [([2], "three")]
    assert report.gone
    assert not asked(lake).gone
    with pytest.raises(UsageError):
        asked(lake, "shop=c")


def test_present_rows_whose_files_are_lost_are_refused(lake):
    lake.write(SHOPS, D1, [row("a", 1)])
    for file in (lake.root / SHOPS.name).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(TableUnreadable):
        asked(lake, "shop=a")


def test_files_that_were_compacted_changed_no_row(lake):
    lake.write(SHOPS, D1, [row("a", 1)], run="one")
    DeltaTable(f"{lake.root}/{SHOPS.name}").optimize.compact()
    assert told(asked(lake, "shop=a")) == [([1], "one")]


@pytest.mark.parametrize(
    ("typed", "column"),
    [
        (["shop=b"], ""),
        (["cents=1"], ""),
        (["shops=a"], ""),
        (["shop"], ""),
        (["day=yesterday"], ""),
        (["shop=a"], "cent"),
    ],
    ids=["no such row", "not of the key", "no column", "no value", "no date", "no such column"],
)
def test_what_cannot_be_found_is_refused(lake, typed, column, golden):
    lake.write(SHOPS, D1, [row("a", 1)])
    with golden.raises(UsageError):
        asked(lake, *typed, column=column)


def test_a_day_that_was_never_built_is_refused(lake, golden):
    with golden.raises(UsageError, "without a table"):
        asked(lake)
    lake.write(SHOPS, D0, [row("a", 1)])
    with golden.raises(UsageError, "another day"):
        asked(lake, "shop=a")


def test_values_may_hold_quotes(lake):
    lake.write(SHOPS, D1, [row("a' OR 'b", 1), row("b", 2)], run="one")
    assert told(asked(lake, "shop=a' OR 'b")) == [([1], "one")]


def test_masked_values_are_compared_and_not_shown(lake):
    lake.tables = (replace(SHOPS, mask=["note"]),)
    lake.write(SHOPS, D1, [row("a", 1, note="secret")], run="one")
    lake.write(SHOPS, D1, [row("a", 1, note="hidden")], run="two")
    report = asked(lake, "shop=a")
    assert [run for _, run in told(report)] == ["two", "one"]
    shown = f"{report.as_json()} {[str(line) for line in report.lines()]}"
    assert ("secret" in shown, "hidden" in shown) == (False, False)


def test_a_table_without_a_key_is_asked_by_any_column(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan)
    release_live_now(lake)

    def versions(n: int) -> list[tuple[int, str, str, int | None]]:
        (found,) = blame(lake.workspace, A.name, str(D1), [f"n={n}"], "").rows
        return [
            (len(each.rows), each.by.outcome, each.by.plan, each.release)
            for each in found.versions
            if isinstance(each.by, Build)
        ]

    assert versions(7) == [(7, "accepted", plan.id, 2), (0, "accepted", "", 1)]
    assert versions(2) == [(0, "accepted", plan.id, 2), (2, "accepted", "", 1)]
    lake.roll_back(plan)
    assert versions(2)[0] == (2, "restored", "", 4)
    assert versions(7)[0] == (0, "restored", "", 4)


def test_a_day_that_was_built_first_by_a_plan_is_removed_by_its_rollback(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    lake.write({D0: 1})
    plan = rebuilt_in_shadow(lake, {D1: 3}, of=(A.name,))
    publish(lake, plan)
    lake.roll_back(plan)
    (found,) = blame(lake.workspace, A.name, str(D1), ["n=3"], "").rows
    assert [(len(each.rows), getattr(each.by, "outcome", "")) for each in found.versions] == [
        (0, "removed"),
        (3, "accepted"),
    ]


def test_commits_of_a_recreated_table_are_not_in_earlier_releases(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    (lake.root / A.name).rename(tmp_path / "moved")
    lake.write({D1: 5})
    (found,) = blame(lake.workspace, A.name, str(D1), ["n=5"], "").rows
    assert [each.release for each in found.versions] == [None]


def test_a_key_that_had_another_type_was_in_no_earlier_row(lake):
    lake.write(SHOPS, D1, [row("a", 1)], run="one")
    numbers = replace(SHOPS, columns=SHOPS.columns.replace("shop STRING", "shop BIGINT"))
    lake.tables = (numbers,)
    lake.write_as_others(SHOPS, D1, [{"shop": 7, "cents": 1}], schema_mode="overwrite")
    with pytest.raises(UsageError):
        asked(lake, "shop=a")
    assert told(asked(lake, "shop=7")) == [([1], None), ([], "one")]
    lake.tables = (SHOPS,)
    lake.write_as_others(SHOPS, D1, [row("b", 1)], schema_mode="overwrite")
    assert told(asked(lake, "shop=b")) == [([1], None), ([], "one")]


def test_bytes_are_found_by_the_text_that_shows_them(tmp_path):
    table = replace(SHOPS, columns="day DATE, hash BINARY", key=["hash"])
    lake = KeyedLake(tmp_path / "lake", (table,)).workspace.lake
    hashes = [b"it's", b"\x00\xff", b""]
    rows = pa.table({"hash": pa.array(hashes, pa.binary()), "day": [D1] * 3})
    write_deltalake(lake.path(table.name), rows, partition_by=["day"])
    for value in hashes:
        text = f"0x{value.hex()}"
        (found,) = rows_with({"hash": text}, table, D1, 0, lake)
        assert found["hash"] == text


def shown(report: BlameReport) -> list[str]:
    return [line for line in map(str, report.lines()) if line.startswith(("  now", "  before"))]


def test_a_row_between_other_numbers_of_rows_is_shown_with_its_values(lake):
    lake.write(SHOPS, D1, [row("a", 1)])
    lake.write(SHOPS, D1, [row("a", 1), row("a", 2)])
    lake.write(SHOPS, D1, [row("a", 1)])
    assert shown(asked(lake, "shop=a")) == [
        "  now: cents=1", "  before: 2 such rows", "  before: cents=1",
    ]  # fmt: skip
    unkeyed = KeyedLake(lake.root, (replace(SHOPS, key=()),))
    lines = shown(asked(unkeyed, "cents=2"))
    assert lines == ["  now: no such row", "  before: such a row", "  before: no such row"]


def test_two_values_of_one_column_are_refused(lake):
    lake.write(SHOPS, D1, [row("a", 1), row("b", 1)])
    with pytest.raises(UsageError, match="two values of shop"):
        asked(lake, "shop=a", "shop=b")
