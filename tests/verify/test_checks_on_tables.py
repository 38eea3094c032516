"""The checklist on Delta tables: live with a night's builds, and a rebuild of two of its days in a
root of its own.
"""

from dataclasses import replace
from datetime import date
from pathlib import Path

from backfill_assets.lake.history import latest
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.slices import rows_at
from backfill_assets.verify.builds import TableDays, table_days
from backfill_assets.verify.checks import RebuiltTable, SideReader, checklist
from tests.worlds.small_lake import DAYS, A, SmallLake

PLANNED = [DAYS[1], DAYS[2]]


def accepted(lake: SmallLake) -> dict[date, Build]:
    return {
        day: build
        for (_, day), build in latest(lake.workspace.lake.ledger, {A.name: None}).accepted.items()
    }


def live_days(lake: SmallLake) -> TableDays:
    store = lake.workspace.lake
    return table_days(store.path(A.name), store.version(A.name), accepted(lake))


def outcomes(live: SmallLake, shadow: SmallLake, opened: TableDays, version: int) -> dict[str, str]:
    """The checklist now. Live has the rows of `version`, from when the rebuild began."""

    def rebuilt_rows(name, days, columns):
        return rows_at(
            str(shadow.root / name), shadow.workspace.lake.version(name), "day", days, columns
        )

    def live_rows(name, days, columns):
        return rows_at(str(live.root / name), version, "day", days, columns)

    built = accepted(shadow)
    in_shadow = set(shadow.values())
    table = replace(A, key=["n"])
    rebuilt = RebuiltTable(table, "p1", "2", PLANNED, built, opened, live_days(live), in_shadow)
    lines = checklist([rebuilt], SideReader(live_rows, {}), SideReader(rebuilt_rows, {}))
    return {line.name.replace(f" {A.name}", ""): line.outcome.value for line in lines}


def test_a_rebuild_is_compared_with_the_version_of_live_that_it_began_on(tmp_path: Path):
    live = SmallLake(tmp_path / "live")
    shadow = SmallLake(tmp_path / "shadow")
    live.write({DAYS[0]: 5, DAYS[1]: 1, DAYS[2]: 1})
    opened = live_days(live)
    version = live.workspace.lake.version(A.name)
    shadow.write({DAYS[1]: 1, DAYS[2]: 3}, plan="p1", code="2")
    # A value stands as often as it says, so that the key `n` is not unique where it is 3; 1 became
    # 3 on the day that changed.
    expected = {
        "days built": "passed",
        "code version": "passed",
        "null shares": "passed",
        "unique keys": "failed",
        "drift": "passed",
        "days outside the plan": "passed",
        "changes": "decision",
    }
    assert outcomes(live, shadow, opened, version) == expected
    # What a night writes meanwhile, of days of the plan or of others, changes none of it.
    live.write({DAYS[2]: 3, DAYS[3]: 1})
    assert outcomes(live, shadow, opened, version) == expected
    live.write({DAYS[0]: 6}, plan="p1")
    assert outcomes(live, shadow, opened, version) == expected | {"days outside the plan": "failed"}


def test_a_rebuild_that_came_to_the_same_rows_passes_without_reading_any(tmp_path: Path):
    live = SmallLake(tmp_path / "live")
    shadow = SmallLake(tmp_path / "shadow")
    live.write({DAYS[0]: 1, DAYS[1]: 1, DAYS[2]: 1})
    opened = live_days(live)
    shadow.write({DAYS[1]: 1, DAYS[2]: 1}, plan="p1", code="2")
    # Which is not there: nothing of live is read.
    found = outcomes(live, shadow, opened, version=99)
    assert {name for name, outcome in found.items() if outcome == "skipped"} == {
        "null shares",
        "drift",
    }
    assert set(found.values()) == {"passed", "skipped"}
