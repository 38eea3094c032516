"""Deliveries that may lack rows are refused until their files are accepted by name."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.errors import (
    IncompleteDelivery,
    NotDelivered,
    ServiceUnavailable,
    SourceError,
    UsageError,
)
from backfill_assets.lake.history import latest
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.status import PartitionStatus, State, status_of
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import delivered_for, files_changed, still_accepted
from backfill_assets.step.sources import era_lines, unread_lines
from tests.worlds.deliveries import arriving, day, days
from tests.worlds.outages import FOUR, RAW, REJECTED, World
from tests.worlds.tables import Lines, raw

AREA = LandingArea(Path("/no/landing"))


class Delivering(Lines):
    """The same delivery each day."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    def delivered(self, area, days):
        return dict.fromkeys(days, self.delivery)


def of(files: dict[str, int]) -> Delivery:
    return Delivery("now", files, fewest=0.5)


def judged(
    now: dict[str, int] | Delivery,
    before: dict[str, int] | None,
    accept: str = "",
    fingerprint: str = "before",
    hashes=(),
    code: tuple[str, str, str] = (raw.version, "", ""),
):
    """The judged delivery of a day that was accepted with the files of `before`.

    `code` has the version that built it, the version for which it was kept, and accepted names.
    """
    table = replace(raw, reads={"lines": Delivering(now if isinstance(now, Delivery) else of(now))})
    build = Build(
        raw.name,
        day(0),
        "accepted",
        "r",
        code[0],
        accepted_code=code[1],
        accept=code[2],
        delivered=fingerprint,
        files=before or {},
        hashes=dict(hashes),
    )
    accepted = {} if before is None else {(raw.name, day(0)): build}
    return delivered_for(table, [day(0)], AREA, accepted, accept)[day(0)]


def lacking(
    now: dict[str, int],
    before: dict[str, int] | None,
    accept: str = "",
    fingerprint: str = "before",
) -> list[str]:
    """The files that are refused, of a day that was accepted with those of `before`."""
    delivery = judged(now, before, accept, fingerprint)
    if not isinstance(delivery, SourceError):
        return []
    names = (
        str(delivery)
        .removesuffix("`")
        .partition("--accept ")[2]
        .partition(" --reason")[0]
        .strip("'")
    )
    assert [
        f"{n} has no lines" if n in now else f"{n} is missing" for n in names.split(",")
    ] == str(delivery).partition("incomplete: ")[2].partition(". ")[0].split("; ")
    return names.split(",")


@pytest.mark.parametrize(
    ("now", "before", "accept", "refused"),
    [
        pytest.param({"a": 1, "b": 1}, None, "", [], id="a first delivery"),
        pytest.param({"a": 1, "b": 0}, None, "", ["b"], id="a first delivery with an empty file"),
        pytest.param({"a": 1, "b": 1}, {"a": 1}, "", [], id="another file"),
        pytest.param({"a": 9}, {"a": 1}, "", [], id="other contents"),
        pytest.param(
            {"a": 1, "b": 0, "c": 0},
            {"a": 1, "b": 1, "d": 1},
            "",
            ["b", "c", "d"],
            id="every such file is named",
        ),
        pytest.param(
            {"a": 1, "b": 0, "c": 0}, {"a": 1, "d": 1}, "b, d", ["c"], id="but those accepted"
        ),
        pytest.param({"a": 1, "b": 0}, {"a": 1, "c": 2}, "c,b", [], id="accepted, each"),
        pytest.param({"s/a": 0, "s/b": 0, "t": 0}, None, "s/*", ["t"], id="accepted by a pattern"),
        pytest.param({"s/a": 0, "[b]": 0}, None, "*/a,[b]", [], id="a pattern beside a name"),
        pytest.param(
            {"sa": 0, "s.": 0}, None, "s., s?, [s]a", ["sa"], id="only * stands for others"
        ),
        pytest.param(
            {"a.gz": 2}, {"a": 2}, "", [], id="packed in place: as many lines under another name"
        ),
        pytest.param({"b": 3}, {"a": 2, "c": 1}, "", [], id="two files that became one"),
        pytest.param(
            {"b": 2},
            {"a": 2, "c": 1},
            "",
            ["a", "c"],
            id="two files that became one with fewer lines",
        ),
        pytest.param({"a": 0}, {"a": 1}, "a", [], id="the only one accepted as empty"),
        pytest.param(
            {"a": 2, "b": 0}, {"a": 1, "b": 0}, "", [], id="one that was accepted as empty before"
        ),
        pytest.param({"a": 0, "b": 0}, {"a": 1, "b": 0}, "", ["a"], id="and another one"),
        pytest.param(
            {"a": 1, "b": 0}, {"a": 1}, "ab,c.b,b/c", ["b"], id="a part of a name accepts nothing"
        ),
    ],
)
def test_files_that_are_empty_or_gone_are_refused_by_name(now, before, accept, refused):
    assert lacking(now, before, accept) == refused


