"""A real Kafka of one node, and topics of tests' own on it. Its artifacts come from the repository
of Delta's jars.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psutil import Process
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.errors import SourceError
from backfill_assets.lake.spark.engine import spark_home
from backfill_assets.servers.child import free_port, wait_or_kill
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.kafka.source import Kafka
from backfill_assets.sources.protocol import Delivery

KAFKA = ("org.apache.kafka", "kafka_2.13", "4.1.0")
# Beside Spark's own cache, which other settings made.
CACHE = Path.home() / ".ivy2.5.2" / "servers"
START_TIMEOUT_S = 60
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
# Started once and soon ended: compiled little.
JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
USER = "reader"
PASSWORD = "of reader"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True)
class Broker:
    """Where it listens: to anybody, and to USER with PASSWORD."""

    address: str
    with_login: str
    pid: int
    admin: AdminClient


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker whose files are in `folder`, until the block ends."""
    ports = [free_port() for _ in range(3)]
    plain, login, controller = (f"127.0.0.1:{port}" for port in ports)
    properties = folder / "server.properties"
    properties.write_text("\n".join([
        "process.roles=broker,controller",
        "node.id=1",
        f"listeners=PLAINTEXT://{plain},LOGIN://{login},CONTROLLER://{controller}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names=CONTROLLER",
        f"controller.quorum.voters=1@{controller}",
        f"log.dirs={folder / 'logs'}",
        "sasl.enabled.mechanisms=PLAIN",
        f'listener.name.login.plain.sasl.jaas.config={LOGIN} user_{USER}="{PASSWORD}";',
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "transaction.state.log.num.partitions=1",
        # Records of the sample's days are years old: they would be deleted while a test looks at
        # them.
        "log.retention.ms=-1",
    ]))  # fmt: skip
    log = folder / "kafka.log"
    classes = _classes()
    with log.open("wb") as out:
        format_log = [
            *JAVA,
            classes,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            CLUSTER,
            "-c",
            str(properties),
        ]
        subprocess.run(format_log, cwd=folder, stdout=out, stderr=out, check=True)
        server = subprocess.Popen(
            [*JAVA, classes, "kafka.Kafka", str(properties)], cwd=folder, stdout=out, stderr=out
        )
    try:
        _await(plain, server, log)
        yield Broker(plain, login, server.pid, AdminClient(quiet(plain)))
    finally:
        server.terminate()
        wait_or_kill([Process(server.pid)])


@contextmanager
def served(by: Broker) -> Iterator[list[int]]:
    """The bytes that the broker writes meanwhile: to clients, and a few to its log."""
    process = Process(by.pid)
    written = list[int]()
    before = process.io_counters().write_chars
    yield written
    written.append(process.io_counters().write_chars - before)


def quiet(address: str) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": address, "log_level": 0}


def _await(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    admin = AdminClient(quiet(address))

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        with suppress(KafkaException):
            return bool(admin.list_topics(timeout=1).brokers)
        return False

    Retrying(
        stop=stop_after_delay(START_TIMEOUT_S),
        wait=wait_fixed(0.1),
        retry=retry_if_result(lambda up: not up),
    )(answers)


def _classes() -> str:
    """The class path of Kafka's server, fetched by the Ivy that Spark fetches its packages with,
    once a machine.
    """
    path = CACHE / f"{'-'.join(KAFKA)}.classpath"
    if not path.exists() or not all(
        Path(jar).exists() for jar in path.read_text().strip().split(os.pathsep)
    ):
        (ivy,) = (spark_home() / "jars").glob("ivy-*.jar")
        draft = path.with_suffix(f".{os.getpid()}")
        CACHE.mkdir(parents=True, exist_ok=True)
        resolve = [
            "-cache",
            str(CACHE),
            "-dependency",
            *KAFKA,
            "-confs",
            "default",
            "-cachepath",
            str(draft),
        ]
        done = subprocess.run(
            ["java", "-jar", str(ivy), *resolve],
            cwd=CACHE,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        draft.replace(path)
    return path.read_text().strip()


MIDNIGHT = datetime(2019, 8, 15, tzinfo=UTC)
NAMES = count()


def at(number: int, **time: float) -> int:
    """The milliseconds of a time on the day `number`."""
    return round((MIDNIGHT + timedelta(days=number, **time)).timestamp() * 1000)


@dataclass
class Topic:
    """A topic of a test's own, with what was produced into it: of each partition the timestamps and
    values, by offset.
    """

    broker: Broker
    name: str
    records: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)

    @property
    def source(self) -> Kafka:
        return Kafka(self.name, self.broker.address)

    def create(self, partitions: int = 1, **config: str) -> "Topic":
        self.broker.admin.create_topics([NewTopic(self.name, partitions, 1, config=config)])[
            self.name
        ].result()
        return self

    def send(self, *times: int, partition: int = 0, size: int = 10) -> "Topic":
        """Produce a record of each of these times."""
        # Else records that are sent again may come behind later ones, and offsets be others than
        # expected.
        producer = Producer(quiet(self.broker.address) | {"enable.idempotence": True})
        self.records.setdefault(partition, []).extend(
            self.produce(producer, times, partition, size)
        )
        assert producer.flush(30) == 0
        return self

    def produce(
        self, producer: Producer, times: Iterable[int], partition: int, size: int
    ) -> list[tuple[int, bytes]]:
        begun = len(self.records.get(partition, []))
        records = [
            (time, f"{partition}-{begun + n}-".encode().ljust(size, b"."))
            for n, time in enumerate(times)
        ]
        for time, value in records:
            producer.produce(
                self.name,
                value,
                b"key",
                partition,
                timestamp=time,
                headers=[("at", b"1"), ("at", b"2")],
            )
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
        return sorted(
            (moment.date(), p, o, moment, value)
            for moment, p, o, value in moments
            if moment.date() in wanted
        )

    def delete_before(self, offset: int, partition: int = 0) -> None:
        for answer in self.broker.admin.delete_records(
            [TopicPartition(self.name, partition, offset)]
        ).values():
            answer.result()


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
