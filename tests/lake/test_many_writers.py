"""Processes that commit to one local table at once lose no commit and record each correctly."""

import pytest
from deltalake import DeltaTable

from backfill_assets.lake.lake import Lake
from tests.worlds.deliveries import day
from tests.worlds.processes import COMMITS, WRITERS, all_at_once, numbers

MARKS = {"acts": "scale", "steps": "scale", "many acts": "nightly", "many steps": "nightly"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=getattr(pytest.mark, MARKS[kind])) for kind in COMMITS]
)
def test_what_several_processes_commit_at_once_is_all_there_and_recorded(tmp_path, spark, kind):
    all_at_once(kind, tmp_path)
    count = WRITERS * COMMITS[kind]
    every = [day(n) for n in range(count)]
    table = DeltaTable(str(tmp_path / numbers.name))
    rows = table.to_pyarrow_table().to_pylist()
    assert sorted((row["arrival_day"], row["number"]) for row in rows) == list(
        zip(every, range(count), strict=True)
    )
    committed = [commit["version"] for commit in table.history() if "userMetadata" in commit]
    builds = Lake(str(tmp_path)).ledger.builds()
    assert sorted(build.day for build in builds) == every
    assert sorted(build.delta_version for build in builds) == sorted(committed)
    assert {(build.outcome, build.rows) for build in builds} == {("accepted", 1)}
