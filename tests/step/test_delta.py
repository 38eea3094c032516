"""A Delta table of another team as a source: every change of its rows is built."""

import json
from collections.abc import Callable, Mapping
from datetime import date

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.calendar import Calendar
from backfill_assets.sources.delta import DeltaSource
from backfill_assets.tables.declaration import table
from tests.worlds.deliveries import day, days
from tests.worlds.projects import OneTable

NAME = "raw/orders"
ON_DELETION_VECTORS = "SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"


def append(project: OneTable, orders: Mapping[date, list[int]]) -> None:
    rows = [(at, cents) for at, of_day in orders.items() for cents in of_day]
    of_orders = pa.table(
        {
            "ordered_on": pa.array([at for at, _ in rows], pa.date32()),
            "cents": [cents for _, cents in rows],
        }
    )
    write_deltalake(
        str(project.root / "orders"), of_orders, mode="append", partition_by=["ordered_on"]
    )


def outcomes(project: OneTable) -> dict[date, str]:
    return {build.day: build.outcome for build in project.run().built}


@pytest.fixture
def project(tmp_path, spark) -> OneTable:
    """Two days, of two files each, that were built."""
    columns = "arrival_day DATE, cents BIGINT"
    reads = {"rows": DeltaSource("orders", "ordered_on")}
    declare = table(NAME, partition_by="arrival_day", columns=columns, reads=reads, version="1")
    project = OneTable(
        tmp_path,
        declare(lambda rows: rows.drop("ordered_on")),
        lambda: spark,
        Calendar(day(0), day(1)),
    )
    append(project, {day(0): [1, 2, 3], day(1): [10]})
    append(project, {day(0): [4], day(1): [20]})
    assert outcomes(project) == dict.fromkeys(days(0, 1), "accepted")
    return project


@pytest.fixture
def sql(project, spark) -> Callable[[str], object]:
    """Runs a statement on the table of orders, `{}` in it."""
    return lambda statement: spark.sql(statement.format(f"delta.`{project.root}/orders`")).collect()


def rows_of(orders: Mapping[date, list[int]]) -> list[tuple[date, int]]:
    return sorted(((at, cents) for at, of_day in orders.items() for cents in of_day), key=repr)


def test_a_day_whose_rows_moved_to_other_files_is_built_again_and_unchanged(project, golden):
    assert (
        DeltaTable(str(project.root / "orders")).optimize.compact(
            [("ordered_on", "=", str(day(0)))]
        )["numFilesRemoved"]
        == 2
    )
    assert project.outdated() == [day(0)]
    golden(project.status().partitions[NAME, day(0)].why)
    assert outcomes(project) == {day(0): "unchanged"}
    assert project.outdated() == []
    assert project.rows() == rows_of({day(0): [1, 2, 3, 4], day(1): [10, 20]})


@pytest.mark.scale
def test_deletion_vectors_of_a_source_change_only_their_days(project, sql):
    """By a deletion vector: the path, the size and the statistics of the file stay."""
    sql(f"ALTER TABLE {{}} {ON_DELETION_VECTORS}")
    sql("DELETE FROM {} WHERE cents = 2")
    source = project.table.source()
    area = project.workspace.area
    assert project.outdated() == [day(0)]
    assert source.delivered(area, [day(0)])[day(0)].files == {"orders": 3}
    assert [line.rpartition(", ")[2] for line in source.described(area, day(0))[1:]] in (
        ["2 rows", "1 rows"],
        ["1 rows", "2 rows"],
    )
    assert outcomes(project) == {day(0): "accepted"}
    assert project.rows() == rows_of({day(0): [1, 3, 4], day(1): [10, 20]})
    # Of the same file, so that its vector is another and as long.
    sql("UPDATE {} SET cents = 5 WHERE cents = 3")
    assert outcomes(project) == {day(0): "accepted"}
    assert project.rows() == rows_of({day(0): [1, 4, 5], day(1): [10, 20]})


@pytest.mark.scale
def test_a_day_that_lost_most_of_its_rows_is_refused_until_somebody_accepts_it(project, golden):
    DeltaTable(str(project.root / "orders")).delete("cents < 4")
    assert outcomes(project) == {day(0): "failed"}
    golden(project.status().partitions[NAME, day(0)].why)
    assert {build.day: build.outcome for build in project.run(accept="orders").built} == {
        day(0): "accepted"
    }
    assert project.rows() == rows_of({day(0): [4], day(1): [10, 20]})


def lose(project: OneTable, cents: str) -> None:
    """Delete these rows, by a writer that records no statistics."""
    orders = project.root / "orders"
    DeltaTable(str(orders)).delete(f"cents {cents}")
    for log in (orders / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            action.get("add", {}).pop("stats", None)
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.mark.scale
def test_after_an_acceptance_a_delivery_is_compared_with_the_accepted_one(project, golden):
    """Without counts in the log, too."""
    append(project, {day(0): [*range(100, 196)]})
    assert outcomes(project) == {day(0): "accepted"}
    lose(project, "BETWEEN 100 AND 189")
    assert outcomes(project) == {day(0): "failed"}
    accepted = project.run(accept="orders").built
    assert {build.day: build.files for build in accepted} == {day(0): {"orders": 10}}
    lose(project, "BETWEEN 191 AND 199")
    assert outcomes(project) == {day(0): "accepted"}
    lose(project, "< 4")
    assert outcomes(project) == {day(0): "failed"}
    golden(project.status().partitions[NAME, day(0)].why)
    append(project, {day(0): [5]})
    assert outcomes(project) == {day(0): "accepted"}
    assert project.rows() == rows_of({day(0): [4, 5, 190], day(1): [10, 20]})
