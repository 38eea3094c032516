"""The job `switch`, as Dagster executes it, in this process."""

import pytest

from backfill_assets.lake.channels import ChannelHistory
from backfill_assets.lake.pointers import open_channel
from backfill_assets.publish.release_live import release_live
from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, A, B, SmallLake


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path)
    for table in (A, B):
        lake.write(dict.fromkeys(DAYS, 1), table=table.name)
    release_live(lake.workspace, who="sensor")
    return lake


def test_a_run_switches_the_readers_of_a_channel_in_the_name_of_who_launched_it(lake):
    result = executed(
        "switch", lake.workspace, table=A.name, to=B.name, channel="candidate", reason="new logic"
    )
    assert metadata(result) == {"switched": True, "readers get": B.name}
    made = open_channel(str(lake.root), "candidate")
    assert (made.number, made.switches) == (1, {A.name: B.name})
    assert open_channel(str(lake.root)).switches == {}
    now = ChannelHistory(str(lake.root)).now()
    assert (now.kind, now.who, now.reason) == ("channel", "ada", "new logic")


def test_what_cannot_be_switched_fails_the_run_with_its_message_and_no_retry(lake, golden):
    result = executed("switch", lake.workspace, table=A.name, to="raw/z")
    golden(failure(result))
    assert metadata(result)["error"] == "UsageError"
    assert ChannelHistory(str(lake.root)).documents.newest() is None
