"""Days of a table that hold rows of another program: status, plan, steps and runs."""

from collections import Counter
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import Csv, Landing, field, itself, table
from backfill_assets.calendar import Calendar
from backfill_assets.errors import UsageError
from backfill_assets.lake.history import latest
from backfill_assets.lake.ledger import BUILD_SCHEMA
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.plan import read_plan as read_plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.shadow import open_shadow, workspace_of
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.plan.status_in_bulk import status_in_bulk
from backfill_assets.plan.store import Plans
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.rollback import roll_back
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from tests.worlds.deliveries import day, days, put
from tests.worlds.projects import OneTable
from tests.worlds.small_lake import NOW, approved

NAME = "raw/orders"
FIVE = days(0, 1, 2, 3, 4)


def orders(columns: str = "day DATE, n BIGINT", **options: Any):
    source = Landing(
        "orders",
        format=Csv(),
        fields=[field("n BIGINT", required=True, unparsed_at_most=1)],
        malformed_at_most=1,
    )

    @table(
        NAME, partition_by="day", columns=columns, reads={"rows": source}, version="1", **options
    )
    def of_day(rows):
        extra = [f"CAST(NULL AS STRING) AS {name}" for name in ("note",) if name in columns]
        return rows.selectExpr("arrival_day AS day", "n", *extra)

    return of_day


def write_as_another(world: OneTable, values: dict[date, list[int]], **more: Any) -> None:
    """Another program overwrites these days."""
    path = world.workspace.lake.path(NAME)
    flat = [(at, n) for at, of_day in values.items() for n in of_day]
    rows = pa.table(
        {
            "day": pa.array([at for at, _ in flat], pa.date32()),
            "n": pa.array([n for _, n in flat], pa.int64()),
        }
    )
    where = " OR ".join(f"day = '{at}'" for at in values)
    exists = Path(path, "_delta_log").exists()
    write_deltalake(
        path, rows, partition_by=["day"], mode="overwrite", predicate=where if exists else None
    )


def sums(world: OneTable) -> dict[date, int]:
    """The sum of each day, read without the code under test."""
    rows = DeltaTable(world.workspace.lake.path(NAME)).to_pyarrow_dataset()
    with duckdb.connect() as database:
        database.register("held", rows)
        found = database.execute("SELECT day, sum(n)::BIGINT FROM held GROUP BY day").fetchall()
    return dict(found)


@pytest.fixture
def world(tmp_path, spark) -> OneTable:
    """Deliveries of five days. Another program's table has rows of three of them."""
    for n in range(5):
        put(tmp_path, f"orders/{day(n)}.csv", f"n\n{n + 1}\n{n + 1}\n")
    made = OneTable(tmp_path, orders(), lambda: spark, Calendar(day(0), day(4)))
    write_as_another(made, {day(0): [100, 200], day(1): [300], day(3): [400]})
    return made


FOREIGN = {day(0): 300, day(1): 300, day(3): 400}


def states(world: OneTable) -> dict[State, list[date]]:
    builds = latest_builds(world.workspace)
    status = status_of(world.workspace, [world.table], FIVE, latest=builds)
    assert status_in_bulk(world.workspace, [world.table], FIVE, {}).partitions == status.partitions
    return status.of(NAME)


def test_a_step_builds_the_empty_days_and_refuses_the_others_with_the_remedy(world, golden):
    assert states(world) == {State.MISSING: days(2, 4), State.OCCUPIED: days(0, 1, 3)}
    result = world.run()
    assert [build.day for build in result.built] == days(2, 4)
    assert list(result.blocked) == days(0, 1, 3)
    golden(result.blocked)
    assert sums(world) == FOREIGN | {day(2): 6, day(4): 10}
    assert states(world) == {State.UP_TO_DATE: days(2, 4), State.OCCUPIED: days(0, 1, 3)}
    assert world.run(force=True).blocked.keys() == {day(0), day(1), day(3)}
    assert sums(world) == FOREIGN | {day(2): 6, day(4): 10}


def test_a_step_replaces_them_if_it_is_asked_to_and_records_that(world):
    result = world.run(replace_foreign_rows=True, reason="ours are right")
    assert (result.blocked, [build.day for build in result.built]) == ({}, FIVE)
    assert sums(world) == {day(n): 2 * (n + 1) for n in range(5)}
    assert states(world) == {State.UP_TO_DATE: FIVE}
    ledger = world.workspace.lake.ledger
    builds = latest(ledger, {NAME: None}, BUILD_SCHEMA.names).accepted
    assert {build.replace_foreign_rows for build in builds.values()} == {True}
    assert {build.reason for build in builds.values()} == {"ours are right"}


def test_rows_that_another_program_writes_while_a_step_computes_are_not_replaced(world):
    plain = world.table.compute
    calls = list[int]()

    def during(rows):
        if not calls:
            write_as_another(world, {day(2): [7, 8]})
        calls.append(1)
        return plain(rows)

    mine = OneTable(
        world.root, world.table.__class__(**vars(world.table) | {"compute": during}),
        world.spark, world.calendar,
    )  # fmt: skip
    result = mine.run()
    assert [build.day for build in result.built] == [day(4)]
    assert result.blocked.keys() == {day(0), day(1), day(2), day(3)}
    assert sums(world) == FOREIGN | {day(2): 15, day(4): 10}
    # The first attempt calls it for each of the two days, since no day reads another one.
    assert len(calls) == 3


@pytest.mark.scale
def test_a_merge_neither_keeps_nor_replaces_rows_of_another_program(world, golden):
    keyed = OneTable(world.root, orders(key=["day", "n"]), world.spark, world.calendar)
    refused = keyed.run(write_mode="merge", replace_foreign_rows=True, reason="why").blocked
    golden(refused[day(0)])
    golden(keyed.run(write_mode="merge").blocked[day(0)], "without the option")
    assert {at: n for at, n in sums(world).items() if at in FOREIGN} == FOREIGN


