"""A project of two tables: what each region had on a day, as delivered, and
`features/region_history`, which reads itself.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import duckdb

from backfill_assets import Landing
from backfill_assets import field as column
from backfill_assets.datasets.outages.features import region_daily, region_history
from backfill_assets.step.request import StepResult
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import SliceDays, Table, itself, same_day
from tests.worlds.outages import HISTORY, World

FIELDS = ("region", "outages", "customers")
REGIONS = ("Fresno", "Kern", "Napa", "Sonoma")
DELIVERED = [column("region STRING"), column("outages BIGINT"), column("customers BIGINT")]
SQL = """
    SELECT CAST(d.day AS DATE) AS outage_day, region, CAST(sum(outages) AS BIGINT) AS outages_total,
           CAST(sum(customers) AS BIGINT) AS customers_total, count(*) AS days_with_outages, min(on_day) AS first_outage_day
    FROM generate_series(DATE '{first}', DATE '{last}', INTERVAL 1 DAY) d(day)
    JOIN (SELECT *, CAST(regexp_extract(filename, '\\d+-\\d+-\\d+') AS DATE) AS on_day
          FROM read_json('{landing}/regions/*.jsonl', filename = true)) delivered ON on_day <= d.day
    GROUP BY ALL
"""


def _daily(rows):
    missing = {
        name: kind
        for name, kind in types_of(region_daily.columns).items()
        if name not in ("outage_day", *FIELDS)
    }
    return rows.selectExpr(
        "arrival_day AS outage_day",
        *FIELDS,
        *[f"CAST(null AS {t}) AS {n}" for n, t in missing.items()],
    )


daily = replace(
    region_daily,
    reads={"rows": Landing("regions", fields=DELIVERED, fewest=0)},
    compute=_daily,
    rules=(),
    version="as delivered",
)
history = replace(
    region_history, reads={"days": SliceDays(), "before": itself(), "daily": same_day(daily)}
)

# Outages and customers by day and region.
Counts = dict[date, dict[str, tuple[int, int]]]
Totals = dict[date, list[tuple[Any, ...]]]


def random_counts(chance: random.Random, days: Sequence[date]) -> Counts:
    """Some of the regions each day, the last of them not before the middle."""
    return {
        at: {
            name: (chance.randint(1, 9), chance.randint(0, 500))
            for name in chance.sample(
                REGIONS[: 4 if n > len(days) // 2 else 3], k=chance.randint(1, 3)
            )
        }
        for n, at in enumerate(days)
    }


@dataclass(frozen=True)
class Regions(World):
    """A lake and a landing area of these tables; `counts` is what is delivered."""

    counts: Counts = field(default_factory=dict)

    @property
    def tables(self) -> Sequence[Table]:
        return (daily, history)

    def correct(self, counts: Counts) -> Regions:
        """Deliver other counts, and take them in."""
        self.run(self.put(counts), [daily.name])
        return replace(self, counts=counts)

    def put(self, counts: Counts) -> list[date]:
        """Deliver other counts; the days that have others than before."""
        (folder := self.landing / "regions").mkdir(parents=True, exist_ok=True)
        changed = [at for at in counts if counts[at] != self.counts.get(at)]
        for at in changed:
            lines = [
                {"region": name, "outages": n, "customers": of}
                for name, (n, of) in counts[at].items()
            ]
            (folder / f"{at}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return changed

    def build(self, days: Sequence[date], run: str = "a run") -> StepResult:
        return self.run(days, [HISTORY], run=run)[HISTORY]

    def expected(self) -> Totals:
        """The totals of every day by DuckDB, from the files delivered."""
        query = SQL.format(first=self.calendar.first, last=self.calendar.last, landing=self.landing)
        return self._by_day(duckdb.execute(query).fetchall())

    def held(self) -> Totals:
        """The totals of every day as the lake holds them."""
        rows = self.arrow(HISTORY).select(list(types_of(history.columns))).to_pylist()
        return self._by_day([tuple(row.values()) for row in rows])

    def _by_day(self, rows: Sequence[tuple[Any, ...]]) -> Totals:
        return {at: sorted(row for row in rows if row[0] == at) for at in self.calendar.days()}
