"""Dagster's records in a real PostgreSQL: the same events, batches as a whole, and no password that
shows.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from dagster import DagsterInstance, EventLogEntry
from dagster._core.instance import InstanceRef
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._serdes import serialize_value
from sqlalchemy.engine import Engine
from sqlalchemy.event import listen, remove

from backfill_assets.cli.doctor import storage as doctors_finding
from backfill_assets.errors import ServiceUnavailable, SettingsError, UsageError
from backfill_assets.orchestration.local.postgres import BatchingPostgresEventLogStorage
from backfill_assets.servers import storage
from backfill_assets.servers.home import prepare
from backfill_assets.servers.stack import servers_on
from backfill_assets.servers.storage import (
    VARIABLE,
    alone_in_storage,
    dagster_yaml,
    refuse_unusable_storage,
    without_secrets,
)
from backfill_assets.settings import Settings, read_settings
from tests.worlds.events import DAYS, check_of, entry, what_is_stored
from tests.worlds.services import PostgresServer

pytestmark = [pytest.mark.long, pytest.mark.services]
SECRET = "s3cret-of-dagster"


@pytest.fixture
def settings(postgres: PostgresServer, tmp_path: Path, monkeypatch) -> Settings:
    url = postgres.new_database()
    monkeypatch.setenv(VARIABLE, url)
    return read_settings(home=tmp_path / "home", lake="", landing="")


@pytest.fixture
def instance(settings: Settings):
    home = settings.dagster_home
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text(dagster_yaml(settings))
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(home))) as opened:
        yield opened


def test_dagster_yaml_names_the_variable_and_never_the_password(instance, settings, postgres):
    written = (settings.dagster_home / "dagster.yaml").read_text()
    assert VARIABLE in written
    # A run of a code server has this on its command line.
    for text in (written, serialize_value(instance.get_ref()), instance.info_str()):
        assert postgres.password not in text


def test_a_batch_in_postgres_is_stored_as_single_writes_store_it(instance, tmp_path):
    log = instance.event_log_storage
    assert isinstance(log, BatchingPostgresEventLogStorage)
    single = SqliteEventLogStorage(str(tmp_path / "single"))
    for batch in ([entry(day) for day in DAYS], [check_of(day) for day in DAYS]):
        log.store_event_batch(batch)
        for event in batch:
            single.store_event(event)
    assert what_is_stored(log) == what_is_stored(single)
    assert what_is_stored(log)[2] == DAYS
    assert len(what_is_stored(log)[3]) == len(DAYS)


def test_of_a_batch_that_breaks_nothing_is_stored_in_postgres(instance):
    """Dagster then writes the events one by one: there would be two of each."""
    log = instance.event_log_storage
    broken = check_of(DAYS[1])._replace(run_id="\0")  # no text of PostgreSQL
    with pytest.raises(ValueError, match="NUL"):
        log.store_event_batch([check_of(DAYS[0]), broken])
    assert what_is_stored(log)[:2] == ([], {})
    log.store_event(entry(DAYS[0]))
    assert what_is_stored(log)[2] == DAYS[:1]


def connections_of(log: BatchingPostgresEventLogStorage, batch: list[EventLogEntry]) -> int:
    seen = list[object]()

    def note(*opened: object) -> None:
        seen.append(opened)

    listen(Engine, "engine_connect", note)
    log.store_event_batch(batch)
    remove(Engine, "engine_connect", note)
    return len(seen)


def test_a_batch_opens_one_connection_whatever_its_length(instance):
    log = instance.event_log_storage
    log.store_event(check_of(DAYS[0]))
    assert connections_of(log, [check_of(day) for day in DAYS]) == 1
    assert connections_of(log, [entry(day) for day in DAYS]) == 1


def test_a_wrong_password_is_refused_before_a_server_starts_and_not_shown(
    settings, postgres, tmp_path
):
    url = str(settings.dagster_storage).replace(postgres.password, SECRET)
    wrong = settings.model_copy(update={"dagster_storage": url, "home": tmp_path / "other"})
    with pytest.raises(ServiceUnavailable) as refused, servers_on(wrong, log=pytest.fail):
        pass
    assert "password authentication failed" in refused.value.what
    assert VARIABLE in refused.value.next_step
    assert SECRET not in str(refused.value)
    assert not wrong.home.exists()
    (finding,) = doctors_finding(wrong)
    assert (finding.level, finding.what) == ("FAIL", "storage")
    assert [found.level for found in doctors_finding(settings)] == ["ok"]


def test_a_package_that_is_missing_is_named_with_the_command(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "dagster_postgres", None)
    with pytest.raises(UsageError) as refused:
        refuse_unusable_storage(settings)
    assert "dagster-postgres" in refused.value.what
    assert "pip install" in refused.value.next_step


def test_an_edited_dagster_yaml_that_ignores_the_setting_is_refused(settings):
    home = settings.dagster_home
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (home / ".dagster_yaml_written").write_text("telemetry: {enabled: true}\n")
    with pytest.raises(UsageError) as refused:
        prepare(settings)
    lines = refused.value.next_step.partition("\n")[2]
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n" + lines)
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(prepare(settings)))) as opened:
        assert isinstance(opened.event_log_storage, BatchingPostgresEventLogStorage)


def test_hosts_that_start_at_once_make_the_tables_once(settings, postgres, tmp_path):
    homes = [settings.model_copy(update={"home": tmp_path / name}) for name in "abc"]
    with ThreadPoolExecutor() as pool:
        list(pool.map(prepare, homes))
    with closing(psycopg2.connect(settings.dagster_storage)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT count(*) FROM alembic_version")
        assert cursor.fetchone() == (1,)


def test_a_host_that_never_ends_making_the_tables_is_not_waited_for_forever(settings, monkeypatch):
    monkeypatch.setattr(storage, "_LOCK_TIMEOUT_S", 1)
    with (
        alone_in_storage(settings),
        pytest.raises(ServiceUnavailable, match="lock timeout"),
        alone_in_storage(settings),
    ):
        pass
    with alone_in_storage(settings):
        pass


def test_the_setting_can_be_taken_back(settings, monkeypatch):
    assert VARIABLE in (prepare(settings) / "dagster.yaml").read_text()
    monkeypatch.delenv(VARIABLE)
    home = prepare(read_settings(home=settings.home, lake="", landing=""))
    assert VARIABLE not in (home / "dagster.yaml").read_text()


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(f"mysql://ada:{SECRET}@host/dagster", id="another database"),
        pytest.param(f"postgresql://ada:{SECRET}#@host/dagster", id="a password that is cut off"),
    ],
)
def test_an_address_that_is_not_allowed_is_refused_without_its_password(url):
    with pytest.raises(SettingsError) as refused:
        read_settings(dagster_storage=url)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://ada:a%40b@host/db", "with a%40b and a@b"),
        ("postgresql://host/db?password=a%40b", "with a%40b and a@b"),
        ("postgresql://host/db?sslpassword=a+b", "with a+b and a%2Bb"),
    ],
)
def test_a_password_is_taken_out_of_a_message_however_it_is_written(url, text):
    assert without_secrets(text, url) == "with *** and ***"
