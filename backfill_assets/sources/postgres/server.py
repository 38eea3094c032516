"""Connections to a PostgreSQL server, and the errors if that fails.

A password is in the environment or a pgpass file, never in a URL, error or record. Only the server
gets it, and the engine, which reads rows from the server.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from backfill_assets.errors import IncompleteDelivery, SourceError
from backfill_assets.lake.leases import LockHeld
from backfill_assets.lake.locks import file_lock
from backfill_assets.lake.storage import make_cache
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import DAYS_UNCHANGED, client_library

if TYPE_CHECKING:
    from psycopg import Connection


_APPLICATION = "backfill"  # the name in the server's lists of sessions
_CONNECT_TIMEOUT_S = 10
# The server's answers, in English, if the server or the user has no session left. A session that
# has just ended still counts, so the connection is retried for a while.
_NO_CONNECTION_LEFT = re.compile("too many (connections|clients)|connection slots are reserved")
# The longest wait for another process that reads the same source.
_TURN_TIMEOUT_S = 600
# Settings that affect the text of values. They are the same for every client.
_SESSION_SETTINGS = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET"
    " bytea_output = 'hex'; SET extra_float_digits = 1; SET lc_monetary = 'C'"
)


@dataclass(frozen=True)
class Server:
    """The database of the source `name`."""

    name: str
    url: str
    password_env: str

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def refuse_unusable(self) -> None:
        """Raise ValueError if the URL is not a database's, or contains a password.

        The error does not show the password.
        """
        form = f"PostgresTable({self.name!r}): url is postgresql://user@host:5432/database"
        try:
            parts = urlsplit(self.url)
            has_port = parts.port is None or parts.port > 0
        except ValueError:  # its message may contain the whole address
            raise ValueError(f"{form}; its host or port is not valid") from None
        if parts.password is not None or "password" in parse_qs(parts.query):
            raise ValueError(
                f"PostgresTable({self.name!r}): no password in `url`; name the environment"
                " variable: password_env"
            )
        if (
            parts.scheme not in ("postgresql", "postgres")
            or not parts.hostname
            or not parts.path.strip("/")
            or not has_port
        ):
            raise ValueError(f"{form}, not {self.url!r}")

    @contextmanager
    def connected(self, area: LandingArea) -> Iterator["Connection[Any]"]:
        """Connect to one state of the database for the block.

        Raises IncompleteDelivery if the connection fails or breaks, SourceError if the server
        refuses a query.
        """
        with client_library("psycopg", str(self), "postgres"):
            import psycopg
        given = {
            "password": self._password(),
            "fallback_application_name": _APPLICATION,
            "connect_timeout": _CONNECT_TIMEOUT_S,
        }
        try:
            with (
                self._turn(area),
                self._connect(psycopg.conninfo.make_conninfo(self.url, **given)) as connection,
            ):
                # A pooler may give each transaction another session.
                connection.prepare_threshold = None
                connection.read_only = True
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.execute(_SESSION_SETTINGS.replace("SET ", "SET LOCAL ").encode())
                yield connection
        except psycopg.OperationalError as error:
            variable = (
                f"${self.password_env}" if self.password_env else "$PGPASSWORD or the pgpass file"
            )
            raise IncompleteDelivery(
                f"{self} cannot be read: {_one_line(error)}.",
                unchanged=DAYS_UNCHANGED,
                next_step=f"Start the server, or correct the `url` of {self.name} or the password"
                f" in {variable}.",
            ) from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise SourceError(
                f"{self}: {_one_line(error)}.", next_step="Grant the user SELECT."
            ) from None
        except psycopg.Error as error:
            raise SourceError(f"{self}: {_one_line(error)}") from None

    def _connect(self, conninfo: str) -> "Connection[Any]":
        import psycopg

        is_full = retry_if_exception(lambda error: bool(_NO_CONNECTION_LEFT.search(str(error))))
        retrying = Retrying(
            stop=stop_after_delay(_CONNECT_TIMEOUT_S),
            wait=wait_fixed(0.1),
            retry=is_full,
            reraise=True,
        )
        return retrying(psycopg.connect, conninfo)

    def for_spark(self, connection: "Connection[Any]") -> tuple[str, dict[str, str]]:
        """Return the JDBC URL and properties for connections like this one."""
        info = connection.info
        given = parse_qs(urlsplit(self.url).query)
        options = {
            "ApplicationName": _APPLICATION,
            "connectTimeout": str(_CONNECT_TIMEOUT_S),
            "tcpKeepAlive": "true",
        }
        options |= {name: values[-1] for name, values in given.items() if name.startswith("ssl")}
        database = quote(info.dbname, safe="")
        url = f"jdbc:postgresql://{info.host}:{info.port}/{database}?{urlencode(options)}"
        properties = {
            "driver": "org.postgresql.Driver",
            "user": info.user,
            "sessionInitStatement": _SESSION_SETTINGS,
        }
        return url, properties | ({"password": info.password} if info.password else {})

    def _password(self) -> str | None:
        if not self.password_env or os.environ.get(self.password_env):
            return os.environ.get(self.password_env)
        raise IncompleteDelivery(
            f"{self} cannot be read: the environment variable {self.password_env} of {self.name}"
            " is not set.",
            unchanged=DAYS_UNCHANGED,
            next_step="Set it where `backfill up` and commands run.",
        )

    @contextmanager
    def _turn(self, area: LandingArea) -> Iterator[None]:
        """Wait until no other process of this machine reads this source.

        Then these processes together need one connection.
        """
        with ExitStack() as held:
            if area.cache:
                try:
                    with suppress(OSError):
                        # Without a home, or with a read-only one, processes do not wait.
                        make_cache(area.cache)
                        held.enter_context(
                            file_lock(
                                area.cache / f"{self.name}.look.lock", patience=_TURN_TIMEOUT_S
                            )
                        )
                except LockHeld:
                    raise IncompleteDelivery(
                        f"another process has been reading {self} for {_TURN_TIMEOUT_S // 60}"
                        " minutes"
                    ) from None
            yield


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
