"""The benchmark of a long history does what it says, on a few days."""

import pytest

from tests.benchmarks.growth import ACTS, make, workspace_at


@pytest.mark.lake
def test_every_act_runs_on_a_few_days(tmp_path):
    make(tmp_path, 20, 20, 2)
    for act in ACTS.values():
        act(workspace_at(tmp_path, 20, 20))
