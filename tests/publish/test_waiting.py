"""An act waits for runs that have written to live, and other runs wait for the act."""

from collections import Counter
from contextlib import ExitStack

import pytest

from backfill_assets.errors import RefusedByGuard
from backfill_assets.lake import commit
from backfill_assets.lake.ledger import LedgerFiles
from backfill_assets.lake.running import RunningStep, announce, announced, mark_running
from backfill_assets.publish.waiting import Patience, writers_to_live
from tests.worlds.small_lake import (
    DAYS,
    RELEASED,
    A,
    B,
    SmallLake,
    copy_of,
    publish,
    rebuilt_in_shadow,
    released,
    released_lake,
)

D1 = DAYS[1]
D2 = DAYS[2]
RUN = "1b9d6bcd-0000"
NAMED = {f"run {RUN[:8]}": RUN}


def never(_: float) -> None:
    pytest.fail("it waits")


@pytest.fixture
def ledger_reads(monkeypatch) -> Counter[tuple[str, ...]]:
    """How often rows of the ledger were read, by their columns."""
    counted = Counter[tuple[str, ...]]()
    rows = LedgerFiles.rows

    def counted_rows(self, columns=None, *arguments, **options):
        counted[tuple(columns or ())] += 1
        return rows(self, columns, *arguments, **options)

    # The real reads are made. They are only counted.
    monkeypatch.setattr(LedgerFiles, "rows", counted_rows)
    return counted


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return copy_of(released_lake, tmp_path)


@pytest.mark.parametrize("act", ["publish", "rollback"])
def test_a_run_that_has_written_to_live_is_waited_for_and_named(lake, act):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    if act == "rollback":
        publish(lake, plan)
    lake.write({D2: 9}, of_run=RUN)
    lines = list[str]()

    def end_run(_: float) -> None:
        """It has committed, so that it does not wait for the act."""
        lake.write({D2: 9}, table=B.name, of_run=RUN, sleep=never)

    def unfinished() -> dict[str, str]:
        return NAMED if lake.values(B.name)[D2] != 9 else {}

    patience = Patience(report=lines.append, sleep=end_run)
    if act == "publish":
        publish(lake, plan, runs=unfinished, patience=patience)
    else:
        lake.rolled_back(plan, runs=unfinished, patience=patience)
    expected = RELEASED | {D2: 9} | ({D1: 7} if act == "publish" else {})
    assert released(lake) == released(lake, B.name) == expected
    assert len(lines) == 1
    assert RUN[:8] in lines[0]


def test_an_act_that_waited_in_vain_changes_nothing(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    lake.write({D2: 9}, of_run=RUN)
    with pytest.raises(RefusedByGuard, match=RUN[:8]):
        publish(lake, plan, runs=lambda: NAMED, patience=Patience(seconds=0))
    assert lake.values() == RELEASED | {D2: 9}
    assert released(lake) == RELEASED


def test_a_run_that_has_written_nothing_is_not_waited_for(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    step = RunningStep(A.name, [D2], RUN)
    with mark_running(str(lake.root), step):
        publish(lake, plan, runs=lambda: NAMED, patience=Patience(sleep=never))
    assert released(lake) == released(lake, B.name) == RELEASED | {D1: 7}


def test_a_run_waits_before_its_first_commit_while_an_act_is_announced(lake):
    act = ExitStack()
    act.enter_context(announce(str(lake.root), "publish-1"))
    assert announced(str(lake.root)) == ["publish-1"]
    seen = []

    def end_act(_: float) -> None:
        seen.append(lake.values())
        act.close()

    lake.write({D2: 9}, of_run=RUN, sleep=end_act)
    assert seen == [RELEASED]
    assert lake.values() == RELEASED | {D2: 9}
    with announce(str(lake.root), "publish-2"):
        lake.write({D2: 8}, of_run=RUN, sleep=never)
    assert announced(str(lake.root)) == []


@pytest.mark.parametrize("act", ["publish", "rollback"])
def test_no_release_has_half_of_a_run_whose_patience_ended(lake, act, monkeypatch):
    """It commits to a table that no other was made from, so that the tables agree."""
    plan = rebuilt_in_shadow(lake, {D1: 7})
    if act == "rollback":
        publish(lake, plan)
    before = released(lake)
    monkeypatch.setattr(commit, "_WAITS_FOR_ACTS_S", 0)

    def unfinished() -> dict[str, str]:
        """The run begins right after the act looked for the first time."""
        if lake.values(B.name)[D2] == 9:
            return NAMED
        lake.write({D2: 9}, table=B.name, of_run=RUN, sleep=never)
        return {}

    if act == "publish":
        with pytest.raises(RefusedByGuard, match=RUN[:8]):
            publish(lake, plan, runs=unfinished, patience=Patience(sleep=never))
    else:
        done = lake.rolled_back(plan, runs=unfinished, patience=Patience(sleep=never))
        assert [each.run for each in done.withheld] == [RUN]
    assert lake.values(B.name)[D2] == 9
    assert released(lake) == released(lake, B.name) == before


@pytest.mark.parametrize("looks", [1, 20])
def test_the_ledger_is_read_once_and_not_at_each_look(lake, ledger_reads, looks):
    root = str(lake.root)
    act = ExitStack()
    act.enter_context(announce(root, "publish-1"))
    left = iter(range(looks))

    def look(_: float) -> None:
        if next(left, None) is None:
            act.close()

    lake.write({D2: 9}, of_run=RUN, sleep=look)
    assert ledger_reads[("run", "outcome")] == 1
    ledger_reads.clear()
    for _ in range(looks):
        assert [each.run for each in writers_to_live(lake.workspace, lambda: NAMED)] == [RUN]
    assert ledger_reads == {("run", "outcome"): 1}
