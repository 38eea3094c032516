"""One set of servers on a home, and no process left behind by servers that were killed."""

import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.lake.spark.engine import Engine, as_properties, engine_command
from backfill_assets.servers.child import Child, ProcessId, stop
from backfill_assets.servers.home import (
    ServersRecord,
    dagster_home,
    dagster_of,
    environment,
    only_servers,
    prepare,
    servers_record,
    started_dagster,
)
from backfill_assets.servers.parts import Part
from backfill_assets.settings import read_settings
from backfill_assets.workspace import open_workspace

pytestmark = pytest.mark.servers

# A server that runs until the test stops it; nothing waits for the sleep.
SLEEPING = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def settings(tmp_path):
    return read_settings(home=tmp_path / "home", lake="", landing="", last_day="2019-10-13")


def test_a_second_set_of_servers_on_one_home_is_refused_with_the_address(settings, golden):
    record = ServersRecord("http://127.0.0.1:3111", ProcessId.of(os.getpid()), {})
    with only_servers(settings):
        record.write(settings.home)
        with (
            pytest.raises(UsageError) as refused,
            only_servers(settings),
        ):
            pass
        golden(str(refused.value), PROCESS=f"process {os.getpid()}")
        assert servers_record(settings.home) == record
    assert servers_record(settings.home) is None


def test_a_second_server_of_a_kind_is_refused_with_the_process_of_the_first(settings):
    code = ProcessId.of(os.getpid())
    daemon = ProcessId.of(os.getppid())
    with only_servers(settings, only=Part.CODE), only_servers(settings, only=Part.DAEMON):
        ServersRecord("", code, {}).write(settings.home, Part.CODE)
        ServersRecord("", daemon, {}).write(settings.home, Part.DAEMON)
        with pytest.raises(UsageError) as refused, only_servers(settings, only=Part.DAEMON):
            pass
        assert f"process {daemon.pid}" in refused.value.what


@pytest.mark.parametrize(
    ("before", "now"),
    [(None, None), (None, Part.CODE), (Part.DAEMON, None), (Part.DAEMON, Part.CODE)],
)
def test_servers_left_by_a_killed_up_are_named_and_ended_at_the_next_start(
    settings, tmp_path, before, now
):
    """A process that was given the id of one that has ended started at another time, and stays."""
    leftover, stranger = (
        Child(name, SLEEPING, dict(os.environ), tmp_path / name, tmp_path)
        for name in ("daemon", "other")
    )
    messages: list[str] = []
    try:
        for child in (leftover, stranger):
            child.start()
        assert leftover.id
        assert stranger.id
        settings.home.mkdir()
        children = {
            "daemon": leftover.id,
            "engine": ProcessId(stranger.pid, stranger.id.start - 60),
        }
        killed = ServersRecord("http://127.0.0.1:3111", ProcessId(2**22 + 1, 0.0), children)
        killed.write(settings.home, before)
        with only_servers(settings, messages.append, now):
            assert (leftover.alive, stranger.alive) == (False, True)
        (message,) = messages
        assert f"daemon (process {leftover.pid})" in message
        assert str(stranger.pid) not in message
    finally:
        stop([leftover, stranger])


def test_children_get_every_setting_in_their_environment(settings):
    values = environment(settings)
    assert values["BACKFILL_LAKE"] == str(settings.home / "lake")
    assert (values["BACKFILL_LAST_DAY"], values["BACKFILL_DAYS_PER_RUN"]) == ("2019-10-13", "1000")
    assert json.loads(values["BACKFILL_SPARK_CONF"]) == settings.spark_conf
    places: dict[str, Any] = {
        name: values[f"BACKFILL_{name.upper()}"] for name in ("home", "lake", "landing")
    }
    assert read_settings(**places).lake == settings.lake


def test_dagsters_folder_is_its_owners_only_and_a_dagster_yaml_that_was_edited_stays(
    tmp_path, settings, monkeypatch
):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "elsewhere"))
    home = prepare(settings)
    assert (home, stat.S_IMODE(home.stat().st_mode)) == (tmp_path / "elsewhere", 0o700)
    edited = (home / "dagster.yaml").read_text() + "# ours\n"
    (home / "dagster.yaml").write_text(edited)
    prepare(settings)
    assert (home / "dagster.yaml").read_text() == edited


def test_the_projects_dagster_yaml_replaces_an_older_one_of_ours(settings):
    home = dagster_home(settings)
    home.mkdir(parents=True)
    # As if the databases were there: making them takes a process of seconds.
    (home / ".databases_made").touch()
    prepare(settings)
    for name in ("dagster.yaml", ".dagster_yaml_written"):
        # As an older version of this package has left them.
        (home / name).write_text("telemetry: {enabled: true}\n")
    prepare(settings)
    assert (home / "dagster.yaml").read_text() == (
        Path(__file__).resolve().parents[2] / "dagster.yaml"
    ).read_text()


def test_a_new_home_can_be_read_by_its_owner_only_and_an_old_one_is_unchanged(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o755)
    for home in (mine, tmp_path / "home"):
        open_workspace(home=home, lake="", landing="")
    assert [stat.S_IMODE(home.stat().st_mode) for home in (mine, tmp_path / "home")] == [
        0o755,
        0o700,
    ]


def test_the_token_is_on_no_command_line_and_in_no_file(settings):
    engine = Engine(15002)
    command = engine_command(settings, engine, settings.home / "engine")
    written = settings.home / "engine" / "engine.properties"
    assert engine.token not in " ".join(command) + written.read_text() + repr(engine)
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert "spark.connect.grpc.binding.address=127.0.0.1\n" in written.read_text()
    assert "spark.authenticate=true\n" in written.read_text()


def test_a_value_with_a_backslash_reaches_spark_whole():
    assert as_properties({"a": "C:\\jars"}) == "a=C:\\\\jars\n"


def test_commands_of_a_home_without_servers_ask_nobody_elses(settings, golden):
    with pytest.raises(ServiceUnavailable) as unavailable:
        dagster_of(settings).tables()
    golden(str(unavailable.value))
    named = settings.model_copy(update={"dagster_url": "http://elsewhere:3000"})
    assert dagster_of(named).url == "http://elsewhere:3000"


def test_a_command_waits_for_servers_that_are_starting(settings):
    starting = ServersRecord("http://127.0.0.1:3111", ProcessId.of(os.getpid()), {}, started=False)
    notes = list[str]()

    def start(note: str) -> None:
        notes.append(note)
        replace(starting, started=True).write(settings.home)

    settings.home.mkdir(parents=True)
    starting.write(settings.home)
    assert started_dagster(settings, start).url == starting.url
    assert started_dagster(settings, start).url == starting.url
    assert len(notes) == 1


def test_servers_that_ended_while_they_started_are_not_waited_for(settings):
    settings.home.mkdir(parents=True)
    gone = ProcessId(2**22 + 1, 0.0)
    ServersRecord("http://127.0.0.1:3111", gone, {}, started=False).write(settings.home)
    with pytest.raises(ServiceUnavailable):
        started_dagster(settings, pytest.fail).tables()
