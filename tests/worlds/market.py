"""Quotes of trading days, with tables that read them, from a Saturday to a Sunday."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import Csv, Landing, expected, rules, same_day, table, window
from backfill_assets import field as column
from backfill_assets.calendar import Calendar
from backfill_assets.lake.lake import Lake
from backfill_assets.plan.neighbours import StatusReader, select_neighbours
from backfill_assets.plan.selection import Selection
from backfill_assets.plan.selector import STATES, Selector
from backfill_assets.plan.status import PartitionStatus, State, latest_builds
from backfill_assets.plan.status_in_bulk import status_in_bulk
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Expected
from backfill_assets.step.due import days_due
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.step.step import Step
from backfill_assets.step.verdict import decide_day, facts_now
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

FIRST = date(2024, 6, 1)
LAST = date(2024, 6, 16)
DAYS = [FIRST + timedelta(n) for n in range(16)]
OPEN = [day for day in DAYS if day.weekday() < 5]
CLOSED = [day for day in DAYS if day.weekday() >= 5]
MON_FRI = expected.weekdays("mon-fri")
QUOTES = "raw/quotes"
CLOSES = "staging/closes"
WEEK = "features/week"
NAMES = (QUOTES, CLOSES, WEEK)


def quotes_of(due: Expected | None = MON_FRI, **options: Any) -> Table:
    fields = [column("symbol STRING", required=True), column("cents BIGINT", required=True)]
    # Prices may stay the same for days.
    source = Landing("quotes", format=Csv(), expected=due, fields=fields, duplicates="allow")
    return table(
        QUOTES,
        partition_by="arrival_day",
        columns=source.row_columns,
        reads={"rows": source},
        **{"rules": [rules.has_rows()], "version": "1", **options},
    )(lambda rows: rows)


def closes_of(quotes: Table, **options: Any) -> Table:
    return table(
        CLOSES,
        partition_by="arrival_day",
        columns="arrival_day DATE, symbol STRING, cents BIGINT",
        reads={"quotes": same_day(quotes)},
        **{"rules": [rules.has_rows()], "version": "1", **options},
    )(lambda quotes: quotes.select("arrival_day", "symbol", "cents"))


def week_of(closes: Table, first: int = -6, last: int = 0, **options: Any) -> Table:
    """Count the closes of the days around each day."""

    def compute(closes: DataFrame) -> DataFrame:
        ends = (F.date_add("arrival_day", -last), F.date_add("arrival_day", -first))
        days = F.explode(F.sequence(*ends)).alias("day")
        return closes.select(days, "symbol").groupBy("day", "symbol").agg(F.count("*").alias("n"))

    return table(
        WEEK,
        partition_by="day",
        columns="day DATE, symbol STRING, n BIGINT",
        **{
            "reads": {"closes": window(closes, first=first, last=last)},
            "rules": [rules.has_rows()],
            "version": "1",
            **options,
        },
    )(compute)


def no_spark() -> SparkSession:
    raise AssertionError("Spark was started")


@dataclass
class Market:
    """A test's own lake with these tables."""

    root: Path
    spark: Callable[[], SparkSession]
    tables: Sequence[Table] = field(default_factory=lambda: with_readers(quotes_of()))
    calendar: Calendar = field(default_factory=lambda: Calendar(FIRST, LAST))

    @property
    def workspace(self) -> Workspace:
        settings = read_settings(lake=str(self.root / "lake"), landing=self.root)
        area = LandingArea(self.root, self.root / "landed", lake=settings.lake)
        return Workspace(settings, tuple(self.tables), self.calendar, Lake(settings.lake), area)

    def table(self, name: str) -> Table:
        return next(each for each in self.tables if each.name == name)

    def file(self, day: date) -> Path:
        path = self.root / "quotes" / f"{day}.csv"
        path.parent.mkdir(exist_ok=True)
        return path

    def deliver(self, *days: date, rows: int = 2, cents: int = 100) -> None:
        for day in days:
            lines = (f"S{n},{cents}\n" for n in range(rows))
            self.file(day).write_text("symbol,cents\n" + "".join(lines))

    def run(self, days: Sequence[date] = DAYS, names: Sequence[str] = NAMES, **request: Any):
        results: dict[str, StepResult] = {}
        for each in self.tables:
            if each.name in names:
                step = Step(each, self.workspace, StepRequest(run="r", **request), self.spark)
                results[each.name] = step.run(days)
        return results

    def rows(self, name: str) -> dict[date, int]:
        """The number of rows of each day with rows, in another reader of Delta."""
        found = DeltaTable(self.workspace.lake.path(name)).to_pyarrow_table()
        day = found.column(self.table(name).partition_by)
        return {on: day.to_pylist().count(on) for on in day.unique().to_pylist()}

    def status(self, name: str) -> dict[date, PartitionStatus]:
        wanted = [(name, day) for day in self.calendar.days()]
        found = StatusReader(self.workspace).read(wanted)
        return {day: found[name, day] for _, day in wanted}

    def states(self, name: str) -> dict[State, list[date]]:
        by_state: dict[State, list[date]] = {}
        for day, found in self.status(name).items():
            by_state.setdefault(found.state, []).append(day)
        return by_state

    def selection(self, only: Sequence[str] = tuple(STATES), **options: Any) -> Selection:
        selector = Selector(self.workspace.names, self.calendar.days(), frozenset(only), **options)
        reader = StatusReader(self.workspace)
        graph = self.workspace.graph
        return select_neighbours(selector, graph, reader.read, reader.was_built)

    def agree(self) -> None:
        """Fail unless status, status in bulk, plan and step agree on every day."""
        workspace = self.workspace
        days = self.calendar.days()
        builds = latest_builds(workspace)
        bulk = status_in_bulk(workspace, workspace.tables, days, {}).partitions
        planned = self.selection().partitions
        for each in workspace.tables:
            status = self.status(each.name)
            assert {day: bulk[each.name, day] for day in days} == status
            facts = facts_now(each, days, workspace, builds)
            due = days_due(facts, days)
            up_to_date = [day for day in days if status[day].is_up_to_date]
            assert up_to_date == due.up_to_date
            assert up_to_date == [day for day in days if decide_day(facts, day).is_up_to_date]
            unbuilt = [day for day in days if status[day].state == State.CLOSED]
            assert set(unbuilt) - set(up_to_date) <= set(due.closed)
            for day in {*due.closed, *due.compute}:
                assert (each.name, day) in planned, (each.name, day, status[day])

    def after(self, *tables: Table) -> "Market":
        """The same lake with other declarations."""
        return replace(self, tables=tables)


def with_readers(quotes: Table) -> tuple[Table, ...]:
    closes = closes_of(quotes)
    return quotes, closes, week_of(closes)
