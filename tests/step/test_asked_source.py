"""A source that answers wrongly, or not at all, is said of its own days."""

from dataclasses import replace
from pathlib import Path

import pytest

from backfill_assets.errors import (
    NotDelivered,
    ServiceUnavailable,
    SourceError,
    StillWritten,
    UsageError,
)
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import delivered_for
from backfill_assets.step.sources import era_lines, unread_lines
from tests.worlds.chain import Lines, raw
from tests.worlds.deliveries import days

AREA = LandingArea(Path("/no/landing"))


class Answering(Lines):
    """It answers every question in the same way."""

    def __init__(self, answer) -> None:
        self.answer = answer

    def delivered(self, area, days):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def unmatched(self, area):
        return self.delivered(area, [])

    def eras(self, days):
        return self.delivered(AREA, days)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (
            KeyError("port"),
            SourceError,
            "the source lines (Answering) cannot be asked: KeyError: 'port'. Its days stay",
        ),
        (
            UsageError("No such topic."),
            SourceError,
            "the source lines (Answering) cannot be asked: No such topic. Its days",
        ),
        (ServiceUnavailable("install it"), StillWritten, "install it"),
        (NotDelivered("not there"), NotDelivered, "not there"),
        (
            None,
            SourceError,
            (
                "the source lines (Answering) cannot be asked: TypeError: 'NoneType' object is not"
                " iterable."
            ),
        ),
        ({}, SourceError, "the source lines says nothing of 2019-08-15"),
    ],
    ids=["any error", "one of ours", "what it needs is not there", "its own", "nothing", "no day"],
)
def test_what_a_source_raises_is_the_reason_of_its_days(answer, kind, said):
    table = replace(raw, reads={"lines": Answering(answer)})
    found = delivered_for(table, days(0, 1), AREA, {})
    assert [type(each) for each in found.values()] == [kind, kind]
    assert str(found[days(0)[0]]).startswith(said)


def test_what_is_said_of_the_sources_of_other_tables_stays_said():
    class Good(Lines):
        def unmatched(self, area):
            return ["lines/notes.txt"]

        def eras(self, days):
            return {("n",): days}

    broken = replace(raw, reads={"lines": Answering(KeyError("port"))})
    good = replace(raw, name="raw/good", reads={"lines": Good()})
    lines = unread_lines([broken, good], AREA)
    assert lines[good.name] == "files of no day, which are not read: lines/notes.txt"
    assert lines[broken.name].startswith(
        "the source lines (Answering) cannot be asked: KeyError: 'port'"
    )
    asked = {broken.name: days(0), good.name: days(0)}
    assert list(era_lines([broken, good], asked)) == [
        "raw/good 2019-08-15: files have no n, null in their rows."
    ]


def test_a_delivery_is_one():
    table = replace(raw, reads={"lines": Answering(dict.fromkeys(days(0), Delivery("x")))})
    assert delivered_for(table, days(0), AREA, {}) == dict.fromkeys(days(0), Delivery("x"))
