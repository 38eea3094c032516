"""Lakes that versions of the package have written are read, finished and continued by this one.

Each lake in `golden_lakes` has the same story: releases, a rolled-back plan, a retired release, an
open plan, a preview, and a publication that was killed between the commits of its two tables.
`make_golden_lake.py` tells it. The rows of readers are compared with the oracle in the archive, and
with DuckDB over the files.
"""

import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from backfill_assets.errors import UsageError
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.recorded_acts import Acts
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Release, Releases
from backfill_assets.lake.storage import FORM
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import WorkState, remaining_reader
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.plan.store import OPEN, PUBLISHED, ROLLED_BACK
from backfill_assets.sources.archives.loaded import loaded_archives
from backfill_assets.sources.archives.loading import load_archives
from backfill_assets.sources.protocol import require_usable
from backfill_assets.verify.verify import Verdicts
from tests.worlds.golden_lakes import (
    ARCHIVES,
    PAST,
    QUERY,
    SALES,
    GoldenLake,
    newest_rows,
    rows_at,
    unpacked,
)
from tests.worlds.newer_lake import contents_of
from tests.worlds.small_lake import (
    DAYS,
    A,
    B,
    everywhere,
    gets,
    maintain_later,
    preview,
    publish,
    publish_verified,
    release_live_now,
    verdict_of,
)


@pytest.fixture(params=ARCHIVES, ids=lambda archive: archive.name.partition(".")[0])
def golden_lake(request: pytest.FixtureRequest, tmp_path: Path) -> GoldenLake:
    return unpacked(request.param, tmp_path)


def plan_of(given: GoldenLake, name: str) -> Plan:
    return given.lake.plans.read(given.oracle["plans"][name])


def rows_of(given: GoldenLake, release: Release) -> list[dict]:
    """The value of each day in both tables of a release, as its readers get them."""
    return [
        values_in(ReleasedTable(str(given.lake.root), release, name)) for name in (A.name, B.name)
    ]


def values_in(table: ReleasedTable) -> dict:
    rows = table.dataset().to_table().to_pydict()
    return dict(sorted(zip(rows["day"], rows["n"], strict=True)))


def split_files(given: GoldenLake) -> dict[str, bytes]:
    """The files of days that sources split, and their records without archives."""
    files = contents_of(Path(given.area.lake, "_archived"))
    return {name: contents for name, contents in files.items() if "archives.json" not in name}


def finish(given: GoldenLake) -> None:
    """Let the next writer finish the publication that was killed."""
    given.lake.write({DAYS[-1]: given.values("finished")[DAYS[-1]]})
    assert Acts(str(given.lake.root)).unfinished() is None


def test_every_form_up_to_this_one_has_a_golden_lake():
    assert [path.name for path in ARCHIVES] == [f"form-{n}.tar.xz" for n in range(1, FORM + 1)]
    assert all(path.stat().st_size < 50_000 for path in ARCHIVES)


def test_pinned_readers_get_the_rows_of_their_release(golden_lake):
    releases = Releases(str(golden_lake.lake.root))
    for number in golden_lake.oracle["releases"]:
        expected = golden_lake.values("releases", number)
        release = releases.readable(int(number))
        assert rows_of(golden_lake, release) == [expected, expected]
        of_files = [
            rows_at(Path(golden_lake.lake.root, version.path), version.version)
            for version in release.tables.values()
        ]
        assert of_files == [expected, expected]


def test_a_retired_release_is_refused(golden_lake):
    for number in golden_lake.oracle["retired"]:
        with pytest.raises(UsageError, match="was retired"):
            Releases(str(golden_lake.lake.root)).readable(number)


def test_readers_of_the_candidate_get_the_preview(golden_lake):
    assert gets(golden_lake.lake, "candidate") == golden_lake.values("candidate")


def test_plans_are_in_their_states_and_the_open_one_has_its_remaining_days(golden_lake):
    lake = golden_lake.lake
    plans = golden_lake.oracle["plans"]
    assert lake.plans.open() == [plans["open"]]
    states = {name: lake.plans.state(plan) for name, plan in plans.items()}
    # The publication was decided, so it counts although it has not ended.
    assert states == {
        "open": OPEN,
        "previewed": "done",
        "half published": PUBLISHED,
        "rolled back": ROLLED_BACK,
    }
    verdict = Verdicts(str(lake.root)).newest(plans["half published"])
    assert verdict
    assert verdict.passed
    remaining = remaining_reader(plan_of(golden_lake, "open"), lake.workspace)({}, {})
    pending = remaining.pending_days(remaining.of(WorkState.PENDING))
    assert {table: [str(at) for at in days] for table, days in pending.items()} == (
        golden_lake.oracle["remaining"]
    )


