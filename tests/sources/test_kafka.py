"""Kafka as a source, on a real broker: a day is the records whose timestamps fall in it, whatever
order they came in.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from psutil import Process

from backfill_assets import rules, same_day, table
from backfill_assets.calendar import Calendar
from backfill_assets.errors import IncompleteDelivery, NotDelivered, SourceError
from backfill_assets.lake.history import latest
from backfill_assets.lake.lake import Lake
from backfill_assets.plan.status import State, Status, latest_builds, status_of
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.kafka.source import Kafka
from backfill_assets.sources.kafka.topic import GAP
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day, days, delivery_of, refusal_of
from tests.worlds.services import PASSWORD, USER, Broker, Topic, at, quiet

pytestmark = pytest.mark.long


@contextmanager
def served(by: Broker) -> Iterator[list[int]]:
    """The bytes that the broker writes meanwhile: to clients, and a few to its log."""
    process = Process(by.pid)
    written = list[int]()
    before = process.io_counters().write_chars
    yield written
    written.append(process.io_counters().write_chars - before)


def counts(delivered: dict[date, Delivery | SourceError]) -> dict[date, int]:
    return {
        at: sum(each.files.values()) for at, each in delivered.items() if isinstance(each, Delivery)
    }


def fingerprints(topic: Topic, area: LandingArea, wanted: list[date]) -> dict[date, str]:
    return {
        at: each.fingerprint
        for at, each in topic.source.delivered(area, wanted).items()
        if isinstance(each, Delivery)
    }


def changed(before: dict[date, str], after: dict[date, str]) -> list[date]:
    return [at for at in after if before[at] != after[at]]


def rows(topic: Topic, area: LandingArea, spark, wanted: list[date]) -> list[tuple]:
    read = topic.source.read(area, spark, wanted)
    assert read.columns == [
        "arrival_day",
        "key",
        "value",
        "partition",
        "offset",
        "timestamp",
        "headers",
    ]
    collected = read.select("arrival_day", "partition", "offset", "timestamp", "value").collect()
    return sorted((d, p, o, t.replace(tzinfo=UTC), bytes(v)) for d, p, o, t, v in collected)


@pytest.fixture
def area(tmp_path: Path) -> LandingArea:
    return LandingArea(tmp_path, tmp_path / "landed")


def test_a_day_has_the_records_with_its_timestamps(topic, area, spark, golden):
    topic.create(2, **{"compression.type": "lz4"}).send(
        at(0), at(1) - 1, at(1), at(1, hours=23), at(3)
    )
    topic.send(at(0, hours=5), at(3, hours=1), partition=1)
    delivered = topic.source.delivered(area, days(0, 1, 2, 3))
    assert counts(delivered) == dict(zip(days(0, 1, 2, 3), [3, 2, 0, 2], strict=True)), (
        "a day without a record is delivered too"
    )
    assert rows(topic, area, spark, days(0, 1, 3)) == topic.expected(days(0, 1, 3))
    assert rows(topic, area, spark, days(1, 2)) == topic.expected(days(1, 2))
    assert topic.source.read(area, spark, days(2)).collect() == []
    golden("\n".join(topic.source.described(area, day(0))), TOPIC=topic.name)
    assert topic.source.size(area, days(0, 1)) == 50
    (first,) = topic.source.read(area, spark, days(0)).where("partition = 1").collect()
    assert (bytes(first.key), [(each.key, bytes(each.value)) for each in first.headers]) == (
        b"key",
        [("at", b"1"), ("at", b"2")],
    )


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata", "America/Havana"])
def test_a_day_begins_at_midnight_in_the_zone_of_the_project(topic, area, spark, zone):
    # In Havana clocks go back to 0:00 at 1:00 on 2019-11-03; in Berlin at 3:00 on 2019-10-27.
    begin = datetime(2019, 10, 24, tzinfo=UTC)
    moments = [begin + timedelta(minutes=20 * n) for n in range(3 * 24 * 12)]
    topic.create().send(*(int(each.timestamp() * 1000) for each in moments))
    local = replace(area, zone=zone)
    wanted = Counter(pd.DatetimeIndex(moments).tz_convert(zone).date)
    some = sorted(wanted)[2:]
    assert counts(topic.source.delivered(local, some)) == {on: wanted[on] for on in some}
    assert counts(topic.source.delivered(local, [*wanted])) == wanted
    in_utc = Counter(each.date() for each in moments)
    assert counts(topic.source.delivered(area, [*in_utc])) == in_utc, "an index for each zone"
    read = topic.source.read(local, spark, [*wanted]).groupBy("arrival_day").count()
    assert {row[0]: row[1] for row in read.collect()} == wanted


def test_a_day_is_read_once_it_is_over_in_its_zone(topic, area):
    topic.create().send(at(0))
    over_in_kolkata = replace(area, clock=lambda: at(0, hours=19) / 1000)
    of_day = [
        topic.source.delivered(replace(over_in_kolkata, zone=zone), days(0))[day(0)]
        for zone in ("Asia/Kolkata", "UTC")
    ]
    assert [type(each) for each in of_day] == [Delivery, IncompleteDelivery]


def test_records_out_of_order_are_read_once_with_their_day(topic, area, tmp_path, spark, seed):
    chance = random.Random(seed)
    wanted = days(*range(6))
    topic.create(2, **{"compression.type": "zstd"})
    between = [at(9)] * (GAP + 1)  # so that several ranges of a partition are read
    for partition in range(2):
        for _ in range(3):
            times = [at(chance.randrange(6), seconds=chance.randrange(86_400)) for _ in range(20)]
            topic.send(*times, *between, partition=partition)
    topic.source.delivered(area, wanted[3:])  # what is before is read when it is asked for
    delivered = topic.source.delivered(area, wanted)
    assert delivered == topic.source.delivered(LandingArea(tmp_path, tmp_path / "anew"), wanted)
    assert sum(counts(delivered).values()) == 120
    assert rows(topic, area, spark, wanted) == topic.expected(wanted)
    some = chance.sample(wanted, 2)
    assert rows(topic, area, spark, some) == topic.expected(some)


def test_a_late_record_changes_only_its_own_day(topic, area, spark):
    wanted = days(0, 1, 2)
    topic.create().send(at(0, hours=1), at(1, hours=1), at(2, hours=1))
    before = fingerprints(topic, area, wanted)
    assert fingerprints(topic, area, wanted) == before
    topic.send(at(1, hours=9))
    after = fingerprints(topic, area, wanted)
    assert changed(before, after) == [day(1)]
    assert delivery_of(topic.source, area, day(1)).files == {f"{topic.name}/0@1": 2}, (
        "the file of before, which has grown"
    )
    assert rows(topic, area, spark, [day(1)]) == topic.expected([day(1)])


def test_a_record_is_read_once_for_the_index_and_once_for_the_build(topic, area, spark):
    hundred = days(*range(100))
    topic.create(2)
    for partition in range(2):
        topic.send(
            *(at(n, minutes=m) for n in range(100) for m in range(20)),
            partition=partition,
            size=1500,
        )
    size = 100 * 20 * 2 * 1500
    with served(topic.broker) as to_know:
        assert sum(counts(topic.source.delivered(area, hundred)).values()) == 4_000
    with served(topic.broker) as again:
        topic.source.delivered(LandingArea(area.root, area.cache), hundred)
    with served(topic.broker) as to_read:
        read = topic.source.read(area, spark, hundred).groupBy("arrival_day").count().collect()
    assert {row.arrival_day: row["count"] for row in read} == dict.fromkeys(hundred, 40)
    assert size < to_know[0] < 1.1 * size
    assert again[0] < 0.01 * size
    assert size < to_read[0] < 1.1 * size


def test_only_records_of_committed_transactions_are_read(topic, area, spark):
    topic.create()
    producer = Producer(quiet(topic.broker.address) | {"transactional.id": topic.name})
    producer.init_transactions()

    def send(*times: int) -> list[tuple[int, bytes]]:
        producer.begin_transaction()
        records = topic.produce(producer, times, 0, 10)
        assert producer.flush(30) == 0
        return records

    kept = topic.records[0] = []
    for times in ((at(0), at(1)), (at(0, hours=1),)):
        # A marker takes an offset too.
        kept += [*send(*times), (-1, b"marker")]
        producer.commit_transaction()
        kept += [(-1, b"aborted") for _ in send(at(0, hours=2), at(1, hours=2))] + [(-1, b"marker")]
        producer.abort_transaction()
    assert counts(topic.source.delivered(area, days(0, 1))) == {day(0): 2, day(1): 1}
    assert rows(topic, area, spark, days(0, 1)) == topic.expected(days(0, 1))
    opened = send(at(1, hours=3))
    assert counts(topic.source.delivered(area, days(0, 1))) == {
        day(0): 2,
        day(1): 1,
    }, "whose transaction is not over"
    kept += opened
    producer.commit_transaction()
    assert counts(topic.source.delivered(area, days(0, 1))) == {day(0): 2, day(1): 2}
    assert rows(topic, area, spark, days(1)) == topic.expected(days(1))


@pytest.mark.parametrize(
    "known", [True, False], ids=["records were known before they were deleted", "they were not"]
)
def test_expired_days_fail_and_name_the_next_complete_day(topic, area, spark, known, golden):
    wanted = days(0, 1, 2, 3)
    topic.create(2).send(*(at(n, hours=hour) for n in range(4) for hour in (1, 2))).send(
        at(0), partition=1
    )
    if known:
        topic.source.delivered(area, wanted)
    topic.delete_before(3)
    delivered = topic.source.delivered(area, wanted)
    for expired in days(0, 1):
        golden(str(delivered[expired]), f"{expired}", TOPIC=topic.name)
    assert isinstance(delivered[day(0)], NotDelivered), "what was built of it stays"
    assert counts(delivered) == {day(2): 2, day(3): 2}
    assert rows(topic, area, spark, days(2, 3)) == topic.expected(days(2, 3))
    with pytest.raises(NotDelivered):
        topic.source.read(area, spark, wanted)


def test_wrong_producer_clocks_stop_no_day(topic, area, spark):
    """A producer that counts in microseconds, and one whose clock was years ahead: beyond any
    calendar, and beyond today.
    """
    topic.create(**{"message.timestamp.after.max.ms": str(2**62)})
    topic.send(at(0), at(0) * 1000, at(9_000), at(1), at(1) * 1000, at(1, hours=1), at(2))
    assert counts(topic.source.delivered(area, days(0, 1, 2))) == {day(0): 1, day(1): 2, day(2): 1}
    assert rows(topic, area, spark, days(0, 1)) == topic.expected(days(0, 1))
    topic.delete_before(3)
    delivered = topic.source.delivered(area, days(0, 1, 2))
    assert counts(delivered) == {day(1): 2, day(2): 1}, "only of day 0 a record is gone"
    assert delivered[day(0)].what.endswith(str(day(1))), "the next complete day"
    anew = LandingArea(area.root, area.root / "anew")
    topic.delete_before(4)
    delivered = topic.source.delivered(anew, days(0, 1, 2))
    assert counts(delivered) == {day(2): 1}, (
        "the first that is left says of which days the deleted ones were"
    )
    assert delivered[day(1)].what.endswith(str(day(2)))


def test_the_index_grows_with_days_and_not_with_records(topic, area):
    """Times of devices that were without a network for up to six hours: hardly two records of a day
    follow each other.
    """
    chance = random.Random(1)
    topic.create().send(*(at(2, hours=n / 100 - 6 * chance.random()) for n in range(2400)))
    assert sum(counts(topic.source.delivered(area, days(1, 2))).values()) == 2400
    (saved,) = (area.root / "landed").glob("*.json")
    assert saved.stat().st_size < 200
    assert [
        line.partition(",")[0] for on in days(1, 2) for line in topic.source.described(area, on)
    ] == [f"{topic.name}/0"] * 2


def test_records_deleted_before_they_were_indexed_expire_their_days(topic, area):
    topic.create().send(at(0), at(1))
    topic.source.delivered(area, days(0, 1))
    topic.send(at(1, hours=1), at(2), at(2, hours=1), at(3)).delete_before(4)
    delivered = topic.source.delivered(area, days(0, 1, 2, 3))
    assert counts(delivered) == {day(3): 1}
    assert delivered[day(2)].what.endswith(str(day(3)))


def test_a_recreated_topic_is_another_topic(topic, area):
    topic.create().send(at(0), at(0, hours=1))
    before = delivery_of(topic.source, area)
    topic.broker.admin.delete_topics([topic.name])[topic.name].result()
    assert type(refusal_of(topic.source, area)) is NotDelivered
    topic.create().send(at(1), at(0, hours=1), at(0, hours=2))
    after = delivery_of(topic.source, area)
    assert (list(before.files), list(after.files)) == ([f"{topic.name}/0@0"], [f"{topic.name}/0@1"])
    assert before.fingerprint != after.fingerprint


LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}


def test_an_unreadable_topic_says_why(topic, area, golden):
    address = topic.broker.address
    missing = refusal_of(topic.source, area)
    assert type(missing) is NotDelivered
    golden(missing.what, "missing", TOPIC=topic.name, BROKER=address)
    assert topic.name not in topic.broker.admin.list_topics(timeout=10).topics, "asking makes none"
    impatient = {"socket.timeout.ms": "1500"}
    with_login = topic.broker.with_login
    sources = {
        "127.0.0.1:1 failed: Connection refused)": Kafka("events", "127.0.0.1:1", impatient),
        "Authentication failed": Kafka(
            "events", with_login, LOGIN | impatient | {"sasl.password": "another"}
        ),
        'property: "security.protocoll")': Kafka("events", address, {"security.protocoll": "SSL"}),
        "OF_NOBODY": Kafka("events", with_login, LOGIN | {"sasl.password": "env:OF_NOBODY"}),
    }
    for why, source in sources.items():
        refusal = refusal_of(source, area)
        assert type(refusal) is IncompleteDelivery, "what was built stays up to date meanwhile"
        assert why in refusal.what
        golden(refusal.what.partition(" (")[0], why, BROKER=address, LOGIN=with_login)
    topic.create(**{"cleanup.policy": "compact"})
    compacted = refusal_of(topic.source, area)
    assert type(compacted) is SourceError
    golden(compacted.what, "compacted", TOPIC=topic.name)
    not_over = refusal_of(topic.source, replace(area, clock=lambda: (at(1) - 1) / 1000))
    assert type(not_over) is IncompleteDelivery
    golden(not_over.what, "not over", TOPIC=topic.name, BROKER=address)


def test_both_clients_log_in_with_a_password_from_the_environment(topic, area, spark, monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    topic.create().send(at(0))
    source = Kafka(
        topic.name, topic.broker.with_login, LOGIN | {"sasl.password": "env:KAFKA_PASSWORD"}
    )
    (row,) = source.read(area, spark, days(0)).collect()
    assert bytes(row.value) == topic.records[0][0][1]
    assert PASSWORD not in repr(source)


def tables(source: Kafka) -> tuple[Table, ...]:
    @table(
        "raw/events",
        partition_by="arrival_day",
        columns=(
            "arrival_day DATE, event STRING, at TIMESTAMP, partition INT, offset BIGINT, key BINARY"
        ),
        reads={"records": source},
        key=["partition", "offset"],
        rules=[rules.unique_key()],
        version="1",
    )
    def events(records):
        return records.selectExpr(
            "arrival_day", "string(value) event", "timestamp at", "partition", "offset", "key"
        )

    @table(
        "staging/events_daily",
        partition_by="arrival_day",
        columns="arrival_day DATE, events BIGINT",
        reads={"events": same_day(events)},
        version="1",
    )
    def events_daily(events):
        return events.groupBy("arrival_day").agg({"*": "count"}).toDF("arrival_day", "events")

    return events, events_daily


def test_days_of_a_topic_are_built_and_a_late_record_outdates_its_day(topic, tmp_path, spark):
    wanted = days(0, 1, 2)
    topic.create(2).send(at(0), at(1), at(1, hours=2), at(2)).send(at(0, hours=3), partition=1)
    declared = tables(topic.source)
    lake = Lake(str(tmp_path / "lake"))
    settings = read_settings(lake=lake.root, landing=tmp_path)
    workspace = Workspace(
        settings,
        declared,
        Calendar(day(0), day(2)),
        lake,
        LandingArea(tmp_path, tmp_path / "landed"),
    )

    def run(run: str) -> dict[str, list[date]]:
        results = [
            Step(each, workspace, StepRequest(run=run), lambda: spark).run(wanted)
            for each in declared
        ]
        assert all(build.succeeded for result in results for build in result.built), results
        return {result.table.name: [build.day for build in result.built] for result in results}

    def built() -> list[tuple]:
        raw = DeltaTable(lake.path("raw/events")).to_pyarrow_table().to_pylist()
        return sorted(
            (r["arrival_day"], r["partition"], r["offset"], r["at"], r["event"].encode())
            for r in raw
        )

    def status() -> Status:
        return status_of(workspace, declared, wanted, latest=latest_builds(workspace))

    def states() -> dict[State, list[date]]:
        return status().of("raw/events")

    assert run("first") == {"raw/events": wanted, "staging/events_daily": wanted}
    assert built() == topic.expected(wanted)
    assert states() == {State.UP_TO_DATE: wanted}
    topic.send(at(1, hours=5), partition=1)
    assert states() == {State.UP_TO_DATE: days(0, 2), State.SOURCE_CHANGED: days(1)}
    why = status().partitions["raw/events", day(1)].why
    assert why == f"1 file changed: {topic.name}/1@1 was added"
    assert run("second") == {"raw/events": days(1), "staging/events_daily": days(1)}
    assert built() == topic.expected(wanted)
    recorded = {
        at: build.hashes
        for (_, at), build in latest(lake.ledger, {"raw/events": None}).accepted.items()
    }
    name = topic.name
    assert recorded == {
        day(0): {f"{name}/0@0": "0..0", f"{name}/1@0": "0..0"},
        day(1): {f"{name}/0@1": "1..2", f"{name}/1@1": "1..1"},
        day(2): {f"{name}/0@3": "3..3"},
    }
    topic.delete_before(3)
    assert states() == {State.UP_TO_DATE: wanted}, "what was built of them stays"
    assert workspace.packages == topic.source.packages
