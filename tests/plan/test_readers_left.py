"""What a plan leaves outdated, read from a lake whose builds are made up. No Spark."""

from dataclasses import replace

import pytest

from backfill_assets.lake.history import latest
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.plan.plan import Plan, make
from backfill_assets.plan.remaining import readers_left, readers_lines
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind, Selection
from backfill_assets.step.inputs import InputReader
from backfill_assets.tables.graph import Graph
from tests.worlds.deliveries import day, days
from tests.worlds.tables import CALENDAR, table, workspace_of

pytestmark = pytest.mark.lake

A = table("raw/a")
B = table("raw/b", A, first=-2, last=0)
TABLES = (A, B)


def built(lake: str, of, *numbers: int, by: str, fingerprint: str = "f") -> None:
    ledger = Ledger(lake)
    for n in numbers:
        accepted = latest(ledger, dict.fromkeys([A.name, B.name])).accepted
        inputs = InputReader(of, accepted, CALENDAR).fingerprints(day(n))
        ledger.append(
            [
                Build(
                    of.name,
                    day(n),
                    "accepted",
                    "r",
                    "1",
                    fingerprint=f"{fingerprint}{n}",
                    inputs=inputs,
                    plan=by,
                )
            ]
        )


def plan_of(*partitions) -> Plan:
    return make(
        Selection(dict.fromkeys(partitions, Reason(ReasonKind.MISSING))),
        Graph(TABLES, CALENDAR),
        PlanOptions(),
    )


def test_readers_outside_the_plan_are_named_with_the_command(tmp_path, golden):
    lake = str(tmp_path)
    plan = plan_of((A.name, day(3)), (B.name, day(3)))
    built(lake, A, 1, 2, 3, 4, 5, by="earlier")
    built(lake, B, 3, 4, 5, by="earlier")
    built(lake, A, 3, by=plan.id, fingerprint="new")
    built(lake, B, 3, by=plan.id)
    readers = readers_left(plan, workspace_of(TABLES, CALENDAR, lake))
    outdated = readers.outdated
    assert outdated == {B.name: days(4, 5)}
    golden("\n".join(readers_lines(readers, 2)), "few days")
    golden("\n".join(readers_lines(readers, 1)), "many days")


def test_later_builds_of_others_hide_no_outdated_reader(tmp_path):
    lake = str(tmp_path)
    plan = plan_of((A.name, day(3)), (B.name, day(3)))
    built(lake, A, 1, 2, 3, 4, 5, by="earlier")
    built(lake, B, 3, 4, 5, by="earlier")
    built(lake, A, 3, by=plan.id, fingerprint="new")
    built(lake, B, 3, by=plan.id)
    Ledger(lake).append(
        [Build(A.name, day(3), "unchanged", "r", "1", fingerprint="new3", plan="other")]
    )
    built(lake, B, 4, by="other")
    readers = readers_left(plan, workspace_of(TABLES, CALENDAR, lake))
    assert (readers.outdated, readers.up_to_date) == ({B.name: days(5)}, [(B.name, day(4))])


def test_days_that_came_out_unchanged_have_no_readers_to_look_at(tmp_path):
    lake = str(tmp_path)
    plan = plan_of((A.name, day(3)))
    built(lake, A, 1, 2, 3, 4, 5, by="earlier")
    built(lake, B, 3, 4, 5, by="earlier")
    Ledger(lake).append(
        [Build(A.name, day(3), "unchanged", "r", "1", fingerprint="f3", plan=plan.id)]
    )
    readers = readers_left(plan, workspace_of(TABLES, CALENDAR, lake))
    assert (readers.outdated, list(readers.up_to_date)) == ({}, [])


def test_a_plan_whose_days_came_out_the_same_leaves_nothing_outdated(tmp_path):
    lake = str(tmp_path)
    plan = plan_of((A.name, day(3)))
    built(lake, A, 1, 2, 3, 4, 5, by="earlier")
    built(lake, B, 3, 4, 5, by="earlier")
    built(lake, A, 3, by=plan.id)
    assert readers_left(plan, workspace_of(TABLES, CALENDAR, lake)).outdated == {}
    assert (
        readers_left(replace(plan, repeat=1), workspace_of(TABLES, CALENDAR, lake)).outdated == {}
    )


def test_a_table_that_the_project_does_not_have_any_more_is_left_out(tmp_path):
    lake = str(tmp_path)
    plan = plan_of((A.name, day(3)), (B.name, day(3)))
    built(lake, A, 1, 2, 3, by="earlier")
    built(lake, B, 3, by=plan.id)
    assert readers_left(plan, workspace_of([A], CALENDAR, lake)).outdated == {}
