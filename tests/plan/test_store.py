"""Plans in the lake, and what happened to them: written once, whole, and found again."""

from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.errors import Guarded, UsageError
from backfill_assets.plan.store import Plans

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


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


def test_half_written_plans_are_not_listed(plans, tmp_path):
    plans.keep("b", "1")
    plans.keep("a", "2")
    (tmp_path / "lake/_plans/_c.json").write_text("{")
    assert plans.ids() == ["a", "b"]


def test_a_plan_that_is_not_there_is_refused_naming_those_that_are(plans):
    with pytest.raises(UsageError, match=r"There is no plan abc in this lake\. Nothing was started\. It has none yet"):
        plans.read("abc")
    plans.keep("def", "1")
    with pytest.raises(UsageError, match=r"There is no plan abc in this lake\. Nothing was started\. Its plans are def\."):
        plans.read("abc")


def test_the_events_of_a_plan_are_listed_oldest_first_and_by_kind(tmp_path):
    plans = Plans(str(tmp_path))
    plans.note("abc", "started", NOON, who="ada")
    plans.note("abc", "ended", NOON + timedelta(minutes=2), ending="partial")
    plans.note("abc", "requested", NOON + timedelta(minutes=1), chunk=1, launch="1-x")
    plans.note("other", "started", NOON)
    assert [(event.kind, event.facts) for event in plans.events("abc")] == [
        ("started", {"who": "ada"}), ("requested", {"chunk": 1, "launch": "1-x"}), ("ended", {"ending": "partial"}),
    ]  # fmt: skip
    assert [event.at for event in plans.events("abc", "requested")] == [NOON + timedelta(minutes=1)]
    assert plans.events("nobody's") == []


def test_one_command_at_a_time_carries_out_a_plan(tmp_path):
    with Plans(str(tmp_path)).exclusive("abc"):
        with pytest.raises(Guarded, match="Another command is carrying out plan abc"), Plans(str(tmp_path)).exclusive("abc"):
            pass
        with Plans(str(tmp_path)).exclusive("def"):
            pass
    with Plans(str(tmp_path)).exclusive("abc"):
        pass
