"""What was made from rows of a plan that are gone, table by table, until it is built again. No
Spark.
"""

from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.publish.channels import _followed, has_derived_rows
from tests.worlds.deliveries import day

DAY = str(day(0))
A = "raw/a"
B = "staging/b"
C = "features/c"


def made(
    table: str, fingerprint: str, *, of: str = "", outcome: str = "accepted", **fields
) -> Build:
    """A build of the day; `of`: the table and the fingerprint that it read."""
    name, _, read = of.partition(" ")
    inputs = {name: {DAY: read}} if of else {}
    return Build(table, day(0), outcome, "r", "1", fingerprint=fingerprint, inputs=inputs, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("builds", "tables"),
    [
        pytest.param([made(B, "b7", of=f"{A} a7")], [B], id="by a table that reads it"),
        pytest.param([made(B, "b2", of=f"{A} a2")], [], id="not by what read other rows"),
        pytest.param(
            [made(B, "b7", of=f"{A} a7"), made(C, "c7", of=f"{B} b7")],
            [B, C],
            id="by way of another table",
        ),
        pytest.param(
            [made(B, "b7", of=f"{A} a7"), made(C, "c7", of=f"{B} b7"), made(B, "b2", of=f"{A} a2")],
            [C],
            id="until built again",
        ),
        pytest.param(
            [made(B, "b2", of=f"{A} a7", outcome="unchanged")], [], id="not what came out as it was"
        ),
        pytest.param(
            [
                made(B, "b7", of=f"{A} a7"),
                made(B, "b7", of=f"{A} a2", outcome="unchanged"),
                made(C, "c7", of=f"{B} b7"),
            ],
            [],
            id="not what comes out so from other rows too",
        ),
        pytest.param(
            [made(B, "b7", of=f"{A} part of a7")],
            [B],
            id="by a table that reads the rows about one day",
        ),
    ],
)
def test_rows_are_made_from_what_is_gone_as_long_as_nothing_was_built_in_their_place(
    builds, tables
):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for n, build in enumerate(builds):
        build.at = at + timedelta(minutes=n)
    _, made_from_it = _followed({(A, DAY): {"a7", "part of a7"}}, builds)
    assert {table for (table, _), is_made in made_from_it.items() if is_made} == set(tables)


def test_it_is_followed_from_table_to_table_by_other_days(tmp_path):
    plan = Plan({A: "1"}, {A: {day(0): Reason(ReasonKind.FORCED)}}, [], PlanOptions())
    ledger = Ledger(str(tmp_path))
    lake = str(tmp_path)
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def build(table: str, number: int, fingerprint: str, inputs=None, **fields) -> bool:
        minutes = len(ledger.builds())
        built = Build(
            table,
            day(number),
            fields.pop("outcome", "accepted"),
            "r",
            "1",
            fingerprint=fingerprint,
            **fields,
        )
        built.at = at + timedelta(minutes=minutes)
        built.inputs = inputs or {}
        ledger.append([built])
        return has_derived_rows(lake, plan)

    assert not build(A, 0, "a2")
    assert not build(A, 0, "a7", plan=plan.id)
    assert not build(B, 3, "b7", {A: {DAY: "a7"}})  # made from what is there
    assert not build(C, 6, "c7", {B: {str(day(3)): "b7"}})
    assert build(A, 0, "a2", outcome="restored")
    assert build(B, 3, "b2", {A: {DAY: "a2"}})
    assert not build(C, 6, "c2", {B: {str(day(3)): "b2"}})
