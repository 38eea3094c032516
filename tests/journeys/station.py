"""A lake with real servers: asking them, waiting for them, and what the ledger says meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.backfill.graphql import OVER, Dagster, told
from backfill_assets.calendar import as_day, between, islands
from backfill_assets.lake.records import Build
from backfill_assets.lake.store import Lake
from tests.journeys import questions

FIRST, LAST = date(2019, 8, 15), date(2019, 10, 13)
SIXTY = list(between(FIRST, LAST))
PATIENCE_S = 900


def eventually(look: Callable[[], Any], *, what: str, patience: float = PATIENCE_S) -> Any:
    """The first true answer of `look`."""
    again = retry_if_result(lambda found: not found)
    try:
        return Retrying(stop=stop_after_delay(patience), wait=wait_fixed(0.5), retry=again, reraise=True)(look)
    except Exception as error:
        raise AssertionError(f"not within {patience} s: {what}") from error


@dataclass(frozen=True)
class Station:
    dagster: Dagster
    home: Path
    landing: Path

    @property
    def lake(self) -> Lake:
        return Lake(str(self.home / "lake"))

    def ask(self, document: str, **variables: Any) -> Any:
        """The one field a document asks for; an error it answers with fails the test in its words."""
        answer = next(iter(self.dagster.ask(document, variables).values()))
        return told(answer) if isinstance(answer, Mapping) else answer

    def finished(self, backfill_id: str) -> str:
        """The status a backfill ends with."""
        eventually(lambda: self.dagster.backfill(backfill_id)["status"] in OVER, what=f"backfill {backfill_id} over")
        return str(self.dagster.backfill(backfill_id)["status"])

    def ended(self, run: str) -> dict[str, Any]:
        def over() -> Any:
            found = self.ask(questions.RUN, run=run)
            return found if found["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None

        return dict(eventually(over, what=f"run {run} over"))

    def materialized(self, table: str) -> str:
        """The days of `table` that Dagster calls materialized, as spans."""
        ranges = self.ask(questions.DAYS, table=key(table))["assetPartitionStatuses"]["ranges"]
        good = [between(as_day(r["startKey"]), as_day(r["endKey"])) for r in ranges if r["status"] == "MATERIALIZED"]
        return spans(day for stretch in good for day in stretch)

    def verdicts(self, table: str, check: str) -> dict[str, bool]:
        """What a check said last of each day."""
        found = self.ask(questions.CHECK, table=key(table), check=check)
        said = [each["evaluation"] for each in found if each["evaluation"]]
        return {each["partition"]: each["success"] for each in reversed(said)}

    def complaints(self, backfill_id: str) -> str:
        """Everything the failed steps of a backfill's runs said."""
        runs = [run["runId"] for run in self.dagster.runs(backfill_id)]
        return "\n".join(message for run in runs for message in self.dagster.failures(run).values())

    def builds(self) -> list[Build]:
        return self.lake.ledger.builds()


def spans(days: Iterable[date]) -> str:
    """Days as `A..B, C..D`: two lists of sixty are hard to compare by eye."""
    return ", ".join(f"{island[0]}..{island[-1]}" for island in islands(days))


def key(table: str) -> dict[str, list[str]]:
    return {"path": table.split("/")}
