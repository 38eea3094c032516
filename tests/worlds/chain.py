"""Four tables of the shapes of ours (delivered, by parts, looking ahead, reading itself), and
records of them. No Spark.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from backfill_assets.calendar import Calendar
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.ledger import Build
from backfill_assets.sources.protocol import Delivery, Source
from backfill_assets.step.inputs import input_fingerprints
from backfill_assets.tables.declaration import itself, same_day, table, window
from tests.worlds.deliveries import day

CALENDAR = Calendar(day(0), day(9))


class Lines(Source):
    """A file of lines each day; none on the last."""

    name = "lines"

    def delivered(self, area: Any, days: Sequence[date]) -> dict[date, Delivery | SourceError]:
        return {
            at: NotDelivered(f"no source for {at}") if at == day(9) else Delivery(f"lines of {at}")
            for at in days
        }

    def described(self, area: Any, day: date) -> list[str]:
        return [f"lines of {day}"]

    def size(self, area: Any, days: Sequence[date]) -> int:
        return len(days)

    def read(self, area: Any, spark: Any, days: Any) -> Any: ...


@table(
    "raw/a",
    partition_by="arrival_day",
    columns="arrival_day DATE",
    reads={"lines": Lines()},
    version="1",
)
def raw(lines): ...


@table(
    "staging/u",
    partition_by="arrival_day",
    columns="arrival_day DATE, outage_day DATE",
    reads={"events": same_day(raw)},
    fingerprint_by="outage_day",
    version="1",
)
def updates(events): ...


@table(
    "staging/o", partition_by="outage_day", columns="outage_day DATE",
    reads={"updates": window(updates, first=0, last=4, wait_for=2)}, version="1",
)  # fmt: skip
def outages(updates): ...


@table(
    "features/h", partition_by="outage_day", columns="outage_day DATE",
    reads={"before": itself(), "outages": same_day(outages)}, version="1",
)  # fmt: skip
def history(before, outages): ...


def built(what, *numbers, **figures):
    return {
        (what.name, day(n)): Build(
            what.name, day(n), "accepted", "r", "1", fingerprint=f"f{n}", **figures
        )
        for n in numbers
    }


def up_to_date(what, numbers, accepted):
    """`accepted` with builds of these days that were made from exactly what is accepted."""
    for n in numbers:
        inputs = input_fingerprints(what, day(n), accepted, CALENDAR)
        accepted = accepted | {k: replace(b, inputs=inputs) for k, b in built(what, n).items()}
    return accepted
