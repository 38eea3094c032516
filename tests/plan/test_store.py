"""Plans in the lake, and what happened to them: written once, whole, and found again."""

from datetime import UTC, date, datetime, timedelta

import pytest
from pyarrow.fs import PyFileSystem

from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake.storage import files_in
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Event, Plans, event_words, how_ended

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["", "file://"], ids=["a folder", "an object store's interface"])
def plans(request, tmp_path) -> Plans:
    if request.param:  # the interface makes no folders
        for folder in ("_plans", "_acts"):
            (tmp_path / "lake" / folder).mkdir(parents=True)
    return Plans(f"{request.param}{tmp_path / 'lake'}")


def plan(reason: str = "ä") -> Plan:
    reasons = {"raw/a": {date(2026, 1, 1): Reason(ReasonKind.MISSING)}}
    return Plan(
        {"raw/a": "1"},
        reasons,
        [Chunk(0, {"raw/a": [date(2026, 1, 1)]}, ())],
        PlanOptions(reason=reason),
    )


def test_a_plan_is_read_as_it_was_kept(plans):
    plans.keep(plan())
    assert plans.read(plan().id).contents() == plan().contents()


def test_a_plan_that_is_there_is_not_written_again(plans, tmp_path):
    plans.keep(plan())
    (file,) = (tmp_path / "lake/_plans").iterdir()
    before = file.stat().st_mtime_ns
    plans.keep(plan())
    assert file.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "contents", ["", "{", '{"format": 1}'], ids=["empty", "damaged", "of another version"]
)
def test_a_plan_that_cannot_be_read_is_written_again_when_it_is_planned_again(
    plans, tmp_path, contents, golden
):
    plans.keep(plan())
    (file,) = (tmp_path / "lake/_plans").iterdir()
    file.write_text(contents)
    with pytest.raises(UsageError) as refused:
        plans.read(plan().id)
    golden(str(refused.value), PLAN=plan().id)
    plans.keep(plan())
    assert plans.read(plan().id).contents() == plan().contents()


def test_an_event_that_cannot_be_read_names_its_file_and_other_files_are_passed_over(
    plans, tmp_path, golden
):
    plans.note("abc", "started", NOON)
    (tmp_path / "lake/_plans/abc/notes.json").write_text("mine")
    (event,) = [
        file for file in (tmp_path / "lake/_plans/abc").iterdir() if file.name != "notes.json"
    ]
    assert [e.kind for e in plans.events("abc")] == ["started"]
    event.write_text("")
    with pytest.raises(UsageError) as refused:
        plans.events("abc")
    golden(str(refused.value), EVENT=event.name)


def test_half_written_plans_are_not_listed(plans, tmp_path):
    plans.keep(plan("b"))
    plans.keep(plan("a"))
    (tmp_path / "lake/_plans/_c.json").write_text("{")
    assert plans.ids() == sorted([plan("a").id, plan("b").id])


def test_a_plan_that_is_not_there_is_refused_naming_those_that_are(plans, golden):
    with pytest.raises(UsageError) as refused:
        plans.read("abc")
    golden(str(refused.value), "none")
    plans.keep(plan())
    with pytest.raises(UsageError) as refused:
        plans.read("abc")
    golden(str(refused.value), "one", PLAN=plan().id)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        pytest.param([], "planned", id="never started"),
        pytest.param([("started", {}), ("requested", {})], "open", id="interrupted"),
        pytest.param([("started", {}), ("ended", {"ending": "partial"})], "partial", id="ended"),
        pytest.param(
            [("started", {}), ("ended", {"ending": "partial"}), ("started", {})],
            "open",
            id="resumed",
        ),
        pytest.param(
            [("started", {}), ("cancelled", {}), ("ended", {"ending": "cancelled"})],
            "cancelled",
            id="cancelled",
        ),
    ],
)
def test_the_state_of_a_plan_follows_from_its_events(plans, events, state):
    plans.keep(plan())
    for minute, (kind, facts) in enumerate(events):
        plans.note(plan().id, kind, NOON + timedelta(minutes=minute), **facts)
    assert plans.state(plan().id) == state
    assert plans.open() == ([plan().id] if state == "open" else [])


