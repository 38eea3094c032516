"""One set of servers a home, and nothing left behind by one that was killed."""

import json
import os
import stat
import sys

import pytest

from backfill_assets.errors import UsageError
from backfill_assets.lake.engine import Engine, as_properties, engine_command
from backfill_assets.servers.child import Child, end
from backfill_assets.servers.place import Running, environment, only_servers, prepare, running
from backfill_assets.settings import PROJECT, read_settings

# Nobody waits for this: a server that stays up until the test ends it.
SLEEPING = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def chosen(tmp_path):
    return read_settings(home=tmp_path / "home", lake="", landing="", last_day="2019-10-13")


def test_a_second_set_of_servers_on_one_home_is_refused_and_told_where_the_first_is(chosen):
    with only_servers(chosen):
        Running("http://127.0.0.1:3111", os.getpid(), {}).write(chosen.home)
        with (
            pytest.raises(UsageError, match=rf"already run on .* at http://127.0.0.1:3111 \(process {os.getpid()}\)"),
            only_servers(chosen),
        ):
            pass
        assert running(chosen.home) == Running("http://127.0.0.1:3111", os.getpid(), {})
    assert running(chosen.home) is None


def test_children_of_servers_that_were_killed_are_ended_at_the_next_start(chosen, tmp_path):
    left = Child("daemon", SLEEPING, dict(os.environ), tmp_path / "log", tmp_path)
    left.start()
    try:
        chosen.home.mkdir()
        Running("http://127.0.0.1:3111", 2**22 + 1, {"daemon": left.pid}).write(chosen.home)
        with only_servers(chosen):
            assert not left.alive
    finally:
        end([left])


def test_children_see_every_setting_whatever_folder_they_stand_in(chosen):
    told = environment(chosen)
    assert told["BACKFILL_LAKE"] == str(chosen.home / "lake")
    assert (told["BACKFILL_LAST_DAY"], told["BACKFILL_DAYS_PER_RUN"]) == ("2019-10-13", "1000")
    assert json.loads(told["BACKFILL_SPARK_CONF"]) == chosen.spark_conf
    assert read_settings(**{name: told[f"BACKFILL_{name.upper()}"] for name in ("home", "lake", "landing")}).lake == chosen.lake


def test_the_projects_dagster_yaml_replaces_an_older_one_of_ours(chosen):
    home = prepare(chosen)
    (home / "dagster.yaml").write_text("telemetry: {enabled: true}\n")
    prepare(chosen)
    assert (home / "dagster.yaml").read_text() == (PROJECT / "dagster.yaml").read_text()


def test_the_token_is_on_no_command_line_and_in_no_file(chosen):
    engine = Engine(15002)
    command = engine_command(chosen, engine, chosen.home / "engine")
    written = chosen.home / "engine" / "engine.properties"
    assert engine.token not in " ".join(command) + written.read_text() + repr(engine)
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert "spark.connect.grpc.binding.address=127.0.0.1\n" in written.read_text()


def test_a_value_with_a_backslash_reaches_spark_whole():
    assert as_properties({"a": "C:\\jars"}) == "a=C:\\\\jars\n"