def test_an_empty_day_does_not_widen_the_table_of_another_program(world, golden):
    wider = OneTable(
        world.root, orders("day DATE, n BIGINT, note STRING"), world.spark, world.calendar
    )
    with golden.raises(UsageError):
        wider.run()
    table_of_others = DeltaTable(world.workspace.lake.path(NAME))
    assert [column.name for column in table_of_others.schema().fields] == ["day", "n"]
    assert sums(world) == FOREIGN
    wider.run(replace_foreign_rows=True, reason="why")
    widened = DeltaTable(world.workspace.lake.path(NAME))
    assert [column.name for column in widened.schema().fields] == ["day", "n", "note"]


def request(**options: Any) -> RebuildRequest:
    days: dict[str, Any] = {"partitions": f"{day(0)}..{day(4)}", "yes": True}
    return RebuildRequest(**days | options)


def test_a_plan_names_the_occupied_days_and_leaves_them_out(world, golden):
    made = make_plan(request(), world.workspace)
    assert made.plan.partitions().keys() == {(NAME, day(2)), (NAME, day(4))}
    assert list(made.selection.blocked) == [(NAME, at) for at in days(0, 1, 3)]
    golden([*made.selection.blocked.values()])
    assert make_plan(request(force=True), world.workspace).selection.blocked.keys() == {
        (NAME, at) for at in days(0, 1, 3)
    }


def test_a_plan_with_the_option_has_them_and_is_stored_with_it(world):
    made = make_plan(request(replace_foreign_rows=True, reason="why"), world.workspace)
    reasons = Counter(str(reason) for reason in made.plan.partitions().values())
    assert (reasons, made.selection.blocked) == ({"missing": 2, "occupied": 3}, {})
    stored = Plans(world.workspace.lake.root).read(made.plan.id)
    assert stored.options.replace_foreign_rows
    assert read_plan(stored.contents(), made.plan.id) == made.plan
    assert made.plan.as_typed.endswith("--force --replace-foreign-rows --reason 'why'")
    only = request(only="occupied", replace_foreign_rows=True, reason="why")
    assert make_plan(only, world.workspace).plan.partitions().keys() == {
        (NAME, at) for at in days(0, 1, 3)
    }


def test_where_all_days_are_occupied_the_refusal_names_them(world, golden):
    with golden.raises(UsageError):
        make_plan(request(partitions=str(day(0))), world.workspace)


ALL = Landing(
    "orders",
    format=Csv(),
    fields=[field("n BIGINT", unparsed_at_most=1)],
    malformed_at_most=1,
)


@table(
    NAME,
    partition_by="day",
    columns="day DATE, n BIGINT",
    reads={"rows": ALL, "before": itself()},
    version="1",
)
def running_total(rows, before):
    """The sum of a day and of all days before it."""
    carried = before.agg(F.coalesce(F.max("n"), F.lit(0)).alias("carried"))
    today = rows.groupBy(F.col("arrival_day").alias("day")).agg(F.sum("n").alias("n"))
    since = Window.orderBy("day").rowsBetween(Window.unboundedPreceding, 0)
    return today.crossJoin(carried).select(
        "day", (F.sum("n").over(since) + F.col("carried")).alias("n")
    )


@pytest.fixture
def totals(tmp_path, spark) -> OneTable:
    """A running total whose first and third of five days are occupied."""
    for n in range(5):
        put(tmp_path, f"orders/{day(n)}.csv", f"n\n{n + 1}\n")
    made = OneTable(tmp_path, running_total, lambda: spark, Calendar(day(0), day(4)))
    write_as_another(made, {day(0): [100], day(2): [300]})
    return made


def test_no_day_is_computed_from_rows_of_another_program(totals, golden):
    result = totals.run()
    assert result.built == []
    golden(result.blocked)
    assert states(totals) == {State.MISSING: days(1, 3, 4), State.OCCUPIED: days(0, 2)}
    with golden.raises(UsageError, "a plan"):
        make_plan(request(), totals.workspace)


def test_a_shadow_computes_the_days_after_from_the_replaced_ones(totals):
    may = request(replace_foreign_rows=True, reason="why", into="shadow")
    plan = make_plan(may, totals.workspace).plan
    assert plan.partitions().keys() == {(NAME, at) for at in FIVE}
    open_shadow(plan, totals.workspace, "ada")
    inside = workspace_of(plan, totals.workspace)
    asked = StepRequest(run="a run", plan=plan.id, replace_foreign_rows=True, reason="why")
    result = Step(running_total, inside, asked, totals.spark).run(FIVE)
    assert ([build.day for build in result.built], result.blocked) == (FIVE, {})
    assert sums(totals) == {day(0): 100, day(2): 300}
    note = partial(Plans(totals.workspace.lake.root).note, plan.id)
    note("started", NOW, who="ada")
    note("ended", NOW, ending="done")
    Publication(plan, totals.workspace, "ada").publish(approved)
    assert sums(totals) == {day(0): 1, day(1): 3, day(2): 6, day(3): 10, day(4): 15}
    roll_back(plan, totals.workspace, who="ada")
    assert sums(totals) == {day(0): 100, day(2): 300}
    assert states(totals) == {State.MISSING: days(1, 3, 4), State.OCCUPIED: days(0, 2)}


def test_the_option_needs_a_reason(golden):
    with golden.raises(UsageError):
        request(replace_foreign_rows=True, reason=" ")
    assert request(replace_foreign_rows=True, reason="why").replace_foreign_rows
    assert not request().replace_foreign_rows
