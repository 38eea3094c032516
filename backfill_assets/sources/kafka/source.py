"""A source that is a Kafka topic. A day is the records whose timestamps are in it.

If timestamps run in order, a day is one range of offsets per partition. A late record of an old day
adds a second range to its own day, and makes only that day outdated. Each record belongs to exactly
one day. Therefore Kafka's own client reads each record's timestamp once (`topic.py`). Spark reads
the records of the days that are built.

Limits: for records that were deleted before they were first read, only the order of time shows the
days. If the first remaining record is a straggler of an older day, a day that lost records before
it can count as complete. An empty partition says nothing. If the topic's settings may not be read,
compaction is not noticed.

Not tried: several brokers, TLS, SCRAM, Kerberos, OAuth, schema registries (keys and values are
bytes), and Azure Event Hubs (port 9093, with `options={"security.protocol": "SASL_SSL",
"sasl.mechanism": "PLAIN", "sasl.username": "$ConnectionString", "sasl.password":
"env:EVENT_HUBS_CONNECTION"}`). Amazon Kinesis has another protocol, and there is no source for it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import reduce
from itertools import zip_longest

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.calendar import day_at
from backfill_assets.digest import digest
from backfill_assets.errors import IncompleteDelivery, NotDelivered, SourceError
from backfill_assets.lake.spark.jars import needing
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.kafka.topic import (
    TIMEOUT,
    TIMEOUT_MS,
    ExpiredDays,
    OffsetRun,
    RunsByNumber,
    Topic,
    TopicState,
    day_number,
    day_of_number,
    from_environment,
    offsets_to_read,
    topic_index,
)
from backfill_assets.sources.protocol import (
    Delivery,
    Source,
    error_of_day,
    require_usable,
    validate,
)

_DAY = "arrival_day"
_COLUMNS = {
    _DAY: "DATE",
    "key": "BINARY",
    "value": "BINARY",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_MAX_RANGES_RECORDED = 50
OffsetRange = tuple[int, int]
OffsetRuns = Mapping[int, Sequence[OffsetRun]]


@dataclass(frozen=True)
class Kafka(Source):
    """The records of a Kafka topic.

    topic    the topic, and the name of the source in builds
    servers  its brokers: "kafka-1:9092,kafka-2:9092"
    options  settings of the client by librdkafka's names: "security.protocol", "sasl.mechanism",
             "sasl.username", "sasl.password", "ssl.ca.location". "env:NAME" is replaced by an
             environment variable. Spark gets the same settings, and those that begin with "kafka."
             only for Spark, such as "kafka.ssl.truststore.location". "socket.timeout.ms" is how
             long to wait for an answer (default: 10 seconds)

    Rows have `arrival_day DATE, key BINARY, value BINARY, partition INT, offset BIGINT, timestamp
    TIMESTAMP` (milliseconds) and `headers ARRAY<STRUCT<key: STRING, value: BINARY>>`. Key:
    partition and offset. `value.cast("string")` is a value as text.

    Days begin at midnight in the zone of the project.

    A day is read once it is over. A day without records is delivered and has no rows. In
    transactions, only committed records are read. If the topic may have deleted records of a day,
    the day is not built any more; its rows stay. A compacted topic fails every day, because its old
    records disappear.
    """

    packages = (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",)
    topic: str
    # The same topic at another address is the same source: its records decide.
    servers: str = field(compare=False)
    options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        validate(self)
        if not self.options.get(TIMEOUT, str(TIMEOUT_MS)).isdecimal():
            raise ValueError(
                f"Kafka({self.topic!r}): the option {TIMEOUT} must be a number of milliseconds"
            )

    @property
    def name(self) -> str:
        return self.topic

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return each day's fingerprint and records by partition, or the error."""
        return {
            day: runs if isinstance(runs, SourceError) else self._delivery(runs)
            for day, runs in self._runs(area, days).items()
        }

    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe each range of the day's offsets."""
        return [
            f"{self.topic}/{number}, offsets {run.first} to {run.end - 1}, {run.records} records,"
            f" {run.size} bytes"
            for number, runs in self._usable(area, [day])[day].items()
            for run in runs
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """Sum the bytes of the values of `days`."""
        return sum(
            run.size
            for of_day in self._usable(area, days).values()
            for runs in of_day.values()
            for run in runs
        )

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """Read the records of `days`. Each offset is read once."""
        runs: RunsByNumber = {}
        for by_partition in self._usable(area, days).values():
            for number, runs_of_day in by_partition.items():
                runs.setdefault(number, []).extend(runs_of_day)
        spans = {
            number: offsets_to_read(sorted(of_partition, key=lambda run: run.first))
            for number, of_partition in runs.items()
        }
        numbered = [
            [(number, *span) for span in of_partition] for number, of_partition in spans.items()
        ]
        # One range per partition and read, because Spark does not take two ranges of a partition.
        parts = [
            self._read(spark, [span for span in part if span]) for part in zip_longest(*numbered)
        ]
        if not parts:
            return spark.createDataFrame(
                [], ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
            )
        local = F.from_utc_timestamp("timestamp", area.zone)
        rows = reduce(DataFrame.unionByName, parts).withColumn(_DAY, F.to_date(local))
        return rows.where(F.col(_DAY).isin(list(days))).select(*_COLUMNS)

    def _read(self, spark: SparkSession, spans: Sequence[tuple[int, int, int]]) -> DataFrame:
        options = {
            **spark_options(self._topic),
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            "assign": json.dumps({self.topic: [number for number, _, _ in spans]}),
            "startingOffsets": json.dumps({self.topic: {n: first for n, first, _ in spans}}),
            "endingOffsets": json.dumps({self.topic: {n: end for n, _, end in spans}}),
        }
        with needing(self.packages):
            rows = spark.read.format("kafka").options(**options).load()
            # Spark Connect looks for the format only when columns are needed.
            assert rows.columns
        return rows

    @property
    def _topic(self) -> Topic:
        return Topic(self.topic, self.servers, self.options)

    def _usable(self, area: LandingArea, days: Sequence[date]) -> dict[date, OffsetRuns]:
        """Return the runs of each of `days`. Raises the first day's SourceError."""
        return require_usable(self._runs(area, days))

    def _runs(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, OffsetRuns | SourceError]:
        """Return the runs of each of `days` by partition, or the error of the day."""
        today = day_at(area.clock(), area.zone)
        past_days = [day for day in days if day < today]
        runs: dict[date, OffsetRuns | SourceError] = {
            day: IncompleteDelivery(
                f"{day} is not over yet: the records of {self.topic} are read from"
                f" {day + timedelta(days=1)} on"
            )
            for day in days
        }
        try:
            return runs | (self._past_runs(area, past_days, day_number(today)) if past_days else {})
        except SourceError as error:
            return runs | {day: error_of_day(error, day) for day in past_days}

    def _past_runs(
        self, area: LandingArea, days: Sequence[date], today: int
    ) -> dict[date, OffsetRuns | SourceError]:
        topic = replace(self._topic, zone=area.zone)
        state = topic.state()
        if state.compacted:
            raise SourceError(
                f"{self.topic} is compacted (cleanup.policy): the records of a day change without"
                " notice"
            )
        path = area.cache and area.cache / f"{self.topic}{area.zone_mark}.kafka.json"
        index = topic_index(path, topic)
        # By day number, because timestamps may be outside the calendar.
        runs: dict[int, RunsByNumber] = {day_number(day): {} for day in days}
        expired: dict[int, ExpiredDays] = {}
        for number, partition in index.up_to_now(topic, state, min(days)).items():
            for run in partition.runs:
                if run.day in runs:
                    runs[run.day].setdefault(number, []).append(run)
            expired[number] = partition.expired_days(state.offsets[number][0], today)
        return {day: self._expired(day, expired, state) or runs[day_number(day)] for day in days}

    def _expired(
        self, day: date, expired: Mapping[int, ExpiredDays], state: TopicState
    ) -> NotDelivered | None:
        """Return the error of a day that may have lost records, or None."""
        for number, days in expired.items():
            if day_number(day) in days:
                next_day = day_number(day) + 1
                while any(next_day in other for other in expired.values()):
                    next_day = max(next_day, *(other.until for other in expired.values())) + 1
                return NotDelivered(
                    f"no source for {day}: {self.topic}/{number} now begins with offset"
                    f" {state.offsets[number][0]}, so records of {day} may be deleted. The next"
                    f" complete day is {day_of_number(next_day)}"
                )
        return None

    def _delivery(self, runs: OffsetRuns) -> Delivery:
        # Records never change, so a day with other records has more of them.
        lines = [
            f"{n} {of_day[0].first} {of_day[-1].end} {_records(of_day)}"
            for n, of_day in sorted(runs.items())
        ]
        fingerprint = digest(*lines)
        # A name includes the first offset, so another topic of the same name delivers other files.
        files = {
            f"{self.topic}/{number}@{of_day[0].first}": of_day for number, of_day in runs.items()
        }
        return Delivery(
            fingerprint,
            {name: _records(of_day) for name, of_day in files.items()},
            hashes={name: _offsets(of_day, fingerprint) for name, of_day in files.items()},
        )


def spark_options(topic: Topic) -> dict[str, str]:
    """Return the client's options in Spark's form, in which a login is one setting."""
    options = {
        f"kafka.{name.removeprefix('kafka.')}": from_environment(value)
        for name, value in topic.options.items()
    }
    user = options.pop("kafka.sasl.username", "")
    password = options.pop("kafka.sasl.password", "")
    if user and (module := _LOGIN_MODULES.get(options.get("kafka.sasl.mechanism", ""))):
        # Quotation marks and backslashes are escaped as in JSON.
        login = f"{module} required username={json.dumps(user)} password={json.dumps(password)};"
        options = {"kafka.sasl.jaas.config": login, **options}
    return {**options, "kafka.bootstrap.servers": topic.servers}


def _records(runs: Sequence[OffsetRun]) -> int:
    return sum(run.records for run in runs)


def _offsets(runs: Sequence[OffsetRun], fingerprint: str) -> str:
    """Return the offsets of a day in a partition, or a hash if there are many ranges."""
    return (
        ",".join(f"{run.first}..{run.end - 1}" for run in runs)
        if len(runs) <= _MAX_RANGES_RECORDED
        else fingerprint[:12]
    )
