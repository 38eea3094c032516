"""A day is built again from what was recorded of it, and compared; nothing is written, and what is
lacking is named.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import Column, Window
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import Landing, rules, table
from backfill_assets.errors import UsageError
from backfill_assets.lake.releases import Releases, TableVersion
from backfill_assets.reproduce.inputs import recorded_build
from backfill_assets.reproduce.reproduce import reproduce
from backfill_assets.reproduce.reproduction import (
    Reproduction,
    ReproductionResult,
    read_reproduction,
)
from backfill_assets.tables.declaration import Table
from tests.worlds.deliveries import change, day, days
from tests.worlds.depth import deep
from tests.worlds.outages import (
    DAILY,
    HISTORY,
    OUTAGES,
    RAW,
    UPDATES,
    World,
    change_in_place,
    only_some,
)
from tests.worlds.suite import connect

AT = day(2)


def reproduced(
    world: World,
    of: str | Table,
    at: date = AT,
    release: int | None = None,
    *,
    shuffled: bool = False,
) -> Reproduction:
    """The reproduction of a day, by the project with this table in place of its own."""
    tables = {table.name: table for table in world.tables} | (
        {of.name: of} if isinstance(of, Table) else {}
    )
    workspace = replace(world.workspace, tables=tuple(tables.values()))
    name = of if isinstance(of, str) else of.name
    recorded = replace(recorded_build(name, str(at), release, workspace), shuffled=shuffled)
    return reproduce(recorded, workspace, world.spark())


def everything(world: World) -> dict[Path, tuple[int, int]]:
    """Every file of the lake and of the landing area, as it is."""
    files = [path for path in world.root.parent.rglob("*") if path.is_file()]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize("name", deep([RAW, HISTORY], [HISTORY]))
def test_a_day_as_it_was_built_comes_out_the_same_and_nothing_is_written(once, name):
    """Totals of the beginning were built in one run with the days before: no version that the run
    read has these.
    """
    before = everything(once)
    reproduction = reproduced(once, name)
    assert (reproduction.result, reproduction.reasons, reproduction.diff) == (
        ReproductionResult.SAME,
        (),
        None,
    )
    assert reproduction.rebuilt_fingerprint == once.accepted(name)[AT].fingerprint
    assert reproduction.rebuilt_rows == len(once.rows(name, [AT])) > 0
    assert everything(once) == before


@pytest.mark.parametrize(
    "commit",
    deep(["", "ab12", "ab12-dirty"], ["ab12-dirty"]),
    ids=["in no repository", "a commit", "and more"],
)
def test_other_code_is_not_run_and_the_commit_of_the_build_is_named(world, commit, golden):
    plain = counted()
    world.write(day(0), [change()])
    world.run(days(0), plain, git_commit=commit)
    reproduction = reproduced(world, replace(plain, version="2", compute=never), day(0))
    assert reproduction.result == ReproductionResult.OTHER_CODE
    (reason,) = reproduction.reasons
    golden(reason)


def never(*_: Any) -> Any:
    raise AssertionError("it was computed")


def counted(compute: Callable[..., Any] | None = None) -> Table:
    """The lines of a day by number."""

    @table(
        "raw/counted",
        partition_by="day",
        key=["n"],
        columns="day DATE, n BIGINT, value DOUBLE",
        version="1",
        reads={"lines": Landing("outage_events")},
        rules=[rules.has_rows(), rules.unique_key()],
    )
    def numbers(lines):
        number = F.get_json_object("line", "$.outageNumber").cast("BIGINT").alias("n")
        return lines.select(F.col("arrival_day").alias("day"), number, F.lit(1.0).alias("value"))

    return numbers if compute is None else replace(numbers, compute=compute)


def chance() -> Column:
    """A number of chance, by code that is not in Spark's plan."""
    return F.expr("double(hash(reflect('java.util.UUID', 'randomUUID')))")


def first_of_ties(first: str) -> Table:
    """For each day, one row: the first of all lines by an order in which all tie."""
    plain = counted()

    def compute(lines):
        number = Window.partitionBy("day").orderBy("value")
        lines_first = plain.compute(lines).withColumn("first", F.expr(first).over(number))
        return lines_first.groupBy("day").agg(F.max("first").alias("n"), F.lit(1.0).alias("value"))

    return replace(plain, compute=compute, rules=())


