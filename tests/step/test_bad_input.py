"""Bad lines, values and rows: neighbouring days are committed, and good rows are kept."""

import gzip
from dataclasses import replace
from datetime import date

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.functions import expr

from backfill_assets.calendar import Calendar
from backfill_assets.tables.declaration import Window
from tests.worlds.deliveries import change, day, days
from tests.worlds.outages import (
    FOUR,
    HISTORY,
    OUTAGES,
    RAW,
    REJECTED,
    UPDATES,
    World,
    broken_rules,
)

pytestmark = pytest.mark.long

LANDED = [REJECTED, RAW]
FILE = "outage_events/year=2019/month=08/day=16/events.jsonl"
MORE = "outage_events/year=2019/month=08/day=16/more.jsonl"


@pytest.fixture
def small(tmp_path, spark) -> World:
    """Two days, each of forty changes of outages that began on the first."""
    made = World(tmp_path / "lake", tmp_path / "landing", lambda: spark, Calendar(day(0), day(1)))
    made.write(day(0), [change(str(n)) for n in range(40)], "events.jsonl.gz")
    made.write(
        day(1),
        [change(str(n), _captured_at="2019-08-16T01:00:00Z", _op="U") for n in range(40)],
        "events.jsonl.gz",
    )
    return made


def test_lines_that_are_no_changes_are_rejected_with_file_and_reason(small):
    bad = {
        '{"outageNumber": "1", ': "not JSON",
        "[1, 2]": "not an object",
        "null": "not an object",
        '{"_op": "I", "_captured_at": "2019-08-16T00:00:00Z"}': "no outageNumber",
        '{"outageNumber": "1", "_op": "X", "_captured_at": "2019-08-16T00:00:00Z"}': (
            "unknown _op X"
        ),
        '{"outageNumber": "1", "_op": "I", "_captured_at": "12:30:00"}': (
            "_captured_at is not a time"
        ),
        (
            '{"outageNumber": "1", "_op": "I", "_captured_at": "2019-08-16T00:00:00Z"}'
            ' {"outageNumber": "2"}'
        ): "not JSON",
    }
    small.write(day(1), [*(change(str(n)) for n in range(200)), *bad], "more.jsonl")
    result = small.run(days(1), LANDED)
    assert {(row["line"], row["reason"], row["source_file"]) for row in small.rows(REJECTED)} == {
        (line, reason, MORE) for line, reason in bad.items()
    }
    assert result[RAW].built[0].rows == 240
    assert result[REJECTED].built[0].rows == len(bad)
    assert f"{MORE}: not JSON" in result[REJECTED].built[0].samples["rejected"]


def test_over_a_share_of_rejected_lines_the_day_fails(small, golden):
    small.write(day(1), ["not JSON"] * 4, "more.jsonl")
    result = small.run(days(0, 1), LANDED)
    (failed,) = result[RAW].failed()
    assert (failed.day, broken_rules(failed)) == (day(1), ["rejected_at_most"])
    golden(failed.message)
    assert {row["arrival_day"] for row in small.rows(RAW)} == {day(0)}


def test_unknown_fields_are_kept_as_text_and_told(small):
    small.write(day(1), [change("9", depth=3, tags={"a": [1]})], "more.jsonl")
    build = small.run(days(1), LANDED)[RAW].built[0]
    kept = {row["outageNumber"]: dict(row["unknown_fields"]) for row in small.rows(RAW)}
    assert kept["9"] == {"depth": "3", "tags": '{"a":[1]}'}
    assert kept["1"] == {}
    assert build.samples["unknown_fields"] == ["depth", "tags"]


def test_a_value_that_cannot_be_read_is_null_and_counted(small):
    small.write(day(1), [change("90", estCustAffected="many", _op="U")], "more.jsonl")
    build = small.run(days(1), [*LANDED, UPDATES])[UPDATES].built[0]
    assert build.outcome == "accepted"
    assert (build.measures["unparsed_customers"], build.measures["unparsed_latitude"]) == (1, 0)
    assert [
        (r["customers"], dict(r["unparsed"]))
        for r in small.rows(UPDATES)
        if r["outage_number"] == "90"
    ] == [(None, {"customers": "many"})]


def test_over_a_share_of_unreadable_values_the_day_fails_and_names_up_to_five_rows(small, golden):
    small.write(
        day(1),
        [change(str(n), estCustAffected="many", _op="U") for n in range(90, 99)],
        "more.jsonl",
    )
    (failed,) = small.run(days(0, 1), [*LANDED, UPDATES])[UPDATES].failed()
    assert (failed.day, broken_rules(failed)) == (day(1), ["unparsed_at_most"])
    golden(failed.message.splitlines()[0])
    (rows,) = [check["rows"] for check in failed.checks if not check["passed"]]
    assert len(rows) == 5
    assert all('"unparsed": {"customers": "many"}' in row for row in rows)
    assert {row["arrival_day"] for row in small.rows(UPDATES)} == {day(0)}


def test_impossible_event_times_are_kept_in_no_outage_day_counted_and_listed(small):
    times = {
        "1987": "540000000",
        "future": "1600000000",
        "before the horizon": "1564500000",
        "none": None,
    }
    small.write(
        day(1),
        [change(name, outageStartTime=text, _op="U") for name, text in times.items()],
        "more.jsonl",
    )
    build = small.run(days(0, 1))[UPDATES].built[1]
    assert set(times) <= {row["outage_number"] for row in small.rows(UPDATES)}
    assert not set(times) & {row["outage_number"] for row in small.rows(OUTAGES)}
    assert build.measures["unplaced"] == 4
    assert [text.split(" began ")[0] for text in build.samples["unplaced"]] == sorted(times)


