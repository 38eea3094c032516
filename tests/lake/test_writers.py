"""Whose rows a partition holds, after others have found them as they were, or have put them back."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from backfill_assets.lake.history import writers
from backfill_assets.lake.ledger import Build
from tests.worlds.deliveries import day

BY_PLAN = Build(
    "a",
    day(0),
    "accepted",
    "r1",
    "1",
    "x",
    7,
    plan="p",
    delta_version=1,
    data_files="f1",
    at=datetime(2026, 1, 1, tzinfo=UTC),
)
BY_NIGHT = replace(BY_PLAN, run="r2", plan="", fingerprint="y", delta_version=2, data_files="f2")


def put_back(build: Build, **now: Any) -> Build:
    return replace(build, outcome="restored", run="rollback", plan="", **now)


@pytest.mark.parametrize(
    ("builds", "wrote"),
    [
        pytest.param([BY_PLAN, BY_NIGHT], ["r1", "r2"], id="each its own"),
        pytest.param(
            [BY_PLAN, replace(BY_PLAN, outcome="unchanged", run="r3", plan="q")],
            ["r1", "r1"],
            id="found as they were",
        ),
        pytest.param(
            [BY_PLAN, BY_NIGHT, put_back(BY_PLAN, delta_version=3)],
            ["r1", "r2", "r1"],
            id="the same files",
        ),
        pytest.param(
            [BY_PLAN, BY_NIGHT, put_back(BY_PLAN, delta_version=3, data_files="compacted")],
            ["r1", "r2", "r1"],
            id="files that were compacted before they were put back",
        ),
        pytest.param(
            [
                replace(BY_PLAN, data_files="", rows=0),
                BY_NIGHT,
                put_back(BY_PLAN, delta_version=3, data_files="", rows=0),
            ],
            ["r1", "r2", "r1"],
            id="a day that was emptied",
        ),
        pytest.param(
            [BY_PLAN, replace(BY_NIGHT, fingerprint="x"), put_back(BY_PLAN, delta_version=3)],
            ["r1", "r2", "r1"],
            id="of two with the same rows, the one with these files",
        ),
        pytest.param(
            [put_back(BY_PLAN)], ["rollback"], id="rows that nobody is known to have written"
        ),
    ],
)
def test_the_rows_of_a_build_are_those_of_the_build_that_wrote_them(builds, wrote):
    assert [build.run for build in writers(builds)] == wrote
