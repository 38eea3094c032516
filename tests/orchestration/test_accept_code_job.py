"""The job `accept_code`, as Dagster executes it, in this process."""

from typing import Any

from backfill_assets.calendar import ranges
from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, A, four_days


def test_a_run_keeps_days_of_earlier_code_in_the_name_of_who_launched_it(tmp_path, golden):
    lake = four_days(tmp_path)
    config: dict[str, Any] = {"target": A.name, "before": str(DAYS[2]), "reason": "new prices"}
    result = executed("accept_code", lake.workspace, **config)
    assert metadata(result) == {"code": A.version, "days": ranges(DAYS[:2])}
    kept = [build for build in lake.workspace.lake.ledger.builds() if build.accepted_code]
    assert [build.day for build in kept] == DAYS[:2]
    assert {(build.who, build.reason) for build in kept} == {("ada", "new prices")}
    golden(failure(executed("accept_code", lake.workspace, **config)))
