"""Dagster's SQLite event log, writing a batch of events in one transaction.

A run of 60 days over six tables makes about two thousand events. Dagster's own SQLite storage
opens, commits and closes two databases for each event (6 to 35 ms), even in a batch. `dagster.yaml`
names `LocalInstance`, which uses this storage in the folder of DAGSTER_HOME, or in the temporary
folder of `dagster dev`. If `dagster.yaml` names a storage, such as Postgres, that storage is used.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, EventLogEntry, StringSource
from dagster._core.instance import InstanceRef
from dagster._core.instance.runs.run_domain import RunDomain
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData
from sqlalchemy.engine import Connection

from backfill_assets.orchestration.local.exact_runs import ExactRuns


class BatchingSqliteEventLogStorage(SqliteEventLogStorage):
    """Event log that keeps connections open until a batch ends, and commits them together."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None):
        self._batch = threading.local()
        self._tables: set[str] = set()
        super().__init__(base_dir, inst_data)
        # A batch uses the run's database and the index at once, so its thread locks twice.
        self._db_lock = threading.RLock()  # type: ignore[assignment]

    @classmethod
    def config_type(cls) -> Any:
        return {"dagster_home": StringSource}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Any
    ) -> "BatchingSqliteEventLogStorage":
        return cls(_event_log_folder(config_value["dagster_home"]), inst_data)

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
        """True if the index has this table. True is cached: tables are never dropped."""
        if table_name not in self._tables and super().has_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables


class BatchingSqliteStorage(DagsterSqliteStorage):
    """Dagster's SQLite storage with the event log that writes batches."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None):
        super().__init__(base_dir, inst_data)
        self._event_log_storage = BatchingSqliteEventLogStorage(_event_log_folder(base_dir))

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Any
    ) -> "BatchingSqliteStorage":
        return cls.from_local(config_value["base_dir"], inst_data)


class LocalInstance(DagsterInstance):
    """Dagster instance that plans runs exactly, and has `BatchingSqliteStorage`.

    If `dagster.yaml` names a storage, that storage is used.
    It is a class because an entry in `dagster.yaml` would need DAGSTER_HOME. A plain `dagster dev`
    does not set it.
    """

    @cached_property
    def run_domain(self) -> RunDomain:
        """Creates runs for exactly the days that each asset builds."""
        return ExactRuns(self)

    @classmethod
    def config_schema(cls) -> dict[str, Any]:
        """The settings of this class in `dagster.yaml`: none."""
        return {}

    @staticmethod
    def config_defaults(base_dir: str) -> dict[str, ConfigurableClassData | None]:
        """The defaults of an instance in the folder `base_dir`."""
        storage = ConfigurableClassData(
            __name__, BatchingSqliteStorage.__name__, json.dumps({"base_dir": base_dir})
        )
        return {**InstanceRef.config_defaults(base_dir), "storage": storage}


def _event_log_folder(dagster_home: str) -> str:
    return str(Path(dagster_home) / "history" / "runs")
