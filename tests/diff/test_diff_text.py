"""A diff in words and as a page: what a table of figures does not tell."""

import re

import pytest

from backfill_assets.diff.diff import (
    ColumnDiff,
    DayDiff,
    Diff,
    Example,
    ExampleRow,
    NumberChanges,
    TableDiff,
    ValueChange,
)
from backfill_assets.verbs.diff import _number, detail_lines, html_page, summary_rows

HOSTILE = '</td><script>alert("x")</script>'
DAY = DayDiff("2019-09-01", 5, 4, 1, 2, 2, 1, repeated_keys_before=1, repeated_keys_after=2)
COLUMNS = (
    ColumnDiff(
        "few",
        1,
        frequent=(ValueChange(HOSTILE, None, 1),),
        examples=(Example("2019-09-01", {"k": 1}, HOSTILE, None),),
    ),
    ColumnDiff(
        "many",
        2,
        NumberChanges(1, 1, 0, -1.5, 0.25, 0.25, 2, 10, 10.5),
        (),
        (Example("2019-09-01", {"k": 2}, 1, 3),),
    ),
)
TABLE = TableDiff(
    HOSTILE,
    "version 1",
    "version 2",
    key=("k",),
    columns_added=("new",),
    columns_removed=("old",),
    columns_retyped={"n": "integer, now long"},
    days=(DAY,),
    same_days=("2019-09-02",),
    same_rows=1000,
    columns=COLUMNS,
    added_rows=(ExampleRow("2019-09-01", {"k": "a"}),),
    removed_rows=(ExampleRow("2019-09-01", {"k": HOSTILE}),),
)
SAME = TableDiff("raw/same", "version 1", "version 1", same_days=("2019-09-01",), same_rows=7)
DIFF = Diff("0123", HOSTILE, "release 2", "2026-01-01T00:00:00+00:00", (TABLE, SAME))


def test_the_figures_count_the_days_that_were_not_read():
    assert summary_rows(DIFF) == [
        (HOSTILE, "1: 2019-09-01", "1,005", "1,004", "1", "2", "2", "many (2), few (1)"),
    ]


def test_columns_keys_that_repeat_examples_and_what_is_the_same_are_said(golden):
    golden("\n".join(detail_lines(DIFF)), TABLE=HOSTILE)


def test_no_value_of_a_row_or_a_name_is_markup_on_the_page():
    shown = html_page(DIFF)
    tags = set(re.findall(r"<(/?[a-z0-9]+)", shown))
    assert not any("script" in tag for tag in tags)
    assert shown.count("&lt;script&gt;") >= 5
    assert shown.count("<td") == shown.count("</td>")


def test_nothing_that_differs_and_nothing_to_compare_are_said(golden):
    assert "<p>Nothing differs.</p>" in html_page(Diff("0", "a", "b", "", (SAME,)))
    golden("\n".join(detail_lines(Diff("0", "a", "b", ""))))


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (0.0, "0"),
        (-1234567.0, "-1,234,567"),
        (0.123456, "0.1235"),
        (1e20, "1e+20"),
        (1234.5678, "1,235"),
    ],
)
def test_numbers_have_as_many_digits_as_tell_them_apart(of, text):
    assert _number(of) == text
