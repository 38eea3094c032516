"""Topics of tests' own on a real broker, with what was produced into them, and what is delivered of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import count

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from backfill_assets.errors import SourceError
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.kafka import Kafka
from backfill_assets.sources.protocol import Delivery
from tests.sources.broker import Broker, quiet

MIDNIGHT = datetime(2019, 8, 15, tzinfo=UTC)
NAMES = count()


def at(number: int, **time: float) -> int:
    """The milliseconds of a time on the day `number`."""
    return round((MIDNIGHT + timedelta(days=number, **time)).timestamp() * 1000)


@dataclass
class Topic:
    """A topic of a test's own, with what was produced into it: of each partition the timestamps and values, by offset."""

    broker: Broker
    name: str
    records: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)

    @property
    def source(self) -> Kafka:
        return Kafka(self.name, self.broker.address)

    def create(self, partitions: int = 1, **config: str) -> "Topic":
        self.broker.admin.create_topics([NewTopic(self.name, partitions, 1, config=config)])[self.name].result()
        return self

    def send(self, *times: int, partition: int = 0, size: int = 10) -> "Topic":
        """Produce a record of each of these times."""
        # Else records that are sent again may come behind later ones, and offsets be others than expected.
        producer = Producer(quiet(self.broker.address) | {"enable.idempotence": True})
        self.records.setdefault(partition, []).extend(self.produce(producer, times, partition, size))
        assert producer.flush(30) == 0
        return self

    def produce(self, producer: Producer, times: Iterable[int], partition: int, size: int) -> list[tuple[int, bytes]]:
        begun = len(self.records.get(partition, []))
        records = [(time, f"{partition}-{begun + n}-".encode().ljust(size, b".")) for n, time in enumerate(times)]
        for time, value in records:
            producer.produce(self.name, value, b"key", partition, timestamp=time, headers=[("at", b"1"), ("at", b"2")])
            producer.poll(0)
        return records

    def expected(self, wanted: Iterable[date]) -> list[tuple]:
        """The rows of these days: by Python's own calendar, over what was produced."""
        moments = [
            (datetime.fromtimestamp(ms / 1000, UTC), partition, offset, value)
            for partition, records in self.records.items()
            for offset, (ms, value) in enumerate(records)
            if ms < at(10_000)
        ]
        return sorted((moment.date(), p, o, moment, value) for moment, p, o, value in moments if moment.date() in wanted)

    def delete_before(self, offset: int, partition: int = 0) -> None:
        for answer in self.broker.admin.delete_records([TopicPartition(self.name, partition, offset)]).values():
            answer.result()


def counts(delivered: dict[date, Delivery | SourceError]) -> dict[date, int]:
    return {at: sum(each.files.values()) for at, each in delivered.items() if isinstance(each, Delivery)}


def fingerprints(topic: Topic, area: LandingArea, wanted: list[date]) -> dict[date, str]:
    return {at: each.fingerprint for at, each in topic.source.delivered(area, wanted).items() if isinstance(each, Delivery)}


def changed(before: dict[date, str], after: dict[date, str]) -> list[date]:
    return [at for at in after if before[at] != after[at]]


def rows(topic: Topic, area: LandingArea, spark, wanted: list[date]) -> list[tuple]:
    read = topic.source.read(area, spark, wanted)
    assert read.columns == ["arrival_day", "key", "value", "partition", "offset", "timestamp", "headers"]
    collected = read.select("arrival_day", "partition", "offset", "timestamp", "value").collect()
    return sorted((d, p, o, t.replace(tzinfo=UTC), bytes(v)) for d, p, o, t, v in collected)
