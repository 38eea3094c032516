"""The event log that writes batches stores the same events as Dagster's own, and a batch as a whole
or not at all.
"""

from pathlib import Path

import pytest
from dagster import DagsterInstance
from dagster._core.instance import InstanceRef
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy.engine import Engine
from sqlalchemy.event import listen, remove

from backfill_assets.orchestration.local.event_log import BatchingSqliteEventLogStorage
from backfill_assets.servers.storage import DAGSTER_YAML
from tests.worlds.events import DAYS, entry, what_is_stored

pytestmark = pytest.mark.lake


def test_a_batch_stores_what_single_writes_store(tmp_path: Path):
    single = SqliteEventLogStorage(str(tmp_path / "a"))
    batched = BatchingSqliteEventLogStorage(str(tmp_path / "b"))
    for day in DAYS:
        single.store_event(entry(day))
    batched.store_event_batch([entry(day) for day in DAYS])
    assert what_is_stored(batched) == what_is_stored(single)
    assert what_is_stored(batched)[2] == DAYS


def test_events_can_be_written_singly_after_a_batch(tmp_path: Path):
    storage = BatchingSqliteEventLogStorage(str(tmp_path))
    storage.store_event_batch([entry(day) for day in DAYS[:2]])
    storage.store_event(entry(DAYS[2]))
    assert what_is_stored(storage)[0] == DAYS[:3]


def test_of_a_batch_that_breaks_nothing_is_stored(tmp_path: Path):
    storage = BatchingSqliteEventLogStorage(str(tmp_path))
    broken = entry(DAYS[1])._replace(timestamp=float("nan"))
    with pytest.raises(ValueError, match="NaN"):
        storage.store_event_batch([entry(DAYS[0]), broken])
    assert what_is_stored(storage) == ([], {}, [], {})


def test_a_batch_commits_once_to_each_of_its_two_databases(tmp_path: Path):
    commits = {}
    for name, kind in (
        ("single", SqliteEventLogStorage),
        ("batched", BatchingSqliteEventLogStorage),
    ):
        storage = kind(str(tmp_path / name))
        storage.store_event(entry("2019-08-31"))  # makes the run's database
        seen: list[object] = []
        note = seen.append
        listen(Engine, "commit", note)
        storage.store_event_batch([entry(day) for day in DAYS])
        remove(Engine, "commit", note)
        commits[name] = len(seen)
    assert commits["batched"] == 2
    assert commits["single"] >= 2 * len(DAYS)


def test_an_instance_keeps_its_events_in_its_own_folder_without_dagster_home(
    tmp_path: Path, monkeypatch
):
    """`dagster dev` has a temporary folder, configured by the dagster.yaml of another folder."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    ref = InstanceRef.from_dir(str(tmp_path), config_dir=str(DAGSTER_YAML.parent))
    with DagsterInstance.from_ref(ref) as instance:
        assert isinstance(instance.event_log_storage, BatchingSqliteEventLogStorage)
        instance.event_log_storage.store_event(entry(DAYS[0]))
    own = SqliteEventLogStorage(str(tmp_path / "history" / "runs"))
    assert what_is_stored(own)[2] == DAYS[:1]


def test_a_storage_that_dagster_yaml_names_goes_first(tmp_path: Path):
    other = tmp_path / "other"
    named = f"storage:\n  sqlite:\n    base_dir: {other}\n"
    (tmp_path / "dagster.yaml").write_text(DAGSTER_YAML.read_text() + named)
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path))) as instance:
        assert type(instance.event_log_storage) is SqliteEventLogStorage
    assert (other / "history" / "runs").is_dir()
