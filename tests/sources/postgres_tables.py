"""PostgreSQL tables of tests' own as sources."""

from pathlib import Path

from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.postgres import PostgresTable
from tests.postgres import PostgresServer

AREA = LandingArea(Path("/nowhere"))


def source(postgres: PostgresServer, name: str, of_day: str, **more) -> PostgresTable:
    return PostgresTable(name, of_day, **{"url": postgres.url, "password_env": "READER_PASSWORD"} | more)