@pytest.mark.parametrize(
    ("now", "before", "accept", "refused"),
    [
        pytest.param({"a": 49}, {"a": 100}, "", ["a"], id="less than half the lines"),
        pytest.param({"a": 50}, {"a": 100}, "", [], id="half the lines"),
        pytest.param({"a": 49}, {"a": 100}, "a", [], id="less than half, accepted by name"),
        pytest.param(
            {"a": 1, "b": 99}, {"a": 90, "b": 10}, "", [], id="lines that moved to another file"
        ),
        pytest.param(
            {"a": 1, "b": 10}, {"a": 90, "b": 10}, "", ["a"], id="the file that has fewer is named"
        ),
        pytest.param({"a": 1}, None, "", [], id="a first delivery"),
    ],
)
def test_a_delivery_of_far_fewer_lines_than_the_one_before_is_refused_by_name(
    now, before, accept, refused, golden
):
    delivery = judged(now, before, accept)
    if not refused:
        assert isinstance(delivery, Delivery)
        return
    assert f"--accept {','.join(refused)} " in delivery.next_step
    golden(delivery)


@pytest.mark.parametrize(
    ("content", "before", "accept", "is_refused"),
    [
        pytest.param("x", {}, "", True, id="as it first comes"),
        pytest.param("x", {}, "a*", False, id="accepted"),
        pytest.param("x", {"a": "x"}, "", False, id="as it was accepted, with another file"),
        pytest.param("y", {"a": "x"}, "", True, id="with other contents than were accepted"),
    ],
)
def test_a_file_that_should_not_be_used_is_refused_until_it_is_accepted_as_it_is(
    content, before, accept, is_refused, golden
):
    delivery = Delivery(
        "now", {"a": 5, "b": 1}, hashes={"a": content, "b": "1"}, doubts={"a": "is cut off"}
    )
    judgement = judged(delivery, dict.fromkeys(before, 5), accept, hashes=before)
    assert isinstance(judgement, SourceError) == is_refused
    if is_refused:
        golden(judgement)


@pytest.mark.parametrize("fingerprint", ["now", "before"])
@pytest.mark.parametrize(
    ("code", "is_refused"),
    [
        pytest.param((raw.version, "", ""), False, id="by this code"),
        pytest.param(("old", "", ""), True, id="by other code"),
        pytest.param(("old", "", "b, a"), False, id="by its name"),
        pytest.param(("old", "", "b"), True, id="by another name"),
        pytest.param(("old", raw.version, ""), False, id="by other code, kept"),
    ],
)
def test_other_code_doubts_a_file_that_was_used_unless_it_was_accepted_by_name(
    code, is_refused, fingerprint
):
    files = {"a": 5, "b": 1}
    hashes = {"a": "x", "b": "1"}
    delivery = Delivery("now", files, hashes=hashes, doubts={"a": "lacks column c"})
    judgement = judged(delivery, files, "", fingerprint, hashes, code)
    assert isinstance(judgement, SourceError) == is_refused


def test_an_accepted_file_stays_so_while_another_one_is_delivered_again():
    last = Build(
        raw.name, day(0), "accepted", "r", "1", delivered="before", accept="a,c,positive",
        hashes={"a": "x", "b": "1", "c": "y"},
    )  # fmt: skip
    now = Delivery("now", {"a": 5, "b": 2, "c": 3}, hashes={"a": "x", "b": "2", "c": "z"})
    assert still_accepted(last, now) == ["a"]
    assert still_accepted(last, replace(now, fingerprint="before")) == ["a,c,positive"]


def test_a_delivery_that_was_accepted_as_it_is_stays_accepted():
    assert lacking({"a": 1, "b": 0}, {}, fingerprint="now") == []


def test_a_name_with_commas_can_be_accepted():
    now = {"a": 1, "b, c": 0}
    name = "b, c"
    table = replace(raw, reads={"lines": Delivering(of(now))})
    assert isinstance(delivered_for(table, [day(0)], AREA, {}, f"d,{name}")[day(0)], Delivery)
    assert isinstance(delivered_for(table, [day(0)], AREA, {}, "b,c,d")[day(0)], Delivery)
    assert isinstance(delivered_for(table, [day(0)], AREA, {}, "c")[day(0)], SourceError)


def status_at(world: World, at: date) -> PartitionStatus:
    table = world.table(REJECTED)
    lake = world.lake
    return status_of(
        world.workspace, [table], [at], latest=latest(lake.ledger, {REJECTED: None})
    ).partitions[REJECTED, at]


def test_a_day_that_lost_a_file_is_refused_until_that_is_accepted(built, golden):
    """Two builds of a day, in Spark."""
    more = built.write(day(1), arriving(1, 7, 8, began=1), "more.jsonl")
    built.run(days(1), [REJECTED, RAW], run="two files")
    before = built.rows(RAW)
    name = str(more.relative_to(built.landing))
    more.unlink()

    status = status_at(built, day(1))
    assert (status.state, status.hindrance) == (State.SOURCE_CHANGED, "")
    golden(status.why)
    refused = built.run(FOUR, [REJECTED, RAW])[REJECTED]
    assert [(b.day, b.message) for b in refused.built] == [(day(1), status.why)]
    assert built.rows(RAW) == before

    accepted = built.run(FOUR, [REJECTED, RAW], accept=name)[RAW].built
    assert [(b.day, b.outcome, b.rows, b.accept) for b in accepted] == [
        (day(1), "accepted", 3, name)
    ]
    assert list(built.accepted(RAW)[day(1)].files) == [
        str((built.folder(day(1)) / "events.jsonl").relative_to(built.landing))
    ]
    assert status_at(built, day(1)).state == State.UP_TO_DATE