def test_what_a_host_with_a_slow_clock_records_comes_after_what_it_found_there(plans):
    """An open plan that is cancelled from such a host is cancelled, and the event keeps the time of
    that host's clock.
    """
    plans.keep(plan())
    plans.note(plan().id, "started", NOON)
    plans.note(plan().id, "cancelled", NOON - timedelta(hours=1))
    assert plans.state(plan().id) == "cancelled"
    assert [(e.kind, e.at) for e in plans.events(plan().id)] == [
        ("started", NOON),
        ("cancelled", NOON - timedelta(hours=1)),
    ]


def test_a_lake_in_an_object_store_is_reached_with_the_credentials_of_delta():
    assert isinstance(files_in("s3a://a-bucket/lake/_plans"), PyFileSystem)


def test_the_events_of_a_plan_are_listed_in_order_and_by_kind(tmp_path):
    plans = Plans(str(tmp_path))
    plans.note("abc", "started", NOON, who="ada")
    plans.note("abc", "requested", NOON + timedelta(minutes=1), chunk=1, launch="1-x")
    plans.note("abc", "ended", NOON + timedelta(minutes=2), ending="partial")
    plans.note("other", "started", NOON)
    assert [(event.kind, event.facts) for event in plans.events("abc")] == [
        ("started", {"who": "ada"}),
        ("requested", {"chunk": 1, "launch": "1-x"}),
        ("ended", {"ending": "partial"}),
    ]
    assert [event.at for event in plans.events("abc", "requested")] == [NOON + timedelta(minutes=1)]
    assert plans.events("nobody's") == []


def test_one_command_at_a_time_carries_out_a_plan(tmp_path, golden):
    with Plans(str(tmp_path)).exclusive("abc"):
        with pytest.raises(RefusedByGuard) as refused, Plans(str(tmp_path)).exclusive("abc"):
            pass
        golden(str(refused.value))
        with Plans(str(tmp_path)).exclusive("def"):
            pass
    with Plans(str(tmp_path)).exclusive("abc"):
        pass


def test_an_event_that_cannot_be_read_concerns_its_own_plan_alone(tmp_path):
    plans = Plans(str(tmp_path))
    for name in ("aaaaaaaaaaaa", "bbbbbbbbbbbb"):
        (tmp_path / "_plans").mkdir(exist_ok=True)
        (tmp_path / "_plans" / f"{name}.json").write_text("{}")
        plans.note(name, "started", NOON)
    plans.note("aaaaaaaaaaaa", "ended", NOON, ending="done")
    (event,) = (tmp_path / "_plans" / "aaaaaaaaaaaa").glob("*-ended-*.json")
    event.write_text("")
    assert plans.open() == ["bbbbbbbbbbbb"]


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "facts", "words"),
    [
        ("started", {"who": "ada"}, "started by ada"),
        ("requested", {"chunk": 2, "launch": "2-abcd"}, "chunk 2 was requested"),
        (
            "ended",
            {"ending": "stopped", "stop": "canary", "why": "1 partition(s) of the canary failed"},
            "ended: stopped, 1 partition(s) of the canary failed",
        ),
        ("ended", {"ending": "done", "tables": {}}, "ended: done"),
        (
            "rolled_back",
            {"who": "ada", "reason": "a wrong rule", "restored": 3, "left": 1},
            "rolled back by ada: a wrong rule (3 partition(s) restored, 1 stay)",
        ),
        (
            "published",
            {"who": "ada", "reason": "the new rule", "release": 4},
            "published by ada as release 4: the new rule",
        ),
        ("discarded", {"who": "ada", "reason": ""}, "discarded by ada"),
        ("cancelled", {"who": "ada"}, "cancelled by ada"),
    ],
)
def test_an_event_is_said_in_words(kind, facts, words):
    assert event_words(Event(NOW, kind, facts)) == words


def test_a_plan_took_as_long_as_its_last_command_until_that_ended():
    times = {"started": [0, 100], "ended": [60, 115], "rolled_back": [900]}
    events = [
        Event(NOW + timedelta(seconds=s), kind, {"ending": f"at {s}"})
        for kind, of in times.items()
        for s in of
    ]
    ended = how_ended(sorted(events, key=lambda event: event.at))
    assert ended is not None
    assert (ended.ending, ended.seconds, ended.rows()) == ("at 115", 15.0, [])
    assert how_ended([Event(NOW, "started")]) is None
