"""Following a backfill: how far it is, asked again and again, until it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.backfill.graphql import OVER, Dagster
from backfill_assets.backfill.outcome import TableOutcome, outcomes
from backfill_assets.lake.ledger import Ledger

# A look costs the webserver and the ledger some 50 ms; nobody reads faster.
LOOK_EVERY_S = 1.0
RUN_OVER = frozenset({"SUCCESS", "FAILURE", "CANCELED"})


@dataclass(frozen=True)
class Progress:
    """One look at a backfill."""

    status: str
    runs: Sequence[str]
    tables: Sequence[TableOutcome]
    steps_over: frozenset[str] = frozenset()
    runs_over: bool = False

    @property
    def over(self) -> bool:
        return self.status in OVER

    @property
    def all_there(self) -> bool:
        """Whether nothing is left to wait for: the daemon notices the end of the last run only half a minute later."""
        return self.runs_over and all(table.complete for table in self.tables)


def follow(
    dagster: Dagster,
    backfill_id: str,
    *,
    ledger: Ledger,
    tables: Sequence[str],
    days: Collection[date],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Progress]:
    """Look until the backfill is over; the last value is its end."""
    while True:
        progress = look(dagster, backfill_id, ledger=ledger, tables=tables, days=days)
        yield progress
        if progress.over or progress.all_there:
            return
        sleep(LOOK_EVERY_S)


def look(dagster: Dagster, backfill_id: str, *, ledger: Ledger, tables: Sequence[str], days: Collection[date]) -> Progress:
    status = str(dagster.backfill(backfill_id)["status"])
    runs = dagster.runs(backfill_id)
    ids = [run["runId"] for run in runs]
    ended = frozenset(step["stepKey"] for run in runs for step in run["stepStats"] if step["status"] in ("SUCCESS", "FAILURE"))
    over = bool(runs) and all(run["status"] in RUN_OVER for run in runs)
    return Progress(status, ids, outcomes(ledger, tables, days, ids), ended, over)
