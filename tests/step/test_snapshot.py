"""What a step begins with, read from a ledger that is made up. No Spark, no tables."""

from dataclasses import replace

import pytest

from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.step.due import failed_partitions, snapshot
from backfill_assets.step.request import StepRequest
from tests.worlds.chain import CALENDAR, built, history, outages, raw, up_to_date, updates
from tests.worlds.deliveries import day, days
from tests.worlds.recorded import write_days
from tests.worlds.tables import workspace_of


def test_an_ancestor_that_is_up_to_date_again_blocks_nothing(tmp_path):
    """Its own inputs are not inputs of the step: without their builds it would look as if they had
    changed, for ever.
    """
    workspace = workspace_of([raw, updates, outages, history], CALENDAR, str(tmp_path))
    accepted = up_to_date(
        outages, [3], built(updates, 3, 4, 5, 6, 7, day_fingerprints={str(day(3)): "p"})
    )
    failed = replace(accepted[outages.name, day(3)], outcome="failed", plan="p")
    Ledger(str(tmp_path)).append(list(accepted.values()))
    Ledger(str(tmp_path)).append(
        [replace(failed, at=Ledger(str(tmp_path)).next_time(outages.name))]
    )
    request = StepRequest("r", plan="p", planned={(outages.name, day(3)), (history.name, day(3))})
    start = snapshot(history, [day(3)], request, workspace)
    builds = start.builds
    assert builds.last[outages.name, day(3)].outcome == "failed"
    assert failed_partitions(history, request, builds, workspace) == set()
    assert (start.inputs, start.version) == ({history.name: -1, outages.name: -1}, -1)


@pytest.mark.parametrize(("write_mode", "found"), [("overwrite", []), ("merge", [4])])
def test_rows_that_no_build_has_accepted_are_not_kept(tmp_path, write_mode, found):
    ours, theirs = (Build(outages.name, day(n), "accepted", "r", "1", rows=2) for n in (3, 4))
    write_days(tmp_path, ours)
    write_days(tmp_path, theirs, ours=False)
    workspace = workspace_of([raw, updates, outages], CALENDAR, str(tmp_path))
    start = snapshot(outages, days(3, 4, 5), StepRequest("r", write_mode=write_mode), workspace)
    assert start.version == 1
    assert start.builds.rewritten == {
        (outages.name, day(n)): "it has rows that no build has accepted" for n in found
    }
