"""Dagster's records in PostgreSQL: their part of dagster.yaml, and checks of the database.

The address may contain a password. It is only in the environment of the servers: dagster.yaml names
the variable, and messages show the host and the database.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from backfill_assets.errors import NOTHING_CHANGED, ServiceUnavailable, UsageError
from backfill_assets.settings import Settings

VARIABLE = "BACKFILL_DAGSTER_STORAGE"
DAGSTER_YAML = Path(__file__).with_name("dagster.yaml")
IN_POSTGRES = f"""
# Set by {VARIABLE}. The address is read from there, since it may hold a password.
storage:
  custom:
    module: backfill_assets.orchestration.local.postgres
    class: BatchingPostgresStorage
    config:
      postgres_url:
        env: {VARIABLE}
"""
EXTRA = "dagster-postgres"
_PACKAGES = {"dagster_postgres": "dagster-postgres", "psycopg2": "psycopg2-binary"}
_CONNECT_TIMEOUT_S = 10
_LOCK_TIMEOUT_S = 600
_LOCK = 7261500  # any number that no other program locks in this database


def dagster_yaml(settings: Settings) -> str:
    """The contents of dagster.yaml for these settings."""
    return DAGSTER_YAML.read_text() + (IN_POSTGRES if settings.dagster_storage else "")


def address_shown(url: str) -> str:
    """The host, port and database of an address, without its user and password."""
    parts = urlsplit(url)
    return f"{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def without_secrets(text: str, url: str | None) -> str:
    """The text without the password of the address."""
    parts = urlsplit(url or "")
    # PostgreSQL does not read + as a space.
    parameters = parse_qs(parts.query.replace("+", "%2B"))
    named = [parameters.get(name, []) for name in ("password", "sslpassword")]
    passwords = [parts.password or "", *chain(*named)]
    for password in filter(None, passwords):
        for form in (password, unquote(password), quote(password, safe="")):
            text = text.replace(form, "***")
    return text


@contextmanager
def alone_in_storage(settings: Settings) -> Iterator[None]:
    """Make servers of other hosts with the same database wait until the block is left."""
    if not settings.dagster_storage:
        yield
        return
    url = settings.dagster_storage
    with closing(_connect(url)) as connection:
        cursor = connection.cursor()
        with _explained(url):
            # Held until the connection is closed, because the host that holds it may be lost.
            cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_S}s'")
            # A lock of the transaction, because a connection pool keeps locks of a session.
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        yield


def refuse_unusable_storage(settings: Settings) -> None:
    """Raise an error if Dagster cannot store its records in the configured place.

    Raises UsageError for a package that is not installed, and ServiceUnavailable for a server that
    refuses the connection or does not answer.
    """
    url = settings.dagster_storage
    if not url:
        return
    lacking = [package for module, package in _PACKAGES.items() if find_spec(module) is None]
    if lacking:
        raise UsageError(
            f"{VARIABLE} needs {' and '.join(lacking)}, which is not installed.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Type: pip install 'backfill-assets[{EXTRA}]'",
        )
    _connect(url).close()


def _connect(url: str) -> Any:
    import psycopg2

    with _explained(url):
        return psycopg2.connect(url, connect_timeout=_CONNECT_TIMEOUT_S)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Raise ServiceUnavailable, without the password, for an error of PostgreSQL."""
    import psycopg2

    try:
        yield
    except psycopg2.Error as error:
        reason = " ".join(without_secrets(str(error), url).split()).rstrip(".")
        raise ServiceUnavailable(
            f"Dagster's PostgreSQL at {address_shown(url)} cannot be used: {reason}.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Start it, make the database, or correct {VARIABLE}.",
        ) from None