@pytest.mark.parametrize(
    ("first", "result"),
    [
        pytest.param("first(n)", ReproductionResult.DIFFERS, id="the first of lines that tie"),
        pytest.param("min(n)", ReproductionResult.SAME, id="the least", marks=pytest.mark.scale),
    ],
)
def test_rows_that_depend_on_the_order_of_the_input_differ_from_shuffled_inputs(
    world, first, result
):
    table = first_of_ties(first)
    world.write(day(0), [change("5"), change("6")])
    world.run(days(0), table)
    assert reproduced(world, table, day(0)).result == ReproductionResult.SAME
    shuffled = reproduced(world, table, day(0), shuffled=True)
    assert shuffled.result == result
    if result == ReproductionResult.DIFFERS:
        assert shuffled.diff
        (compared,) = shuffled.diff.tables
        rows = (*compared.added_rows, *compared.removed_rows)
        assert {row.values["n"] for row in rows} == {5, 6}


@pytest.mark.parametrize("name", deep([UPDATES, DAILY, HISTORY], [DAILY]))
def test_the_bundled_tables_do_not_depend_on_the_order_of_their_inputs(once, name):
    assert reproduced(once, name, shuffled=True).result == ReproductionResult.SAME


def test_inputs_are_read_as_they_were_until_a_vacuum_takes_them_and_then_are_named(built, golden):
    other = only_some(built, "100", "101", "102", version="2", customers=9)
    assert built.run([day(1)], other, run="second")[OUTAGES].built[0].outcome == "accepted"
    assert reproduced(built, DAILY).result == ReproductionResult.SAME
    DeltaTable(built.lake.path(OUTAGES)).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    )
    reproduction = reproduced(built, DAILY)
    assert (reproduction.result, reproduction.rebuilt_fingerprint) == (
        ReproductionResult.INPUT_GONE,
        "",
    )
    (reason,) = reproduction.reasons
    golden(re.sub(r"\(\S+\)|\S+\.parquet", "<...>", reason))


def test_a_total_is_computed_from_the_day_before_as_that_was_then(built):
    plain = built.table(HISTORY)
    total = "outages_total"
    higher = replace(
        plain,
        version="2",
        compute=lambda **read: plain.compute(**read).withColumn(total, F.col(total) + 1),
    )
    before = built.fingerprints(HISTORY)[AT]
    assert built.run([day(1)], higher, run="second")[HISTORY].built[0].outcome == "accepted"
    reproduction = reproduced(built, HISTORY)
    assert (reproduction.result, reproduction.rebuilt_fingerprint) == (
        ReproductionResult.SAME,
        before,
    )


@pytest.mark.parametrize(
    ("deliver", "says"),
    [
        pytest.param(
            lambda w: w.write(day(0), [change("7")]),
            "{0} has different contents",
            id="other contents",
        ),
        pytest.param(
            lambda w: w.write(day(0), [change(), change("2")]),
            "{0} has 2 lines, had 1",
            id="more lines",
        ),
        pytest.param(
            lambda w: w.write(day(0), [change()], "more.jsonl"),
            "more.jsonl was added",
            id="another file",
        ),
        pytest.param(
            lambda w: (w.folder(day(0)) / "events.jsonl").unlink(),
            "no source for 2019-08-15",
            id="no file",
        ),
    ],
)
def test_a_source_that_was_delivered_anew_is_named(world, deliver, says):
    plain = counted()
    world.write(day(0), [change()])
    world.run(days(0), plain)
    deliver(world)
    reproduction = reproduced(world, plain, day(0))
    name = f"{world.folder(day(0)).relative_to(world.landing)}/events.jsonl"
    assert (reproduction.result, len(reproduction.reasons)) == (ReproductionResult.INPUT_GONE, 1)
    assert says.format(name) in reproduction.reasons[0]


def test_what_chance_decides_differs_and_is_shown_by_key_and_column(world):
    plain = counted()
    by_chance = replace(
        plain, compute=lambda lines: plain.compute(lines).withColumn("value", chance())
    )
    world.write(day(0), [change("5"), change("6")])
    world.run(days(0), by_chance)
    rows = {
        row["n"]: row["value"]
        for row in DeltaTable(world.lake.path(plain.name)).to_pyarrow_table().to_pylist()
    }
    reproduction = reproduced(world, by_chance, day(0))
    assert (reproduction.result, reproduction.rebuilt_rows) == (ReproductionResult.DIFFERS, 2)
    assert reproduction.diff
    (compared,) = reproduction.diff.tables
    assert [(c.name, c.changed) for c in compared.columns] == [("value", 2)]
    assert {example.key["n"]: example.before for example in compared.columns[0].examples} == rows
    assert (compared.columns_retyped, compared.columns_added, compared.columns_removed) == (
        {},
        (),
        (),
    )
    assert read_reproduction(reproduction.contents()) == reproduction


