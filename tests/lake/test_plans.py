"""Plans in the lake: written once, whole, and found again."""

import pytest

from backfill_assets.errors import UsageError
from backfill_assets.lake.plans import Plans


@pytest.fixture
def plans(tmp_path) -> Plans:
    return Plans(str(tmp_path / "lake"))


def test_a_plan_is_read_as_it_was_kept(plans):
    plans.keep("abc", '{"a": "ä"}')
    assert plans.read("abc") == '{"a": "ä"}'


def test_a_plan_that_is_there_is_not_written_again(plans):
    plans.keep("abc", "first")
    plans.keep("abc", "second")
    assert plans.read("abc") == "first"


def test_plans_are_listed_and_half_written_ones_are_none(plans, tmp_path):
    plans.keep("b", "1")
    plans.keep("a", "2")
    (tmp_path / "lake/_plans/_c.json").write_text("{")
    assert plans.ids() == ["a", "b"]


def test_a_plan_that_is_not_there_is_refused_naming_those_that_are(plans):
    with pytest.raises(UsageError, match=r"There is no plan abc\. Nothing was started\. There is none here yet"):
        plans.read("abc")
    plans.keep("def", "1")
    with pytest.raises(UsageError, match=r"There is no plan abc\. Nothing was started\. The plans here are def\."):
        plans.read("abc")
