"""Dagster's PostgreSQL storage, which writes a batch of events in one transaction.

Dagster's own storage opens a connection for each event, except for materializations and
observations. It writes a batch of these in two transactions: if the second fails, Dagster writes
the events again one by one, so they are stored twice. `dagster.yaml` names this storage if
BACKFILL_DAGSTER_STORAGE is set.

The driver is always psycopg2: a plain `postgresql://` selects psycopg 3 in SQLAlchemy 2.1, and
`dagster-postgres` works with psycopg2 only.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dagster import DagsterEventType, EventLogEntry
from dagster._serdes import ConfigurableClassData
from dagster_postgres.event_log import PostgresEventLogStorage
from dagster_postgres.storage import DagsterPostgresStorage
from dagster_postgres.utils import get_token_provider_from_config, pg_url_from_config
from sqlalchemy.engine import Connection

# Dagster writes these kinds with one statement. It refuses a batch of check evaluations.
_STORED_AT_ONCE = ({DagsterEventType.ASSET_MATERIALIZATION}, {DagsterEventType.ASSET_OBSERVATION})


class BatchingPostgresEventLogStorage(PostgresEventLogStorage):
    """Event log that writes a batch of events as a whole, or not at all."""

    def __init__(self, *arguments: Any, **named: Any):
        self._batch = threading.local()
        super().__init__(*arguments, **named)

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        with super()._connect() as plain:
            connection = plain.execution_options(isolation_level="READ COMMITTED")
            with connection.begin():
                self._batch.connection = connection
                try:
                    self._store(events)
                finally:
                    del self._batch.connection

    def _store(self, events: Sequence[EventLogEntry]) -> None:
        kinds = {event.get_dagster_event().event_type for event in events}
        if kinds in _STORED_AT_ONCE:
            super().store_event_batch(events)
            return
        for event in events:
            self.store_event(event)

    def _connect(self) -> AbstractContextManager[Connection]:
        connection: Connection | None = getattr(self._batch, "connection", None)
        return nullcontext(connection) if connection else super()._connect()


class BatchingPostgresStorage(DagsterPostgresStorage):
    """Dagster's PostgreSQL storage with the event log that writes batches."""

    def __init__(self, postgres_url: str, should_autocreate_tables: bool = True, **named: Any):
        # The name of the driver that `dagster-postgres` works with.
        url = f"postgresql+psycopg2://{postgres_url.partition('://')[2]}"
        super().__init__(url, should_autocreate_tables, **named)
        self._event_log_storage = BatchingPostgresEventLogStorage(
            url, should_autocreate_tables, token_provider=named.get("token_provider")
        )

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> "BatchingPostgresStorage":
        return cls(
            pg_url_from_config(config_value),
            config_value.get("should_autocreate_tables", True),
            inst_data=inst_data,
            token_provider=get_token_provider_from_config(config_value),
        )