def failing_on(world: World, *numbers: int):
    """The first raw table, of other code, that fails in Spark on the rows of these days."""
    table = world.table(REJECTED)
    wrong = ", ".join(f"DATE'{day(n)}'" for n in numbers)
    unreadable = f"CASE WHEN arrival_day IN ({wrong}) THEN raise_error('unreadable') ELSE line END"
    return replace(
        table,
        version="2",
        compute=lambda lines: table.compute(
            lines.selectExpr("*", f"{unreadable} AS l").drop("line").withColumnRenamed("l", "line")
        ),
    )


@pytest.mark.scale
def test_a_day_that_spark_fails_on_for_no_reason_that_its_files_show_fails_alone(built):
    """Four builds of one day each, in Spark."""
    result = built.run(FOUR, failing_on(built, 0, 2))[REJECTED]
    assert {b.day: b.outcome for b in result.built} == {
        day(0): "failed", day(1): "unchanged", day(2): "failed", day(3): "unchanged",
    }  # fmt: skip
    assert all("unreadable" in b.message for b in result.failed())


@pytest.mark.scale
def test_if_no_day_can_be_built_the_step_fails_and_each_day_is_recorded_once(built):
    """Four attempts, in Spark."""
    recorded = len(built.lake.ledger.builds({REJECTED: None}))
    with pytest.raises(Exception, match="unreadable"):
        built.run(FOUR, failing_on(built, 0, 1, 2, 3))
    assert [(b.day, b.outcome) for b in built.lake.ledger.builds({REJECTED: None})[recorded:]] == [
        (d, "failed") for d in FOUR
    ]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param({"a": 1}, {"a": 1, "b": 2}, id="one more"),
        pytest.param({"a": 1, "b": 2}, {"a": 1}, id="one less"),
        pytest.param({"a": 1000}, {"a": 2}, id="other lines"),
        pytest.param({"a": 1}, {"a": 1}, id="the same names and lines"),
        pytest.param({}, {"a": 1}, id="files that are not recorded"),
        pytest.param({"a": 1}, dict.fromkeys("bcd", 1), id="many"),
    ],
)
def test_what_changed_of_a_delivery_is_named(before, now, golden):
    build = Build(raw.name, day(0), "accepted", "r", "1", files=before)
    golden(files_changed(build, Delivery(files=now)))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param({"a": "x", "b": "y"}, {"a": "z", "b": "y"}, id="as many lines"),
        pytest.param(
            {"a": "x", "c": "y"}, {"a": "x", "b": "z"}, id="what came and went is said by the names"
        ),
        pytest.param({}, {"a": "x", "b": "y"}, id="a build without recorded hashes"),
    ],
)
def test_files_of_as_many_lines_and_other_contents_are_named(before, now, golden):
    build = Build(raw.name, day(0), "accepted", "r", "1", files={"a": 1, "b": 1}, hashes=before)
    golden(files_changed(build, Delivery(files={"a": 1, "b": 1}, hashes=now)))


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
    ("answer", "kind"),
    [
        (KeyError("port"), SourceError),
        (UsageError("No such topic."), SourceError),
        (ServiceUnavailable("install it"), IncompleteDelivery),
        (NotDelivered("not there"), NotDelivered),
        (None, SourceError),
        ({}, SourceError),
    ],
    ids=["any error", "one of ours", "what it needs is not there", "its own", "nothing", "no day"],
)
def test_what_a_source_raises_is_the_reason_of_its_days(answer, kind, golden):
    table = replace(raw, reads={"lines": Answering(answer)})
    found = delivered_for(table, days(0, 1), AREA, {})
    assert [type(each) for each in found.values()] == [kind, kind]
    golden(found[day(0)])


def test_what_is_said_of_the_sources_of_other_tables_stays_said(golden):
    class Good(Lines):
        def unmatched(self, area):
            return ["lines/notes.txt"]

        def eras(self, days):
            return {("n",): days}

    broken = replace(raw, reads={"lines": Answering(KeyError("port"))})
    good = replace(raw, name="raw/good", reads={"lines": Good()})
    lines = unread_lines([broken, good], AREA, Calendar(day(0)))
    golden({name: lines[name] for name in (good.name, broken.name)})
    asked = {broken.name: days(0), good.name: days(0)}
    (era,) = era_lines([broken, good], asked)
    golden(era, "era")


def test_a_delivery_is_one():
    table = replace(raw, reads={"lines": Answering(dict.fromkeys(days(0), Delivery("x")))})
    assert delivered_for(table, days(0), AREA, {}) == dict.fromkeys(days(0), Delivery("x"))
