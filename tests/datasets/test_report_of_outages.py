"""The report of a lake that Spark built from outages: a correction is published and taken back, and
a broken file fails. Its values are those of DuckDB over the files of the ledger and of tables.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.store import Plans
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.verbs.lake_report import LakeReport, write_report
from tests.worlds.deliveries import arriving, day
from tests.worlds.outages import EIGHT, NAMES, RAW, UPDATES, World, shadow_plan_of

pytestmark = pytest.mark.scale

LATE_FILE = EIGHT[2]
BROKEN = EIGHT[7]
LINES = 40


@pytest.fixture(scope="module")
def drill(eight: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Eight days that are released, a late file in a shadow that ada publishes and ben takes back,
    and a night that fails on a broken file.
    """
    world = eight.copied(tmp_path_factory.mktemp("drill"))
    workspace = world.workspace
    release_live(workspace, who="sensor")
    world.write(LATE_FILE, arriving(2, *range(LINES), began=2), "late.jsonl")
    plan = shadow_plan_of(
        world,
        {n: EIGHT[2:] if n.startswith("features/") else [LATE_FILE] for n in NAMES},
    )
    plans = Plans(str(world.root))
    plans.keep(plan)
    inside = workspace_of(plan, workspace)
    for name in NAMES:
        request = StepRequest("in the shadow", plan=plan.id, who="ada", reason="a late file")
        Step(world.table(name), inside, request, world.spark).run(sorted(plan.days_of(name)))
    plans.note(plan.id, "ended", datetime.now(UTC), ending="done")
    Publication(plan, workspace, "ada", "a late file").publish(lambda state: None)
    roll_back(plan, workspace, who="ben", reason="counted twice")
    world.write(BROKEN, ["{broken"] * 5000, "broken.jsonl")
    world.run([BROKEN], run="a night", who="night")
    return world


@pytest.fixture(scope="module")
def report(drill: World, tmp_path_factory: pytest.TempPathFactory) -> LakeReport:
    return write_report(drill.workspace, tmp_path_factory.mktemp("report") / "lake.html")


@pytest.fixture(scope="module")
def ledger(drill: World) -> Iterator[duckdb.DuckDBPyConnection]:
    """The builds in the files of the ledger, by their order."""
    files = DeltaTable(f"{drill.root}/_ledger").file_uris()
    with duckdb.connect() as database:
        listed = ", ".join(f"'{file}'" for file in files)
        database.execute(
            'CREATE VIEW builds AS SELECT * EXCLUDE "at", epoch_us("at") AS moment FROM'
            f" read_parquet([{listed}], hive_partitioning = true)"
        )
        yield database


