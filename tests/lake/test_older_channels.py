"""Channels of releases that an older version of this package wrote: each reader gets what they got
then, until someone moves the channel. No Spark.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import UsageError
from backfill_assets.lake.pointers import open_channel, pointer_lines
from backfill_assets.lake.releases import RELEASE_SCHEMA, Releases, release_records
from backfill_assets.publish.pointers import follow, pin
from tests.worlds.recorded import add_release, table_versions

OLDER = pa.schema([each for each in RELEASE_SCHEMA if each.name != "pointers"])
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def older(root: str, *rows: dict[str, Any]) -> Releases:
    """A lake with these releases: the kind of each, the version of its table, and its channels."""
    DeltaTable.create(
        f"{root}/_releases", OLDER, configuration={"delta.dataSkippingStatsColumns": "number"}
    )
    for number, row in enumerate(rows, start=1):
        known = {"number": number, "at": NOON + timedelta(minutes=number), "who": "bo"}
        texts = {"reason": f"reason {number}", "switches": {}, "recorded": {}, "plans": []}
        values = known | texts | row
        texts = {
            name: json.dumps(value)
            for name, value in values.items()
            if isinstance(value, dict | list)
        }
        table = pa.Table.from_pylist([values | texts], schema=OLDER)
        write_deltalake(f"{root}/_releases", table, mode="append")
    return Releases(root)


def row(kind: str, version: int, channels: dict[str, int], **more: Any) -> dict[str, Any]:
    return {"kind": kind, "tables": table_versions(version), "channels": channels} | more


def gets(releases: Releases) -> list[int]:
    """The version of the table that readers of stable, and of candidate, get."""
    opened = [open_channel(releases.root, channel) for channel in ("stable", "candidate")]
    return [each.tables["staging/o"].version for each in opened]


POINTED_BACK = [
    row("live", 1, {"stable": 1}),
    row("live", 2, {"stable": 2}),
    row("channel", 2, {"stable": 1}),
]
TRIED = [
    row("live", 1, {"stable": 1}),
    row("publish", 2, {"stable": 1, "candidate": 2}, plans=["a1"]),
]


@pytest.mark.parametrize(
    ("rows", "versions", "later"),
    [
        ([row("live", 1, {"stable": 1})], [1, 1], [9, 9]),
        (POINTED_BACK, [1, 1], [1, 1]),
        ([*POINTED_BACK, row("retired", 2, {"stable": 1})], [1, 1], [1, 1]),
        (TRIED, [1, 2], [1, 2]),
        ([*TRIED, row("live", 3, {"stable": 1, "candidate": 3})], [1, 3], [1, 3]),
        ([*TRIED, row("channel", 2, {"stable": 2, "candidate": 2})], [2, 2], [9, 9]),
        ([*TRIED, row("live", 3, {"stable": 3, "candidate": 2})], [3, 2], [9, 2]),
    ],
    ids=[
        "one channel",
        "pointed back",
        "pointed back, and retired since",
        "a plan is tried",
        "a plan is tried, and a night",
        "a plan was tried",
        "candidate was left behind",
    ],
)
def test_readers_get_what_they_got_and_only_those_who_had_the_newest_follow(
    tmp_path, rows, versions, later
):
    releases = older(str(tmp_path), *rows)
    assert gets(releases) == versions
    add_release(releases, 9)
    assert gets(releases) == later
    for channel in ("candidate", "stable"):
        follow(releases.root, channel, who="ada", reason="")
    assert gets(releases) == [9, 9]
    assert releases.newest().pointers == {}  # type: ignore[union-attr]


def test_a_channel_that_a_person_pointed_back_is_pinned_by_that_person(tmp_path):
    releases = older(str(tmp_path), *POINTED_BACK, row("retired", 2, {"stable": 1}))
    (line,) = pointer_lines(releases.root)
    assert line.startswith(
        "stable is pinned to release 1 by bo on 2026-01-01 12:03 UTC: reason 3. `backfill release"
    )
    assert not pin(releases.root, 1, "stable", who="ada", reason="")


def test_switches_of_each_channel_stay(tmp_path):
    releases = older(
        str(tmp_path),
        row("live", 1, {"stable": 1}),
        row("switch", 1, {"stable": 2}, switches={"staging/o": "staging/p"}),
        row("switch", 1, {"stable": 2, "candidate": 3}),
    )
    switches = [open_channel(releases.root, name).switches for name in ("stable", "candidate")]
    assert switches == [{"staging/o": "staging/p"}, {"staging/o": "staging/o"}]
    assert pointer_lines(releases.root) == []
    add_release(releases, 9)
    assert gets(releases) == [9, 9]
    again = [open_channel(releases.root, name).switches for name in ("stable", "candidate")]
    assert again == switches


def test_stable_of_a_lake_that_only_candidate_reads_begins_with_the_next_release(tmp_path):
    releases = older(str(tmp_path), row("publish", 1, {"candidate": 1}, plans=["a1"]))
    with pytest.raises(UsageError, match="There is no release in"):
        open_channel(releases.root)
    assert open_channel(releases.root, "candidate").number == 1
    add_release(releases, 9)
    assert gets(releases) == [9, 9]


def test_an_older_release_names_its_plan_in_its_reason(tmp_path):
    releases = older(
        str(tmp_path), row("publish", 1, {"stable": 1}, plans=None, reason="plan a1: a new rule")
    )
    add_release(releases, 9)
    assert (releases.number_of_plan("a1"), release_records(releases.root).schema) == (
        1,
        RELEASE_SCHEMA,
    )
