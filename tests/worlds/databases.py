"""Dagster's databases in SQLite: empty ones are made once, and copied for each instance and run."""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from dagster import DagsterInstance
from dagster._core.storage.event_log import SqliteEventLogStorage, in_memory
from dagster._core.storage.event_log.schema import SqlEventLogStorageMetadata
from dagster._core.storage.runs import in_memory as runs_in_memory
from dagster._core.storage.runs.schema import RunStorageSqlMetadata
from sqlalchemy.engine import Connection

from tests.worlds.suite import copied_once

# As `backfill up` has it. Written one by one, a run's events take longer than the run.
INSTANCE = {
    "module": "backfill_assets.orchestration.local.event_log",
    "class": "LocalInstance",
}
open_instance = DagsterInstance.local_temp
make_tables = SqliteEventLogStorage._initdb
tables_of_events: list[bytes] = []
TABLES = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"


def copy_databases(folder: Path) -> None:
    """Put the empty databases of an instance into a folder that has none.

    Making them takes a third of a second.
    """

    def make(root: Path) -> None:
        with open_instance(str(root), {"instance_class": INSTANCE}):
            pass

    if not (folder / "history").exists():
        copied_once("databases", make, folder)


def open_on_copies(folder: str, *overrides: Any) -> DagsterInstance:
    copy_databases(Path(folder))
    return open_instance(folder, *overrides)


def copy_tables(storage: Any, engine: Any, *how: Any, **options: Any) -> None:
    """Make the tables of a database of events. Each run has such a database."""
    file = Path(engine.url.database)
    is_new = not file.exists()
    if is_new and tables_of_events:
        file.write_bytes(tables_of_events[0])
        return
    make_tables(storage, engine, *how, **options)
    if is_new:
        with closing(sqlite3.connect(file)) as database:
            tables_of_events.append(database.serialize())


def create_tables(create: Any, statements: list[str], database: Any) -> None:
    """Create tables by the statements that created them first, if the database is in memory."""
    is_in_memory = isinstance(database, Connection) and database.dialect.name == "sqlite"
    if is_in_memory and statements:
        for statement in statements:
            database.exec_driver_sql(statement)
        return
    create(database)
    if is_in_memory:
        statements += database.exec_driver_sql(TABLES).scalars()


for tables in (SqlEventLogStorageMetadata, RunStorageSqlMetadata):
    tables.create_all = partial(create_tables, tables.create_all, [])  # type: ignore[method-assign]
for module in (in_memory, runs_in_memory):
    # Nothing migrates a database in memory.
    module.stamp_alembic_rev = lambda *_: None  # type: ignore[attr-defined]
DagsterInstance.local_temp = staticmethod(open_on_copies)  # type: ignore[assignment]
SqliteEventLogStorage._initdb = copy_tables  # type: ignore[method-assign, assignment]
