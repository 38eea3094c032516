"""A Kafka topic, and the index of offsets by day.

The index is built from the records' timestamps; each record is read once. It is saved in a file, so
the next process reads only new records. If that file is lost, all records are read again.
"""

import json
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from backfill_assets.calendar import UTC, day_at
from backfill_assets.errors import IncompleteDelivery, NotDelivered
from backfill_assets.grouping import grouped
from backfill_assets.lake.storage import make_cache, write_whole
from backfill_assets.sources.protocol import client_library

with suppress(ImportError):  # `client_library` reports it when a broker is needed
    from confluent_kafka import (
        Consumer,
        IsolationLevel,
        KafkaError,
        KafkaException,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

_DAY_S = 86_400
# The default time to wait for a broker.
TIMEOUT_MS = 10_000
TIMEOUT = "socket.timeout.ms"
# Two ranges of a day that are at most this far apart are read as one, with the records between
# them.
GAP = 10_000
# The client returns a full batch, or the available messages after this time.
_BATCH_MESSAGES = 10_000
_BATCH_WAIT_S = 0.05
# Options with this prefix are read from the environment, so that code has no secrets.
_ENVIRONMENT_PREFIX = "env:"


class OffsetRun(NamedTuple):
    """Consecutive records of one day in one partition.

    `first` is the offset of the first record, `end` that after the last one; `records` and `size`
    are their number and bytes. `day` counts from 1970-01-01 and may be outside the calendar.
    Neighbouring records are at most GAP offsets apart; between them are records of other days,
    transaction markers and aborted records.
    """

    day: int
    first: int
    end: int
    records: int
    size: int


# The runs of each partition, or of each day, by its number.
RunsByNumber = dict[int, list[OffsetRun]]


class TopicState(NamedTuple):
    """The state of a topic: each partition's first offset and end of committed records."""

    id: str
    offsets: Mapping[int, tuple[int, int]]
    compacted: bool


@dataclass(frozen=True)
class Topic:
    """The topic `name` of the brokers `servers`, with its days in `zone`.

    `options` are those of the client, librdkafka.
    """

    name: str
    servers: str
    options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    zone: str = UTC

    @property
    def timeout(self) -> float:
        """The timeout in seconds."""
        return int(self.options.get(TIMEOUT, TIMEOUT_MS)) / 1000

    def state(self) -> TopicState:
        """Read the topic's state.

        Raises NotDelivered if there is no such topic, IncompleteDelivery if no broker answers.
        """
        with self._admin() as admin:
            topics = admin.describe_topics(
                TopicCollection([self.name]), request_timeout=self.timeout
            )
            topic = topics[self.name].result()
            partitions = [partition.id for partition in topic.partitions]
            first = self._offsets(admin, partitions, OffsetSpec.earliest())
            end = self._offsets(admin, partitions, OffsetSpec.latest())
            offsets = {number: (first[number], end[number]) for number in partitions}
            return TopicState(str(topic.topic_id), offsets, self._is_compacted(admin))

    def first_at(self, milliseconds: int, state: TopicState) -> dict[int, int]:
        """Return each partition's first offset at or after this time, or its end."""
        with self._admin() as admin:
            found = self._offsets(admin, state.offsets, OffsetSpec.for_timestamp(milliseconds))
        return {
            number: state.offsets[number][1] if offset < 0 else offset
            for number, offset in found.items()
        }

    def runs(self, spans: Mapping[int, tuple[int, int]]) -> RunsByNumber:
        """Read the records of these offsets (the end excluded) once, and group them by day."""
        errors: list[str] = []
        config = self._config(errors) | {
            "group.id": "backfill_assets",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        with self._source_errors(errors):
            consumer = Consumer(config)
            try:
                consumer.assign(
                    [
                        TopicPartition(self.name, number, first)
                        for number, (first, _) in spans.items()
                    ]
                )
                return self._read(consumer, {number: end for number, (_, end) in spans.items()})
            finally:
                consumer.close()

    def _read(self, consumer: "Consumer", ends: dict[int, int]) -> RunsByNumber:
        runs: RunsByNumber = {number: [] for number in ends}
        last_answer = time.monotonic()
        while ends:
            messages = consumer.consume(_BATCH_MESSAGES, timeout=_BATCH_WAIT_S)
            last_answer = time.monotonic() if messages else last_answer
            if time.monotonic() - last_answer > self.timeout:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            found = list[tuple[int, OffsetRun]]()
            for message in messages:
                number = message.partition()
                offset = message.offset()
                error = message.error()
                if error and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                assert number is not None
                assert offset is not None
                end = ends.get(number, -1)
                if error or offset >= end:
                    # The end of the partition, if transaction markers are last; or a newer record.
                    ends.pop(number, None)
                    continue
                day = day_number_at(message.timestamp()[1] // 1000, self.zone)
                found.append((number, OffsetRun(day, offset, offset + 1, 1, len(message))))
                if offset + 1 == end:
                    del ends[number]
            for number, records in grouped(found).items():
                runs[number] = join_runs(runs[number], records)
        return runs

    def _offsets(
        self, admin: "AdminClient", partitions: Iterable[int], spec: "OffsetSpec"
    ) -> dict[int, int]:
        wanted = {TopicPartition(self.name, number): spec for number in partitions}
        answers = admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self.timeout
        )
        return {asked.partition: answer.result().offset for asked, answer in answers.items()}

    def _is_compacted(self, admin: "AdminClient") -> bool:
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        try:
            settings = admin.describe_configs([resource], request_timeout=self.timeout)[
                resource
            ].result()
        except KafkaException:  # a user may read the topic without access to its settings
            return False
        return "cleanup.policy" in settings and "compact" in settings["cleanup.policy"].value

    @contextmanager
    def _admin(self) -> Iterator["AdminClient"]:
        errors: list[str] = []
        config = self._config(errors)  # first, because this checks that the library is installed
        with self._source_errors(errors):
            admin = AdminClient(config)
            try:
                yield admin
            finally:
                admin.poll(0)  # reports the errors of its threads

    def _config(self, errors: list[str]) -> dict[str, Any]:
        with client_library("confluent-kafka", self.servers, "kafka"):
            import confluent_kafka  # noqa: F401
        return {
            # Errors contain these messages, so the log does not.
            "log_level": 0,
            "error_cb": lambda error: errors.append(error.str()),
            **{
                name: from_environment(value)
                for name, value in self.options.items()
                if not name.startswith("kafka.")
            },
            "bootstrap.servers": self.servers,
        }

    @contextmanager
    def _source_errors(self, errors: list[str]) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            refusals = [text for text in errors if "uthentication" in text]
            why = [*refusals, *errors, error.args[0].str()][0].partition(" (after ")[0]
            no_topic = (
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError._UNKNOWN_TOPIC,
                KafkaError._UNKNOWN_PARTITION,
            )
            if error.args[0].code() in no_topic:
                raise NotDelivered(f"there is no topic {self.name} at {self.servers}") from None
            raise IncompleteDelivery(
                f"{self.servers} cannot be read for the topic {self.name} ({why})"
            ) from None


def from_environment(value: str) -> str:
    """Return the value of an option, or of the environment variable in `env:NAME`.

    Raises IncompleteDelivery if the variable is not set.
    """
    if not value.startswith(_ENVIRONMENT_PREFIX):
        return value
    name = value.removeprefix(_ENVIRONMENT_PREFIX)
    if name not in os.environ:
        raise IncompleteDelivery(
            f"the environment variable {name} is not set.",
            next_step="Set it where the servers and commands are started.",
        )
    return os.environ[name]


_EPOCH = date(1970, 1, 1)
# The version of a saved index. Increase it with each change of `IndexedPartition`.
_FORM_VERSION = 2
# The most ranges that are read from a partition.
_MAX_RANGES = 8


class ExpiredDays(NamedTuple):
    """Days that may have lost records: all days up to the day number `until`, and `days`."""

    until: int = -1
    days: Collection[int] = frozenset()

    def __contains__(self, day: object) -> bool:
        return isinstance(day, int) and (day <= self.until or day in self.days)


_NOTHING_EXPIRED = ExpiredDays()


class IndexedPartition(NamedTuple):
    """The indexed records of a partition, with offsets from `first` up to, but without, `end`."""

    first: int = 0
    end: int = 0
    runs: Sequence[OffsetRun] = ()

    def expired_days(self, begins: int, today: int) -> ExpiredDays:
        """Return the days that may have deleted records, before the offset `begins`."""
        if not begins or not self.runs or self.first > begins:
            # A record before the first indexed one still exists.
            return _NOTHING_EXPIRED
        deleted = frozenset(run.day for run in self.runs if run.first < begins and run.day <= today)
        if not self.first:
            return ExpiredDays(days=deleted)
        # Records that were deleted before they were indexed are older than the first indexed one,
        # unless its clock was ahead.
        return ExpiredDays(next((run.day for run in self.runs if run.day <= today), today), deleted)


@dataclass
class TopicIndex:
    """The index of one topic, saved at `path`, if it is given."""

    path: Path | None
    topic_id: str = ""
    partitions: dict[int, IndexedPartition] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            saved = json.loads(self.path.read_text()) if self.path else {}
            if saved["form"] == _FORM_VERSION:
                self.partitions = {
                    int(number): IndexedPartition(first, end, [OffsetRun(*run) for run in runs])
                    for number, (first, end, runs) in saved["partitions"].items()
                }
                self.topic_id = saved["topic"]

    def up_to_now(
        self, topic: Topic, state: TopicState, day: date
    ) -> Mapping[int, IndexedPartition]:
        """Return the partitions with every record of `day` and later days.

        Only new records are read.
        """
        with self.lock:
            ends = {number: end for number, (_, end) in state.offsets.items()}
            if self.topic_id != state.id or any(
                ends.get(number, -1) < partition.end
                for number, partition in self.partitions.items()
            ):
                self.topic_id = state.id
                self.partitions = {}  # another topic of the same name
            # A day in any zone begins less than a day before or after the day in UTC.
            first_day = day_number(day) - (topic.zone != UTC)
            begins = topic.first_at(first_day * _DAY_S * 1000, state)
            partitions = {
                number: IndexedPartition(begin, begin) for number, begin in begins.items()
            }
            # If records were deleted before they were read, there is a gap. Then the index starts
            # after the gap.
            partitions |= {
                number: partition
                for number, partition in self.partitions.items()
                if partition.end >= state.offsets[number][0]
            }
            earlier = {
                number: (begins[number], partition.first)
                for number, partition in partitions.items()
                if begins[number] < partition.first
            }
            later = {
                number: (partition.end, ends[number])
                for number, partition in partitions.items()
                if partition.end < ends[number]
            }
            for spans in (earlier, later):
                for number, runs in topic.runs(spans).items():
                    first, end, indexed = partitions[number]
                    partitions[number] = IndexedPartition(
                        min(first, spans[number][0]),
                        max(end, spans[number][1]),
                        join_runs(indexed, runs),
                    )
            if partitions != self.partitions:
                self.partitions = partitions
                self._save()
            return partitions

    def _save(self) -> None:
        if self.path:
            with suppress(OSError):
                make_cache(self.path.parent)
                index = {
                    "form": _FORM_VERSION,
                    "topic": self.topic_id,
                    "partitions": self.partitions,
                }
                write_whole(self.path, json.dumps(index))


@cache
def topic_index(path: Path | None, topic: Topic) -> TopicIndex:
    """Return this process's only index that is saved at `path`."""
    return TopicIndex(path)


def join_runs(some: Iterable[OffsetRun], others: Iterable[OffsetRun]) -> list[OffsetRun]:
    """Join the runs of a partition. Neighbouring runs of the same day become one."""
    runs: RunsByNumber = {}
    for run in sorted([*some, *others], key=lambda run: run.first):
        of_day = runs.setdefault(run.day, [])
        if of_day and run.first - of_day[-1].end <= GAP:
            before = of_day[-1]
            of_day[-1] = OffsetRun(
                run.day, before.first, run.end, before.records + run.records, before.size + run.size
            )
        else:
            of_day.append(run)
    return sorted((run for of_day in runs.values() for run in of_day), key=lambda run: run.first)


def offsets_to_read(runs: Sequence[OffsetRun]) -> list[tuple[int, int]]:
    """Return a few ranges of offsets that cover these runs and the small gaps between them."""
    spans = _merged([(run.first, run.end) for run in runs], 0)
    gaps = sorted((after[0] - span[1] for span, after in pairwise(spans)), reverse=True)
    return _merged(spans, max(GAP, gaps[_MAX_RANGES - 1] if len(gaps) >= _MAX_RANGES else 0))


def _merged(spans: Sequence[tuple[int, int]], near: int) -> list[tuple[int, int]]:
    """Merge sorted ranges that are at most `near` apart."""
    merged: list[tuple[int, int]] = []
    for first, end in spans:
        if merged and first - merged[-1][1] <= near:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((first, end))
    return merged


@lru_cache(10_000)
def day_number_at(seconds: int, zone: str) -> int:
    """Return the number of the day at a time since 1970: in UTC, if Python lacks the year."""
    if zone != UTC:
        with suppress(ValueError, OverflowError):
            return day_number(day_at(seconds, zone))
    return seconds // _DAY_S


def day_number(day: date) -> int:
    """Return the days since 1970-01-01."""
    return (day - _EPOCH).days


def day_of_number(number: int) -> date:
    """Return the day that is this many days after 1970-01-01."""
    return _EPOCH + timedelta(days=number)
