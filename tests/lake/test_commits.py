"""The commits of a table, each under its own version: of an earlier one too, and while others
commit.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from backfill_assets.lake.delta import read_commits
from backfill_assets.lake.integrity import damaged
from tests.worlds.small_lake import DAYS, A, SmallLake


@pytest.fixture
def folder(tmp_path) -> str:
    for number in range(4):
        properties = CommitProperties(custom_metadata={"userMetadata": f"commit {number}"})
        write_deltalake(
            str(tmp_path), pa.table({"a": [number]}), mode="append", commit_properties=properties
        )
    return str(tmp_path)


def named(commits) -> list[tuple[int, str, str]]:
    return [(commit["version"], commit["userMetadata"], commit["operation"]) for commit in commits]


def test_each_commit_has_its_own_version_newest_first(folder):
    assert named(read_commits(folder, 2)) == [(n, f"commit {n}", "WRITE") for n in (2, 1, 0)]
    assert named(read_commits(folder, 3, 2)) == [(n, f"commit {n}", "WRITE") for n in (3, 2)]


def test_what_the_log_has_not_kept_is_left_out(folder):
    DeltaTable(folder).create_checkpoint()
    Path(folder, "_delta_log", f"{1:020}.json").unlink()
    assert [commit["version"] for commit in read_commits(folder, 3)] == [3, 2]


def test_a_day_is_judged_at_an_earlier_version_by_the_commits_up_to_it(tmp_path):
    """What `DeltaTable.history` of an earlier version answers with are the newest commits, under
    wrong numbers.
    """
    lake = SmallLake(tmp_path)
    first = lake.write(dict.fromkeys(DAYS, 1))
    for value in (2, 3):
        lake.write({DAYS[0]: value})
    suspected = [build for build in first if build.day == DAYS[1]]
    for build in suspected:
        build.data_files = ""  # as of a build that was recovered from its commit: its log decides
    assert damaged(str(tmp_path / A.name), suspected, version=0) == {}