def test_numbers_that_are_no_times_are_unreadable(small):
    numbers = ["9223372036854775807", "-9223372036854775808"]
    small.write(day(1), [change(n, outageStartTime=n, _op="U") for n in numbers], "more.jsonl")
    build = small.run(days(1), [*LANDED, UPDATES])[UPDATES].built[0]
    assert (build.outcome, build.measures["unparsed_started_at"], build.measures["unplaced"]) == (
        "accepted",
        2,
        2,
    )


def test_a_file_delivered_twice_is_once_in_staging(small):
    once = small.folder(day(1)) / "events.jsonl.gz"
    small.run(days(1), [*LANDED, UPDATES])
    before = small.rows(UPDATES)
    (once.parent / "again.jsonl").write_bytes(gzip.decompress(once.read_bytes()))
    result = small.run(days(1), [*LANDED, UPDATES])
    assert (result[RAW].built[0].rows, result[UPDATES].built[0].outcome) == (80, "unchanged")
    assert small.rows(UPDATES) == before


def test_a_file_may_have_any_name(small):
    names = [
        "100%25.jsonl",
        "a+b.jsonl",
        "two words.jsonl",
        "x[1]{2}*.jsonl",
        "übersicht.jsonl.gz",
        "a\u3000b.jsonl",
        "c\u00a0d\x85.jsonl",
    ]
    for name in names:
        small.write(day(1), [change("90")], name)
    small.run(days(1), LANDED)
    found = [
        row["source_file"].split("/")[-1] for row in small.rows(RAW) if row["outageNumber"] == "90"
    ]
    assert sorted(found) == sorted(names)


def test_an_upload_under_way_is_not_a_delivery_yet(small):
    small.write(day(1), [change("90")], "_events.jsonl")
    small.write(day(1), [change("91")], ".events.jsonl")
    assert small.run(days(1), LANDED)[RAW].built[0].rows == 40


def test_a_day_may_come_as_a_folder_or_an_archive_file_too(small):
    top = small.landing / "outage_events"
    text = "".join(
        f"{line}\n"
        for line in ['{"outageNumber":"7","_op":"I","_captured_at":"2019-08-16T00:00:00Z"}']
    )
    (top / "2019-08-16").mkdir()
    (top / "2019-08-16" / "a.ndjson").write_text(text)
    (top / "2019-08-16.json").write_text(text)
    small.run(days(1), LANDED)
    files = [r["source_file"] for r in small.rows(RAW) if r["outageNumber"] == "7"]
    assert sorted(files) == [
        "outage_events/2019-08-16.json",
        "outage_events/2019-08-16/a.ndjson",
        f"{FILE}.gz",
    ]


@pytest.mark.parametrize("write_mode", ["overwrite", "merge"])
def test_rows_without_a_day_are_counted_and_fail_their_day_and_no_other(built, write_mode, golden):
    plain = built.table(UPDATES)
    before = built.rows(UPDATES)
    is_wrong = f"arrival_day = DATE'{day(2)}' AND outage_number <> '100'"
    without = expr(f"CASE WHEN NOT ({is_wrong}) THEN arrival_day END")
    table = replace(
        plain,
        version="2",
        compute=lambda events: plain.compute(events).withColumn("arrival_day", without),
    )
    wrong = sum(row["outage_number"] != "100" for row in built.rows(UPDATES, days(2)))
    result = built.run(days(1, 2), table, force=True, write_mode=write_mode)[UPDATES]
    assert [(b.day, b.outcome) for b in result.built] == [(day(1), "unchanged"), (day(2), "failed")]
    golden(result.built[1].message, WRONG=f"{wrong} rows")
    assert built.rows(UPDATES) == before


def test_a_day_outside_the_calendar_is_not_computed_from_part_of_its_inputs(built, golden):
    """The calendar has become shorter since the run was launched."""
    shorter = replace(built, calendar=Calendar(FOUR[0], FOUR[2]))
    before = built.rows(HISTORY)
    result = shorter.run(FOUR, [HISTORY], run="queued before", force=True)[HISTORY]
    assert [(build.day, build.outcome) for build in result.built] == [
        (at, "unchanged") for at in FOUR[:3]
    ]
    assert list(result.blocked) == [FOUR[3]]
    golden(result.blocked[FOUR[3]])
    assert built.rows(HISTORY) == before


def days_seen(world: World, *, whole_days: bool) -> set[date]:
    """The event days of the rows that `outages` reads to compute one day."""
    plain = world.table(OUTAGES)
    seen = set[date]()
    updates_read = plain.reads["updates"]
    assert isinstance(updates_read, Window)
    window = replace(updates_read, whole_days=whole_days)

    def compute(updates):
        seen.update(
            row.outage_day for row in updates.select(F.col("outage_day")).distinct().collect()
        )
        return plain.compute(updates)

    world.run(
        days(1),
        replace(plain, reads={"updates": window}, compute=compute, version="2"),
        run="looks",
    )
    return seen


def test_rows_about_other_days_are_read_only_where_whole_days_are_asked_for(built):
    about = {row["outage_day"] for row in built.rows(UPDATES, FOUR[1:])}
    assert len(about) > 1
    assert days_seen(built, whole_days=False) == {day(1)}
    assert days_seen(built, whole_days=True) == about