def asked(database: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return database.execute(sql).fetchall()


def rows_at(world: World, name: str, version: int) -> Counter[Any]:
    table = DeltaTable(world.lake.path(name), version=version).to_pyarrow_table()
    return Counter(table[world.table(name).partition_by].to_pylist())


def test_days_count_by_state_as_the_last_builds_say(report, ledger):
    last = asked(
        ledger,
        "SELECT \"table\", arg_max(outcome, moment) = 'failed', count(*) OVER () FROM builds"
        ' GROUP BY "table", day',
    )
    states: Mapping[str, Mapping[str, Sized]] = report.contents["states"]
    counts = {name: {of: len(days) for of, days in found.items()} for name, found in states.items()}
    assert sum(sum(of.values()) for of in counts.values()) == len(NAMES) * len(EIGHT)
    failed = Counter(name for name, is_failed, _ in last if is_failed)
    assert {name: of["failed"] for name, of in counts.items() if "failed" in of} == failed
    assert failed[RAW] == 1


def test_the_changed_days_of_a_release_have_the_rows_of_its_versions(report, drill):
    """By the tables themselves at the versions in the documents of the releases."""
    documents = sorted(Path(drill.root, "_releases").glob("*.json"))
    releases = [json.loads(path.read_text()) for path in documents]
    shown = {found["release"]: found for found in report.contents["releases"]}
    assert [shown[n]["kind"] for n in sorted(shown)] == ["live", "publish", "rollback"]
    for before, after in pairwise(releases):
        changed = {row["table"]: row for row in shown[after["number"]]["changed"]}
        for name in NAMES:
            versions = [release["tables"][name][1] for release in (before, after)]
            files = [
                set(DeltaTable(drill.lake.path(name), version=v).file_uris()) for v in versions
            ]
            days = {
                part.partition("=")[2]
                for file in files[0] ^ files[1]
                for part in file.split("/")
                if part.startswith(drill.table(name).partition_by + "=")
            }
            assert changed.get(name, {"days": 0})["days"] == len(days), name
            if days:
                old, new = (rows_at(drill, name, version) for version in versions)
                totals = [sum(n for at, n in of.items() if str(at) in days) for of in (old, new)]
                assert [changed[name][f"rows_{when}"] for when in ("before", "after")] == totals
    (published,) = (row for row in shown[2]["changed"] if row["table"] == UPDATES)
    assert published["rows_after"] - published["rows_before"] == LINES


def test_the_plan_says_what_it_changed_and_what_became_of_it(report, ledger):
    (plan,) = report.contents["plans"]
    assert (plan["state"], plan["in_shadow"]) == ("rolled_back", False)
    found = asked(
        ledger,
        """SELECT "table", count(*) FILTER (outcome = 'accepted'),
          count(*) FILTER (outcome = 'unchanged'), sum(rows) FILTER (outcome = 'accepted')
        FROM builds WHERE act = 'publish' GROUP BY ALL""",
    )
    shown = {row["table"]: row for row in plan["changed"]}
    assert {
        (name, row["changed"], row["unchanged"], row["rows_after"]) for name, row in shown.items()
    } == {(name, changed, same, rows or 0) for name, changed, same, rows in found}
    assert shown[UPDATES]["rows_after"] - shown[UPDATES]["rows_before"] == LINES
    assert [event.kind for event in plan["events"]] == ["ended", "published", "rolled_back"]


def test_the_checks_are_the_last_verdicts_on_each_day(report, ledger):
    last = asked(
        ledger,
        'SELECT "table", day, arg_max(checks, moment) FROM builds GROUP BY ALL',
    )
    found = Counter(
        (name, check["rule"], check["passed"])
        for name, _, checks in last
        for check in json.loads(checks)
    )
    shown = Counter(
        (rule["table"], rule["rule"], verdict["result"] == "passed")
        for rule in report.contents["checks"]
        for verdict in rule["days"]
    )
    assert shown == found
    refused = {
        (rule["table"], rule["rule"], verdict["day"])
        for rule in report.contents["checks"]
        for verdict in rule["days"]
        if verdict["result"] == "refused"
    }
    assert refused == {(RAW, "rejected_at_most", BROKEN)}


def test_the_rows_of_each_day_are_those_of_the_tables(report, drill):
    for table in report.contents["figures"]:
        name = table["table"]
        held = Counter(row[drill.table(name).partition_by] for row in drill.rows(name))
        assert {of["day"]: of["value"] for of in table["days"] if of["value"]} == held


def test_nulls_are_shown_of_columns_where_they_moved(report, drill):
    (updates,) = (table for table in report.contents["figures"] if table["table"] == UPDATES)
    rows = drill.arrow(UPDATES)
    for column in updates["columns"]:
        sql = f'SELECT arrival_day, 1 - count("{column["name"]}") / count(*) FROM rows GROUP BY ALL'
        with duckdb.connect() as database:
            database.register("rows", rows)
            shares = dict(asked(database, sql))
        assert {of["day"]: of["value"] for of in column["days"]} == pytest.approx(shares)


def test_who_did_what_and_why_is_there(report):
    acts = {(run["act"], run["who"], run["reason"]) for run in report.contents["runs"]}
    assert ("publish", "ada", "a late file") in acts
    assert [who for act, who, reason in acts if act == "rollback"] == ["ben"]
    (night,) = (run for run in report.contents["runs"] if run["run"] == "a night")
    assert night["who"] == "night"
    assert {part["outcome"] for part in night["tables"]} >= {"failed"}


def test_the_page_has_no_row_and_needs_nothing_else(report, drill):
    page = Path(report.file).read_text()
    assert len(page.encode()) == report.size < 500_000
    assert day(0).isoformat() in page
    for text in ("<script", "src=", "url(", "@import"):
        assert text not in page
    assert "{broken" not in page
    numbers = {row["outage_number"] for row in drill.rows(UPDATES)}
    assert not [number for number in numbers if len(number) > 5 and number in page]


def test_with_rows_the_broken_lines_and_changed_rows_are_shown(drill, tmp_path):
    report = write_report(drill.workspace, tmp_path / "lake.html", rows=True)
    page = Path(report.file).read_text()
    (published,) = (r for r in report.contents["releases"] if r["release"] == 2)
    added = {table.name: table.total("added") for table in published["compared"]}
    assert added[UPDATES] == LINES
    assert "outage_number" in page
