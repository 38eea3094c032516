"""The form of a lake: a newer lake is refused before anything is written, also by a process that
has opened the lake before it was marked.
"""

import pytest

from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.recorded_acts import Acts
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.storage import FORM
from backfill_assets.plan.plan import Plan
from backfill_assets.reading import open_release
from tests.worlds.newer_lake import contents_of, mark_newer
from tests.worlds.small_lake import (
    DAYS,
    SmallLake,
    copy_of,
    maintain_later,
    preview,
    publish,
    rebuilt_in_shadow,
    release_live_now,
    released,
    released_lake,
)

ACTS = {
    "a build": lambda lake, plan: lake.write({DAYS[0]: 9}),
    "a build in a shadow": lambda lake, plan: lake.write({DAYS[0]: 9}, into=plan),
    "a failed build": lambda lake, plan: lake.fail(DAYS[0]),
    "a release": lambda lake, plan: release_live_now(lake),
    "a preview": preview,
    "a publication": publish,
    "a rollback": lambda lake, plan: lake.roll_back(plan),
    "maintenance": lambda lake, plan: maintain_later(lake, 500),
    "a reader": lambda lake, plan: released(lake),
    "a reader of a release": lambda lake, plan: open_release(1),
    "a reader of a preview": lambda lake, plan: open_release(preview=plan.id),
}


@pytest.fixture
def opened(tmp_path, monkeypatch) -> tuple[SmallLake, Plan]:
    """A lake with a plan in a shadow. This process has opened it, and then it became newer."""
    lake = copy_of(released_lake, tmp_path)
    monkeypatch.setenv("BACKFILL_LAKE", str(lake.root))
    plan = rebuilt_in_shadow(lake, {DAYS[0]: 7})
    preview(lake, plan)
    mark_newer(lake.root)
    return lake, plan


@pytest.mark.parametrize("act", ACTS)
def test_an_open_lake_that_became_newer_is_refused_before_it_is_changed(opened, act):
    lake, plan = opened
    before = contents_of(lake.root)
    with pytest.raises(TableUnreadable, match="newer version"):
        ACTS[act](lake, plan)
    # The writer of these tests writes data files before it asks. No commit lists them.
    left = {name for name in contents_of(lake.root) if not name.endswith(".parquet")}
    assert left == {name for name in before if not name.endswith(".parquet")}
    assert {name: contents_of(lake.root)[name] for name in before} == before


@pytest.mark.parametrize("records", [Acts, Releases])
def test_newer_documents_are_refused_in_one_sentence(opened, records, golden):
    lake, _ = opened
    with golden.raises(TableUnreadable, lake=lake.root) as refused:
        records(str(lake.root)).newest()
    assert refused.value.what.count(". ") == 0


def test_a_newer_ledger_is_refused_in_one_sentence(opened, golden):
    lake, _ = opened
    with golden.raises(TableUnreadable, lake=lake.root):
        Ledger(str(lake.root)).files()


def test_a_lake_of_this_form_or_of_an_earlier_one_is_read_and_written(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    for form in range(1, FORM + 1):
        mark_newer(lake.root, form)
    lake.write({DAYS[0]: 9})
    release_live_now(lake)
    assert released(lake)[DAYS[0]] == 9
