"""The servers that `backfill up --only` runs, what each is given, and which exclude another."""

import json
import sys
from pathlib import Path

import pytest

from backfill_assets.errors import UsageError
from backfill_assets.lake.spark.cluster import WORKER_PYTHON
from backfill_assets.lake.spark.engine import TOKEN_VARIABLE, Engine
from backfill_assets.servers.child import free_port
from backfill_assets.servers.children import children_of
from backfill_assets.servers.home import RUN_STARTER_VARIABLE, only_servers
from backfill_assets.servers.parts import Part, ServerPlace
from backfill_assets.servers.stack import servers_of, servers_on
from backfill_assets.settings import Settings, read_settings

SECRET = "s3cret"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings(
        home=tmp_path / "home",
        lake="",
        landing="",
        dagster_storage=f"postgresql://ada:{SECRET}@db/dagster",
        dagster_url="https://data.example.com/dagster",
        code_server="code.example.com:4444",
    )


@pytest.mark.parametrize(
    ("part", "names"),
    [
        (Part.WEBSERVER, ["webserver"]),
        (Part.DAEMON, ["daemon"]),
        (Part.CODE, ["code-server"]),
        (None, ["code-server", "daemon", "engine", "run-starter", "webserver"]),
    ],
)
def test_a_part_runs_alone(settings, tmp_path, part, names):
    servers = servers_of(settings, ServerPlace(3111, only=part), print, tmp_path)
    assert sorted(servers.children) == names
    for child in servers.children.values():
        assert SECRET not in " ".join(child.command)


def test_a_webserver_alone_reads_the_code_of_another_host(settings, tmp_path):
    place = ServerPlace(3111, "0.0.0.0", "/dagster", Part.WEBSERVER)
    (child,) = children_of(settings, place, None, tmp_path).values()
    written = json.loads((tmp_path / "workspace.yaml").read_text())
    (server,) = written["load_from"]
    assert (server["grpc_server"]["host"], server["grpc_server"]["port"]) == (
        "code.example.com",
        4444,
    )
    words = " ".join(child.command)
    assert "-h 0.0.0.0 -p 3111" in words
    assert "--path-prefix /dagster" in words
    assert child.environment["BACKFILL_DAGSTER_URL"] == "http://127.0.0.1:3111/dagster"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:3000"),
        ("::", "http://[::1]:3000"),
        ("::1", "http://[::1]:3000"),
        ("data.example.com", "http://data.example.com:3000"),
    ],
)
def test_programs_of_this_machine_reach_the_host_that_is_listened_at(host, url):
    assert ServerPlace(3000, host).url == url


def test_a_webserver_that_listens_at_a_name_serves_that_name(settings, tmp_path):
    place = ServerPlace(3000, "data.example.com", only=Part.WEBSERVER)
    (child,) = children_of(settings, place, None, tmp_path).values()
    assert child.environment["BACKFILL_ALLOWED_HOSTS"] == "data.example.com:3000"


def test_runs_of_a_code_server_alone_use_the_webserver_that_the_settings_name(settings, tmp_path):
    place = ServerPlace(4000, "10.0.0.4", only=Part.CODE)
    (child,) = children_of(settings, place, None, tmp_path).values()
    assert "-h 10.0.0.4 -p 4000" in " ".join(child.command)
    assert child.environment["BACKFILL_DAGSTER_URL"] == settings.dagster_url
    assert RUN_STARTER_VARIABLE not in child.environment


def test_an_engine_alone_listens_where_it_is_told_and_gets_no_password(settings, tmp_path):
    engine = Engine(15002, "t0ken", "10.0.0.4")
    place = ServerPlace(15002, "10.0.0.4", only=Part.ENGINE)
    (child,) = children_of(settings, place, engine, tmp_path).values()
    written = (settings.home / "engine" / "engine.properties").read_text()
    assert "spark.connect.grpc.binding.address=10.0.0.4\n" in written
    assert child.environment[TOKEN_VARIABLE] == "t0ken"
    assert SECRET not in str(child.environment)


@pytest.mark.parametrize(
    ("master", "named", "python"),
    [
        ("", "", sys.executable),
        ("", "/opt/python", "/opt/python"),
        ("spark://10.0.0.5:7077", "", ""),
    ],
)
def test_functions_run_with_this_python_on_this_machine(
    settings, tmp_path, monkeypatch, master, named, python
):
    monkeypatch.delenv(WORKER_PYTHON, raising=False)
    if named:
        monkeypatch.setenv(WORKER_PYTHON, named)
    of_master = settings.model_copy(update={"spark_master": master})
    place = ServerPlace(15002, "10.0.0.4", only=Part.ENGINE)
    (child,) = children_of(of_master, place, Engine(15002, "t0ken"), tmp_path).values()
    assert child.environment.get(WORKER_PYTHON, "") == python


def test_an_engine_alone_needs_a_token(settings, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with (
        pytest.raises(UsageError) as refused,
        servers_on(settings, ServerPlace(15002, only=Part.ENGINE), pytest.fail),
    ):
        pass
    assert TOKEN_VARIABLE in refused.value.next_step


def test_a_home_has_one_server_of_a_kind(settings):
    def refused(only: Part | None) -> bool:
        try:
            with only_servers(settings, only=only):
                return False
        except UsageError:
            return True

    with only_servers(settings, only=Part.DAEMON):
        assert [refused(Part.DAEMON), refused(None), refused(Part.CODE)] == [True, True, False]
    with only_servers(settings):
        assert [refused(part) for part in (*Part, None)] == [True] * 5
    assert not refused(None)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_host_that_is_not_this_machine_is_refused_before_anything_starts(settings, host):
    place = ServerPlace(free_port(), host, only=Part.CODE)
    with (
        pytest.raises(UsageError) as refused,
        servers_on(settings.model_copy(update={"dagster_storage": None}), place),
    ):
        pass
    assert host in refused.value.what
