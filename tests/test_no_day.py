"""How the partition of a table without days is shown."""

import json

import pytest

from backfill_assets.calendar import NO_DAY, as_day, fixed_days, ranges
from backfill_assets.no_day import in_words

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("ref/regions 1700-01-01 has changed", "ref/regions whole has changed"),
        ("needs ref/regions 1700-01-01", "needs ref/regions whole"),
        ('now: since="1700-01-01", n=1', 'now: since="1700-01-01", n=1'),
        (NO_DAY, "whole"),
        ("2019-08-15", "2019-08-15"),
    ],
)
def test_it_is_whole_in_texts_and_a_value_of_a_row_stays(stored, shown):
    assert in_words(stored) == shown


def test_json_has_it_as_a_day_as_a_key_and_in_texts_and_values_of_rows_stay():
    stored = str(NO_DAY)
    given = {
        "day": stored, "days": [stored, "2019-08-15"], "tables": {stored: {"why": f"of {stored}"}},
        "row": {"arrival_day": stored, "born": stored}, "why": f"{stored} is late",
        "text": f'born="{stored}"',
    }  # fmt: skip
    assert json.loads(in_words(json.dumps(given))) == {
        "day": "whole", "days": ["whole", "2019-08-15"], "tables": {"whole": {"why": "of whole"}},
        "row": {"arrival_day": stored, "born": stored}, "why": "whole is late",
        "text": f'born="{stored}"',
    }  # fmt: skip


def test_what_is_shown_can_be_typed():
    assert ranges([NO_DAY]) == "whole"
    assert (as_day("whole"), fixed_days("whole")) == (NO_DAY, [NO_DAY])