def test_rows_of_a_large_day_are_not_collected_to_compare_them(world, monkeypatch):
    monkeypatch.setattr("backfill_assets.reproduce.reproduce.MOST_ROWS", 1)
    plain = counted()
    by_chance = replace(
        plain, compute=lambda lines: plain.compute(lines).withColumn("value", chance())
    )
    world.write(day(0), [change("5"), change("6")])
    world.run(days(0), by_chance)
    reproduction = reproduced(world, by_chance, day(0))
    assert (reproduction.result, reproduction.rebuilt_rows) == (ReproductionResult.DIFFERS, 2)
    assert (reproduction.diff, len(reproduction.reasons)) == (None, 1)


def test_an_input_whose_file_was_changed_in_place_is_not_taken_for_chance(built, golden):
    change_in_place(built, DAILY, AT)
    reproduction = reproduced(built, HISTORY)
    assert reproduction.result == ReproductionResult.INPUT_GONE
    (reason,) = reproduction.reasons
    golden(reason)


def test_a_day_whose_own_file_was_changed_in_place_is_not_called_the_same(built, golden):
    """What would be built now is what was built, and not what its readers get."""
    change_in_place(built, DAILY, AT)
    reproduction = reproduced(built, DAILY)
    assert (reproduction.result, reproduction.diff) == (ReproductionResult.REWRITTEN, None)
    golden("\n".join(reproduction.reasons))
    assert reproduced(built, DAILY, day(1)).result == ReproductionResult.SAME


def test_the_build_of_a_release_is_reproduced_and_not_a_later_one(built, golden):
    versions = {name: TableVersion(name, version) for name, version in built.versions().items()}
    Releases(str(built.root)).add(None, versions, kind="live", who="ada", reason="")
    before = built.fingerprints(OUTAGES)[AT]
    built.run([AT], only_some(built, "200", version="2"), run="second")
    of_release = reproduced(built, OUTAGES, release=1)
    assert (of_release.result, of_release.release, of_release.rebuilt_fingerprint) == (
        ReproductionResult.SAME,
        1,
        before,
    )
    assert reproduced(built, OUTAGES).result == ReproductionResult.OTHER_CODE
    with pytest.raises(UsageError) as refused:
        reproduced(built, OUTAGES, release=2)
    golden(str(refused.value))


def test_days_with_rows_of_other_code_or_of_other_writers_are_not_reproduced(built):
    some = only_some(built, "200", version="2")
    built.run([AT], some, run="second", write_mode="merge")
    assert reproduced(built, some).result == ReproductionResult.MIXED
    DeltaTable(built.lake.path(DAILY)).update(
        {"region": "'nowhere'"}, predicate=f"outage_day = '{AT}'"
    )
    reproduction = reproduced(built, DAILY)
    assert reproduction.result == ReproductionResult.REWRITTEN
    assert "by commit" in reproduction.reasons[0]


def test_a_day_that_was_merged_into_and_keeps_nothing_is_one_builds(world):
    plain = counted()
    world.write(day(0), [change("5")])
    world.run(days(0), plain, write_mode="merge")
    assert reproduced(world, plain, day(0)).result == ReproductionResult.SAME


KILLED = """
import os, signal, sys
from pathlib import Path
from dataclasses import replace
from backfill_assets.lake.spark.session import start_session
from backfill_assets.settings import read_settings
from tests.reproduce.test_reproduce import counted, reproduced
from tests.worlds.deliveries import day
from tests.worlds.outages import World
session = start_session(read_settings(spark_remote=sys.argv[1]))
class Dies:
    def __call__(self, lines):
        rows = counted().compute(lines)
        persist = type(rows).persist
        def persisted(frame, *level):
            assert persist(frame, *level).count() == 2
            os.kill(os.getpid(), signal.SIGKILL)
        type(rows).persist = persisted
        return rows
reproduced(World(Path(sys.argv[2]), Path(sys.argv[3]), lambda: session), counted(Dies()), day(0))
"""


@pytest.mark.scale
def test_killed_in_the_middle_it_leaves_nothing(world, tmp_path):
    world.write(day(0), [change("5"), change("6")])
    world.run(days(0), counted())
    before = everything(world)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", KILLED, connect(), str(world.root), str(world.landing)]
    done = subprocess.run(
        command,
        env=os.environ | {"TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (everything(world), list(scratch.iterdir())) == (before, [])
