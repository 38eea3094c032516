"""A source that is a Kafka topic: a day is the records whose own timestamps fall in it, in UTC.

Where timestamps run in order, a day is one range of offsets in each partition. Where they do not, and a record of an old day
comes late, it is of its own day all the same: that day gets a second range, is outdated, and no other is. No record is of two
days, and none of no day. For that, each record's timestamp is read once, by Kafka's own client, when the record is first seen
(`kafka_index.py`: which offsets are of which day, kept in the home); Spark reads the records of the days that are built.

Of what was deleted before it was seen, only the order of time tells the days: where the first record that a partition holds
is a straggler of a much older day, a day that lost records before it can count as whole. A partition that holds nothing says
nothing of it. Where the settings of a topic may not be seen, it is not noticed that it is compacted.

What was not tried: a cluster of several brokers; TLS; SCRAM, Kerberos and OAuth; schema registries (keys and values are bytes).
Azure Event Hubs speaks this protocol too, at port 9093, with
`options={"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "$ConnectionString",
"sasl.password": "env:EVENT_HUBS_CONNECTION"}`; it was not tried. Amazon Kinesis does not speak it, and there is no source for
it: a day would be what arrived between two times in each shard (`GetShardIterator`, AT_TIMESTAMP), its input the shards, which
split and merge, with sequence numbers; Spark itself has no reader for it. Nothing of that was tried.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.errors import NotDelivered, SourceError, StillWritten
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.declared import refuse_mistyped
from backfill_assets.sources.kafka_index import Gone, day_of, index_at, number_of, ranges
from backfill_assets.sources.kafka_rows import PACKAGE, records
from backfill_assets.sources.kafka_topic import TIMEOUT, TIMEOUT_MS, Run, Topic, TopicState
from backfill_assets.sources.protocol import Delivery, Source
from backfill_assets.sources.usable import usable

Runs = Mapping[int, Sequence[Run]]
RANGES_RECORDED = 50


@dataclass(frozen=True)
class Kafka(Source):
    """The records of a Kafka topic.

    topic    the topic; also the name under which builds record what they were made from
    servers  its brokers: "kafka-1:9092,kafka-2:9092"
    options  settings of the client, as librdkafka names them: "security.protocol", "sasl.mechanism", "sasl.username",
             "sasl.password", "ssl.ca.location"; "env:NAME" stands for an environment variable. Spark is given the same; what
             it needs besides begins with "kafka.", as "kafka.ssl.truststore.location"; "socket.timeout.ms" says how long an
             answer is waited for, by itself 10 seconds

    The rows have `arrival_day DATE, key BINARY, value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP`, in
    milliseconds, and `headers ARRAY<STRUCT<key: STRING, value: BINARY>>`: `value.cast("string")` is a value as text.

    A day is read once it is over; one without a record is delivered, and has no rows. Of transactions, the records of those
    that were committed are read, once they are. A day of which the topic may have deleted records (retention) is not built any
    more; what was built of it stays. A compacted topic, whose old records go as newer ones of their keys come, fails every day.
    """

    topic: str
    # The same topic elsewhere is the same source: what it holds decides.
    servers: str = field(compare=False)
    options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        refuse_mistyped(self)
        if not self.options.get(TIMEOUT, str(TIMEOUT_MS)).isdecimal():
            raise ValueError(f"Kafka({self.topic!r}): the option {TIMEOUT} is a number of milliseconds")

    @property
    def name(self) -> str:
        return self.topic

    @property
    def packages(self) -> tuple[str, ...]:
        """Spark's own reader of Kafka."""
        return (PACKAGE,)

    def delivered(self, area: LandingArea, days: Sequence[date]) -> dict[date, Delivery | SourceError]:
        """The fingerprint of each day's offsets, and its records by partition, or the SourceError that says why not."""
        return {
            day: runs if isinstance(runs, SourceError) else self._delivery(runs) for day, runs in self._runs(area, days).items()
        }

    def described(self, area: LandingArea, day: date) -> list[str]:
        """The day's offsets, a sentence for each range."""
        return [
            f"{self.topic}/{number}, offsets {run.first} to {run.end - 1}, {run.records} records, {run.size} bytes"
            for number, runs in self._usable(area, [day])[day].items()
            for run in runs
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """The bytes of the values of `days`."""
        return sum(run.size for of_day in self._usable(area, days).values() for runs in of_day.values() for run in runs)

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The records of `days`. Offsets are read once, however many days they are of."""
        runs: dict[int, list[Run]] = {}
        for of_day in self._usable(area, days).values():
            for number, of_partition in of_day.items():
                runs.setdefault(number, []).extend(of_partition)
        spans = {number: ranges(sorted(each, key=lambda run: run.first)) for number, each in runs.items()}
        return records(spark, self._topic, spans, days)

    @property
    def _topic(self) -> Topic:
        return Topic(self.topic, self.servers, self.options)

    def _usable(self, area: LandingArea, days: Sequence[date]) -> dict[date, Runs]:
        """The runs of each of `days`. Raises the SourceError of the first day that cannot be used."""
        return usable(self._runs(area, days))

    def _runs(self, area: LandingArea, days: Sequence[date]) -> dict[date, Runs | SourceError]:
        """By partition, the runs of records of each of `days`, or the SourceError that says why they cannot be used."""
        today = datetime.fromtimestamp(area.clock(), UTC).date()
        over = [day for day in days if day < today]
        try:
            runs = self._of_days_over(area, over, number_of(today)) if over else {}
        except SourceError as error:
            runs = {day: type(error)(f"no source for {day}: {error}") for day in over}
        return {day: runs[day] if day in runs else self._not_over(day) for day in days}

    def _not_over(self, day: date) -> StillWritten:
        return StillWritten(f"{day} is not over yet: the records of {self.topic} are read from {day + timedelta(days=1)} on")

    def _of_days_over(self, area: LandingArea, days: Sequence[date], today: int) -> dict[date, Runs | SourceError]:
        topic = self._topic
        state = topic.state()
        if state.compacted:
            raise SourceError(f"{self.topic} is compacted (cleanup.policy): what it has of a day changes without notice")
        index = index_at(area.cache and area.cache / f"{self.topic}.kafka.json", topic)
        # By number: timestamps may be beyond the calendar.
        runs: dict[int, dict[int, list[Run]]] = {number_of(day): {} for day in days}
        gone: dict[int, Gone] = {}
        for number, known in index.up_to_now(topic, state, min(days)).items():
            for run in known.runs:
                if run.day in runs:
                    runs[run.day].setdefault(number, []).append(run)
            gone[number] = known.gone(state.offsets[number][0], today)
        return {day: self._gone(day, gone, state) or runs[number_of(day)] for day in days}

    def _gone(self, day: date, gone: Mapping[int, Gone], state: TopicState) -> NotDelivered | None:
        """That the topic may have lost records of the day; None if it has not."""
        for number, days in gone.items():
            if number_of(day) in days:
                whole = number_of(day) + 1
                while any(whole in each for each in gone.values()):
                    whole = max(whole, *(each.until for each in gone.values())) + 1
                return NotDelivered(
                    f"no source for {day}: {self.topic}/{number} begins with offset {state.offsets[number][0]} by now, so that "
                    f"{self.topic} has not all of {day}. The next whole day is {day_of(whole)}"
                )
        return None

    def _delivery(self, runs: Runs) -> Delivery:
        # Records stay as they are: a day has others when it has more.
        lines = [f"{n} {of_day[0].first} {of_day[-1].end} {_records(of_day)}" for n, of_day in sorted(runs.items())]
        fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
        # Named by their first offset, which stays: another topic of the same name delivers other files.
        files = {f"{self.topic}/{number}@{of_day[0].first}": of_day for number, of_day in runs.items()}
        counts = {name: _records(of_day) for name, of_day in files.items()}
        return Delivery(fingerprint, counts, hashes={name: _offsets(of_day, fingerprint) for name, of_day in files.items()})


def _records(runs: Sequence[Run]) -> int:
    return sum(run.records for run in runs)


def _offsets(runs: Sequence[Run], fingerprint: str) -> str:
    """The offsets of a day in a partition, as a build records them; for more ranges than one wants to read, a hash."""
    return ",".join(f"{run.first}..{run.end - 1}" for run in runs) if len(runs) <= RANGES_RECORDED else fingerprint[:12]