def test_every_build_can_be_read_and_every_day_has_a_state(golden_lake):
    lake = golden_lake.lake
    finish(golden_lake)
    latest = latest_builds(lake.workspace)
    status = status_of(lake.workspace, lake.tables, DAYS, latest=latest).partitions
    assert {at.state for at in status.values()} == {State.UP_TO_DATE}
    assert set(status) == {(name, at) for name in (A.name, B.name) for at in DAYS}
    builds = Ledger(str(lake.root)).builds()
    assert {build.outcome for build in builds} >= {"accepted", "restored", "failed", "unchanged"}


def test_the_next_writer_finishes_the_publication_that_was_killed(golden_lake):
    lake = golden_lake.lake
    finish(golden_lake)
    expected = golden_lake.values("finished")
    assert everywhere(lake) == expected
    assert [newest_rows(Path(lake.root, name)) for name in (A.name, B.name)] == [expected, expected]


def test_the_ledger_is_made_again_from_the_commits(golden_lake):
    lake = golden_lake.lake
    shutil.rmtree(lake.root / "_ledger")
    finish(golden_lake)
    assert everywhere(lake) == golden_lake.values("finished")
    lake.roll_back(plan_of(golden_lake, "half published"))
    assert everywhere(lake) == golden_lake.values("rolled back")


def test_typing_publish_again_finishes_it_too(golden_lake):
    published = publish(golden_lake.lake, plan_of(golden_lake, "half published"))
    assert published.release
    assert everywhere(golden_lake.lake) == golden_lake.values("finished")


def test_the_open_plan_is_resumed_verified_and_published(golden_lake):
    lake = golden_lake.lake
    plan = plan_of(golden_lake, "open")
    lake.write(golden_lake.values("values of the open plan"), table=B.name, into=plan)
    assert not remaining_reader(plan, lake.workspace)({}, {}).of(WorkState.PENDING)
    lake.plans.note(plan.id, "ended", datetime.now(UTC), ending="done")
    finish(golden_lake)
    verdict_of(plan, lake.workspace)
    publish_verified(lake, plan)
    assert everywhere(lake) == golden_lake.values("resumed")


def test_the_preview_is_published_and_what_was_published_is_rolled_back(golden_lake):
    lake = golden_lake.lake
    finish(golden_lake)
    preview(lake, plan_of(golden_lake, "previewed"))
    publish(lake, plan_of(golden_lake, "previewed"))
    assert everywhere(lake) == golden_lake.values("all published")
    lake.roll_back(plan_of(golden_lake, "previewed"))
    assert everywhere(lake) == golden_lake.values("finished")
    lake.roll_back(plan_of(golden_lake, "half published"))
    assert everywhere(lake) == golden_lake.values("rolled back")


def test_what_sources_keep_is_read_and_not_asked_for_again(golden_lake):
    area = golden_lake.area
    oracle = golden_lake.oracle
    before = split_files(golden_lake)
    days = [date.fromisoformat(at) for at in oracle["sales"]]
    delivered = require_usable(SALES.delivered(area, days))
    assert {str(at): sum(of.files.values()) for at, of in delivered.items()} == oracle["sales"]
    archives = loaded_archives(area, PAST.name)
    assert {
        at: sum(contents.lines for contents in archives.of_day(date.fromisoformat(at)).values())
        for at in oracle["past"]
    } == oracle["past"]
    # The archive has other times on this disk, so it is read again, and splits as before.
    assert [loaded.problem for loaded in load_archives(PAST, area)] == [""]
    stored = golden_lake.answers.stored([QUERY])
    assert {
        str(at): [row for answer in answers for row in golden_lake.answers.read(answer)]
        for at, answers in stored.items()
    } == oracle["weather"]
    assert split_files(golden_lake) == before


@pytest.mark.parametrize("days", [0, 500], ids=["now", "after the window"])
def test_maintenance_keeps_what_readers_have(golden_lake, days):
    lake = golden_lake.lake
    finish(golden_lake)
    for _ in range(4):
        release_live_now(lake)
    done = maintain_later(lake, days)
    assert done.problems == []
    assert everywhere(lake) == golden_lake.values("finished")
    kept = {release.number for release in done.kept_releases}
    for number in kept & set(map(int, golden_lake.oracle["releases"])):
        expected = golden_lake.values("releases", str(number))
        release = Releases(str(lake.root)).readable(number)
        assert rows_of(golden_lake, release) == [expected, expected]
    with pytest.raises(UsageError, match="was retired"):
        Releases(str(lake.root)).readable(1)
