"""An act reads again what it has committed, before readers get it."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import Conflict, NotAsWritten
from backfill_assets.lake import acts as acts_module
from backfill_assets.lake.recorded_acts import Act, Acts, Stage
from backfill_assets.reconcile.broken import repair
from tests.worlds.small_lake import DAYS, RELEASED, A, gets, publish, rebuilt_in_shadow


def test_an_act_that_changes_another_day_stops_all_writers_until_a_repair(
    lake, monkeypatch, golden
):
    plan = rebuilt_in_shadow(lake, {DAYS[0]: 7})
    commit = DeltaTable.create_write_transaction

    def removes_more(table: DeltaTable, *given: Any, **options: Any) -> None:
        actions, mode, schema, columns, ((column, within, days),) = given
        more = (column, within, [*days, str(DAYS[1])])
        commit(table, actions, mode, schema, columns, [more], **options)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", removes_more)
        with pytest.raises(NotAsWritten) as stopped:
            publish(lake, plan)
    act = Acts(str(lake.root)).newest()
    assert act
    golden(str(stopped.value), ACT=act.id)
    assert gets(lake) == RELEASED
    with pytest.raises(NotAsWritten):
        lake.write({DAYS[2]: 9})
    assert repair(str(lake.root), [A.name]) == ([], act.id)
    ended = Acts(str(lake.root)).newest()
    assert ended
    assert (A.name, DAYS[1]) in ended.foreign
    assert ended.release == 0
    assert gets(lake) == RELEASED
    lake.write({DAYS[1]: 2, DAYS[2]: 9})
    assert lake.values() == RELEASED | {DAYS[0]: 7, DAYS[2]: 9}


def test_an_act_is_not_decided_beside_another_that_has_not_ended(lake, monkeypatch):
    """As if this process had lost its locks in an object store, and another had recorded an act."""
    plan = rebuilt_in_shadow(lake, {DAYS[0]: 7})
    lock = acts_module._locked
    other = Act("publish-other", "publish", "other", "ada", "", ())

    def record_before(root: str, tables: Iterable[str]) -> AbstractContextManager[None]:
        Acts(root).add(other, Stage.RECORDED, 1)
        return lock(root, tables)

    with monkeypatch.context() as patch:
        patch.setattr(acts_module, "_locked", record_before)
        with pytest.raises(Conflict):
            publish(lake, plan)
    assert not [*(lake.root / "_acts").glob("000000002*")]
    publish(lake, plan)
    assert gets(lake) == RELEASED | {DAYS[0]: 7}
