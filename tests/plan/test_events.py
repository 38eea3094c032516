"""The events of a plan in words, and how it ended by them."""

from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.plan.store import Event, event_words, how_ended

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "facts", "words"),
    [
        ("started", {"who": "ada"}, "started by ada"),
        ("requested", {"chunk": 2, "launch": "2-abcd"}, "chunk 2 was requested"),
        ("ended", {"ending": "stopped", "stop": "canary", "why": "1 partition(s) of the canary failed"},
         "ended: stopped, 1 partition(s) of the canary failed"),
        ("ended", {"ending": "done", "tables": {}}, "ended: done"),
        ("rolled_back", {"who": "ada", "reason": "a wrong rule", "restored": 3, "left": 1},
         "rolled back by ada: a wrong rule (3 partition(s) put back, 1 stay)"),
        ("publishing", {"who": "ada", "reason": ""}, "publication begun by ada"),
        ("published", {"who": "ada", "reason": "the new rule", "release": 4}, "published by ada as release 4: the new rule"),
        ("discarded", {"who": "ada", "reason": ""}, "discarded by ada"),
        ("cancelled", {"who": "ada"}, "cancelled by ada"),
    ],
)  # fmt: skip
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
