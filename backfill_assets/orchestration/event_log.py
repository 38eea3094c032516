"""Dagster's SQLite event log, writing a batch of events in one transaction.

A run of 60 days over six tables makes about two thousand events. One by one, each opens, commits and closes two databases
(6 to 35 ms); Dagster's own SQLite storage does that for batches too. `dagster.yaml` names this class; with another
database (Postgres, say) name that one's class instead.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dagster import EventLogEntry, StringSource
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._serdes import ConfigurableClassData
from sqlalchemy.engine import Connection


class BatchingSqliteEventLogStorage(SqliteEventLogStorage):
    """Connections opened within a batch stay open until its end, and commit together."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None):
        self._batch = threading.local()
        self._tables: set[str] = set()
        super().__init__(base_dir, inst_data)
        # A batch holds the run's database and the index at once; the lock must let its own thread in twice.
        self._db_lock = threading.RLock()  # type: ignore[assignment]

    @classmethod
    def config_type(cls) -> Any:
        return {"dagster_home": StringSource}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> "BatchingSqliteEventLogStorage":
        return cls(str(Path(config_value["dagster_home"]) / "history" / "runs"), inst_data)

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        with self._db_lock, ExitStack() as stack:
            self._batch.open = {}
            self._batch.stack = stack
            stack.callback(self._batch.__dict__.clear)
            for event in events:
                self.store_event(event)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        connections: dict[str, Connection] | None = getattr(self._batch, "open", None)
        if connections is None:
            with super()._connect(shard) as connection:
                yield connection
            return
        if shard not in connections:
            connections[shard] = self._batch.stack.enter_context(super()._connect(shard))
        yield connections[shard]

    def has_table(self, table_name: str) -> bool:
        """Whether the index has this table. The answer is cached once it is yes, since tables are never dropped."""
        if table_name not in self._tables and super().has_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables
