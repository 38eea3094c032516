"""What `backfill deploy` prints, started as it is on free ports, with its capitals replaced."""

import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import pytest
import yaml

from backfill_assets.calendar import between
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.spark.engine import TOKEN_VARIABLE
from backfill_assets.servers.child import free_port, is_taken
from backfill_assets.settings import BUNDLED
from tests.worlds.deployed import environment_file, started, units_of
from tests.worlds.outages import RAW
from tests.worlds.servers import PROJECT, deliver, environment
from tests.worlds.services import PostgresServer
from tests.worlds.station import FIRST, Station, eventually, spans

pytestmark = pytest.mark.nightly

LAST = date(2019, 8, 16)
DAYS = list(between(FIRST, LAST))
PLAN = ("run", "--yes", "--partitions", f"{FIRST}..{LAST}", "--target", RAW, "--into", "live")


def printed(kind: str, home: Path, replaced: Mapping[str, str]) -> str:
    env = {**os.environ, "PYTHONPATH": str(PROJECT), "BACKFILL_HOME": str(home)}
    command = [sys.executable, "-m", "backfill_assets.cli", "deploy", kind]
    text = subprocess.run(
        command, env=env, cwd=PROJECT, text=True, capture_output=True, check=True
    ).stdout
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    return text


def of_this_machine(home: Path) -> dict[str, str]:
    """What a service manager or an image gives, and the sample's calendar."""
    env = environment(home, LAST)
    names = ("PATH", "HOME", "JAVA_HOME", "PYTHONPATH", "BACKFILL_SPARK_CONF")
    calendar = ("BACKFILL_FIRST_DAY", "BACKFILL_LAST_DAY", "BACKFILL_SPARK_JARS")
    return {name: value for name, value in env.items() if name in (*names, *calendar)}


def test_the_units_of_systemd_carry_out_a_plan(tmp_path, spark, postgres: PostgresServer):
    home = tmp_path / "home"
    deliver(home / "landing", DAYS)
    url = postgres.new_database()
    ports = {port: str(free_port()) for port in ("15002", "4000", "3000")}
    text = printed(
        "systemd",
        home,
        {
            "postgresql://USER:PASSWORD@localhost:5432/DATABASE": url,
            "RANDOM": secrets.token_hex(16),
            **ports,
        },
    )
    env = of_this_machine(home) | environment_file(text)
    with ExitStack() as running:
        for unit in units_of(text).values():
            command = shlex.split(unit["ExecStart"])
            folder = Path(unit["WorkingDirectory"])
            running.enter_context(started(command, env, home, folder))
        dagster = Dagster(env["BACKFILL_DAGSTER_URL"])
        station = Station(dagster, home, home / "landing", PROJECT, env, None)  # type: ignore[arg-type]
        assert ": done" in station.backfill(*PLAN, "--reason", "systemd")
        assert station.materialized(RAW) == spans(DAYS)
        found = station.backfill("doctor")
        assert "FAIL" not in found
        assert postgres.password not in found
        assert env[TOKEN_VARIABLE] not in found


def test_the_services_of_compose_find_each_other(tmp_path, spark, postgres: PostgresServer):
    code = free_port()
    web = free_port()
    (tmp_path / "landing").mkdir()
    url = postgres.new_database()
    text = printed(
        "compose",
        tmp_path / "home",
        {
            "postgresql://dagster:${DATABASE_PASSWORD}@database:5432/dagster": url,
            "code:4000": f"127.0.0.1:{code}",
            '"4000"': f'"{code}"',
            "webserver:3000": f"127.0.0.1:{web}",
            '"3000"': f'"{web}"',
            "/data/": f"{tmp_path}/",
        },
    )
    services = yaml.safe_load(text)["services"]
    with ExitStack() as running:
        for name in ("code", "webserver", "daemon"):
            service = services[name]
            env = of_this_machine(tmp_path) | service["environment"]
            env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
            running.enter_context(started(service["command"], env, tmp_path / name, PROJECT))
        dagster = Dagster(f"http://127.0.0.1:{web}")
        assert RAW in dagster.tables()
        assert all(dagster.daemons().values())
        assert dagster.checks_origins()


def test_the_code_server_of_the_chart_loads_the_project(tmp_path):
    values = yaml.safe_load(printed("helm-values", tmp_path, {"BUCKET": "bucket"}))
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert deployment["env"][0] == {"name": "BACKFILL_PROJECT", "value": BUNDLED}
    port = free_port()
    command = [sys.executable, "-m", "dagster", "api", "grpc", "-h", "127.0.0.1", "-p", str(port)]
    env = of_this_machine(tmp_path) | {each["name"]: each["value"] for each in deployment["env"]}
    log = tmp_path / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, *deployment["dagsterApiGrpcArgs"]],
            env={**env, "DAGSTER_HOME": str(tmp_path)},
            stdout=output,
            stderr=output,
        )
    try:
        eventually(lambda: is_taken(port) or server.poll() is not None, what="the code server")
        assert re.search("Started Dagster code server", log.read_text()), log.read_text()
    finally:
        server.kill()  # Processes of pytest-xdist ignore SIGTERM, and so do their children.
        server.wait(60)
