"""The comparison with other tools finds wrong days, and this package's side leaves none."""

import shutil
from datetime import timedelta

import pytest

from backfill_assets.datasets.outages.sample import FIRST_DAY
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from tests.benchmarks.peers.deliveries import correct, deliver, wrong_days
from tests.benchmarks.peers.tools import PROJECTS, rows_in
from tests.worlds.projects import opened

DAYS = [FIRST_DAY + timedelta(days=n) for n in range(9)]


@pytest.mark.scale
def test_a_corrected_day_makes_seven_weekly_rows_wrong_until_they_are_built(tmp_path, spark):
    folder = tmp_path / "project"
    shutil.copytree(PROJECTS / "ours", folder)
    landing = tmp_path / "landing"
    workspace = opened(folder, landing=landing, last_day=DAYS[-1])

    def built() -> dict:
        for table in workspace.tables:
            Step(table, workspace, StepRequest(run="a run"), lambda: spark).run(DAYS)
        return rows_in(folder / ".backfill" / "lake")

    deliver(landing, DAYS)
    rows = built()
    assert wrong_days(landing, rows) == {"events": [], "daily": [], "weekly": []}
    correct(landing, DAYS[1:2])
    corrected = DAYS[1:2]
    found = wrong_days(landing, rows)
    assert found == {"events": corrected, "daily": corrected, "weekly": DAYS[1:8]}
    assert wrong_days(landing, built()) == {"events": [], "daily": [], "weekly": []}
