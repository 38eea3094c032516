"""Values of masked columns are in no diff: not in its stored JSON, its text or its page."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from backfill_assets.diff.days import TableTotals, compare_day
from backfill_assets.diff.diff import Diff, TableDiff
from backfill_assets.diff.masking import masked_diff
from backfill_assets.quality.masking import MASKED, masked_row, masked_samples
from backfill_assets.verbs.diff import detail_lines, html_page
from backfill_assets.verify.changes import NO_CHANGE, changed_rows

pytestmark = pytest.mark.pure

DAY = "2019-08-15"
# Each value of a masked column is unlike all other text.
BEFORE: dict[str, list[Any]] = {
    "phone": ["+1-555-0100", "+1-555-0101", "+1-555-0102"],
    "cents": [987_650, 987_651, 987_652],
    "city": ["Zagreb", "Split", "Zadar"],
    "crew": [1, 1, 2],
}
AFTER: dict[str, list[Any]] = {
    "phone": ["+1-555-0100", "+1-555-0101", "+1-555-0103"],
    "cents": [987_655, 987_659, 987_652],
    "city": ["Rijeka", "Split", "Zadar"],
    "crew": [3, 1, 2],
}
SECRETS = ("555", "98765", "987,65", "Zagreb", "Rijeka")
MASK = ["phone", "CENTS", "city"]


def compared(key: list[str] | None) -> TableDiff:
    totals = TableTotals()
    day = compare_day(DAY, pa.table(BEFORE), pa.table(AFTER), key, totals)
    return TableDiff(
        name="staging/calls",
        before="1",
        after="2",
        key=tuple(key or ()),
        keyed=key is not None,
        days=(day,),
        columns=tuple(changes.column() for changes in totals.columns.values()),
        added_rows=tuple(totals.added_rows),
        removed_rows=tuple(totals.removed_rows),
        groups=totals.groups.changes(),
    )


@pytest.mark.parametrize("key", [["phone"], None], ids=["by key", "whole rows"])
def test_no_value_of_a_masked_column_is_shown_or_stored(key):
    table = masked_diff(compared(key), MASK)
    diff = Diff("id", "release 1", "release 2", "", (table,))
    lines = [line.figures for line in changed_rows(table, NO_CHANGE, ())]
    for shown in (diff.contents(), html_page(diff), *detail_lines(diff), *lines):
        assert not [secret for secret in SECRETS if secret in shown]
    assert MASKED in html_page(diff)


def test_counts_and_columns_that_are_not_masked_stay():
    plain = compared(["phone"])
    table = masked_diff(plain, MASK)
    figures = ("rows_before", "rows_after", "added", "removed", "changed", "unchanged")
    assert [table.total(name) for name in figures] == [plain.total(name) for name in figures]
    changed = {column.name: column.changed for column in table.columns}
    assert changed == {"cents": 2, "city": 1, "crew": 1}
    (crew,) = (column for column in table.columns if column.name == "crew")
    assert crew.numbers
    assert (crew.numbers.least, crew.numbers.most) == (2, 2)
    assert [(e.key, e.before, e.after) for e in crew.examples] == [({"phone": MASKED}, 1, 3)]
    assert [group.size for group in table.groups] == [group.size for group in plain.groups]


@pytest.mark.parametrize("name", ["columns_removed", "columns_added"])
def test_a_column_that_one_side_lacks_may_be_a_masked_one_of_another_name(name):
    plain = compared(None)
    changed: dict[str, Any] = {name: ("city",)}
    table = masked_diff(replace(plain, **changed), ["phone"])
    for rows in (table.added_rows, table.removed_rows):
        assert {row.values["city"] for row in rows} == {MASKED}
    assert masked_diff(replace(plain, **changed), []).added_rows == plain.added_rows


def test_names_may_differ_in_case_and_nulls_are_hidden():
    assert masked_row({"Phone": None, "n": 1}, ["phone"]) == {"Phone": MASKED, "n": 1}


def test_samples_are_hidden_if_their_sql_names_a_masked_column():
    samples = {"numbers": ["+1"], "cities": ["Split"], "files not read": ["a.csv"]}
    sql = {"numbers": "array(Phone)", "cities": "array(phone_city)"}
    assert masked_samples(samples, sql, ["phone"]) == {**samples, "numbers": [MASKED]}
    assert masked_samples(samples, sql, []) == samples
