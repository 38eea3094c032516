"""How the partition of a table without days is shown."""

import pytest

from backfill_assets.calendar import NO_DAY, as_day, fixed_days, ranges
from backfill_assets.no_day import in_words, values_in_words

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("ref/regions 1700-01-01 has changed", "ref/regions whole has changed"),
        ("needs ref/regions 1700-01-01", "needs ref/regions whole"),
        ('whole: since="1700-01-01T00:00"', 'whole: since="1700-01-01T00:00"'),
        (r'1700-01-01: note="a \"b\" 1700-01-01"', r'whole: note="a \"b\" 1700-01-01"'),
        ('note="in 1700-01-01…, 1700-01-01', 'note="in 1700-01-01…, whole'),
        ("ref/r/day=1700-01-01/a.parquet", "ref/r/day=1700-01-01/a.parquet"),
        (NO_DAY, "whole"),
        ("2019-08-15", "2019-08-15"),
    ],
)
def test_it_is_whole_in_texts_and_a_value_of_a_row_stays(stored, shown):
    assert in_words(stored) == shown


ROW = {"born": str(NO_DAY), "days": [str(NO_DAY)], "day": str(NO_DAY), "note": f"on {NO_DAY}"}


def test_programs_get_it_as_a_day_as_a_key_and_in_texts():
    stored = str(NO_DAY)
    given = {"days": [stored, "2019-08-15"], "tables": {stored: {"why": f"of {stored}"}}, "rows": 2}
    assert values_in_words(given) == {
        "days": ["whole", "2019-08-15"],
        "tables": {"whole": {"why": "of whole"}},
        "rows": 2,
    }


@pytest.mark.parametrize(
    "row",
    [
        {"first": [ROW]},  # evaluate
        {"added_rows": [{"values": ROW}], "examples": [{"key": ROW, "before": ROW}]},  # diff
        {"rows": [{"key": ROW, "versions": [{"rows": [ROW]}]}], "origin": {"row": ROW}},  # blame
        {"data_files": ["arrival_day=1700-01-01/a.parquet"]},  # log
    ],
    ids=str,
)
def test_values_of_rows_and_names_of_files_stay(row):
    given = {"row of": row, "day": str(NO_DAY)}
    assert values_in_words(given) == {"row of": row, "day": "whole"}


def test_a_value_of_a_row_stays_on_a_page():
    page = f'<b title="ref/r {NO_DAY}">&#34;{NO_DAY}&#34;</b>'
    assert in_words(page, "&#34;") == f'<b title="ref/r whole">&#34;{NO_DAY}&#34;</b>'


def test_what_is_shown_can_be_typed():
    assert ranges([NO_DAY]) == "whole"
    assert (as_day("whole"), fixed_days("whole")) == (NO_DAY, [NO_DAY])
