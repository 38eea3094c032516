"""What `backfill deploy` prints can be read by what it is for. `tests/journeys` starts it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.run_coordinator import QueuedRunCoordinator

from backfill_assets.cli.deploy import TEMPLATES, deployed
from backfill_assets.lake.spark import warm
from backfill_assets.servers.parts import Part
from backfill_assets.servers.storage import DAGSTER_YAML
from backfill_assets.settings import Settings
from tests.worlds.command_line import options_of
from tests.worlds.deployed import environment_file, parts_of, units_of

pytestmark = pytest.mark.lake

SETTINGS = {f"BACKFILL_{name.upper()}" for name in Settings.model_fields}


@pytest.mark.parametrize("kind", [path.stem for path in TEMPLATES.iterdir()])
def test_every_setting_that_is_printed_is_one(kind):
    named = set(re.findall(r"\bBACKFILL_[A-Z_]+", deployed(kind)))
    assert named
    assert named <= SETTINGS


@pytest.mark.parametrize("kind", ["systemd", "compose"])
def test_every_server_is_started_once_by_options_that_exist(kind):
    commands = parts_of(kind)
    assert {command[command.index("--only") + 1] for command in commands.values()} >= {
        Part.CODE,
        Part.WEBSERVER,
        Part.DAEMON,
    }
    for command in commands.values():
        used = {word for word in command if word.startswith("--")}
        assert used <= set(options_of("up"))


def test_a_unit_restarts_and_lets_up_end_its_servers():
    units = units_of(deployed("systemd"))
    assert len(units) == len(Part)
    for unit in units.values():
        assert unit["Restart"] == "always"
        assert unit["KillMode"] == "mixed"
        assert Path(shlex.split(unit["ExecStart"])[0]).exists()


def test_paths_with_spaces_and_percent_signs_reach_the_servers(tmp_path, monkeypatch):
    folder = tmp_path / "a b%n"
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("BACKFILL_HOME", str(folder))
    monkeypatch.chdir(folder)
    text = deployed("systemd")
    for unit in units_of(text).values():
        # systemd replaces %n by the name of the unit, and %% by one sign.
        assert unit["WorkingDirectory"].replace("%%", "%") == str(folder)
        started = shlex.split(unit["ExecStart"])[0]
        assert started.count("%") == 2
        assert started.replace("%%", "%") == str(python)
    assert shlex.split(environment_file(text)["BACKFILL_HOME"]) == [str(folder)]


def test_an_image_with_passwords_or_tables_is_not_built(tmp_path):
    (guard,) = re.findall(r"^RUN (if .*)$", deployed("dockerfile"), re.MULTILINE)

    def built() -> bool:
        return subprocess.run(["sh", "-c", guard], cwd=tmp_path, check=False).returncode == 0

    assert built()
    (tmp_path / ".env").touch()
    assert not built()


def test_the_chart_gets_a_driver_that_dagster_works_with():
    values = yaml.safe_load(deployed("helm-values"))
    assert values["postgresql"]["postgresqlScheme"] == "postgresql+psycopg2"
    assert values["runLauncher"]["type"] == "K8sRunLauncher"
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert deployment["image"] == values["dagsterDaemon"]["image"]


def test_dagster_accepts_what_the_chart_makes_of_the_values(tmp_path):
    daemon = yaml.safe_load(deployed("helm-values"))["dagsterDaemon"]
    coordinator = {
        "module": "dagster",
        "class": daemon["runCoordinator"]["type"],
        "config": in_snake_case(daemon["runCoordinator"]["config"]["queuedRunCoordinator"]),
    }
    of_daemon = {
        "run_coordinator": coordinator,
        "run_monitoring": in_snake_case(daemon["runMonitoring"]),
        "run_retries": in_snake_case(daemon["runRetries"]),
    }
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(of_daemon))
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        assert isinstance(instance.run_coordinator, QueuedRunCoordinator)
        limits = instance.run_coordinator.get_run_queue_config().tag_concurrency_limits
        ours = yaml.safe_load(DAGSTER_YAML.read_text())
        of_ours = ours["concurrency"]["runs"]["tag_concurrency_limits"]
        assert limits == [limit for limit in of_ours if "value" not in limit]
        assert instance.run_monitoring_enabled
        assert instance.run_retries_max_retries == ours["run_retries"]["max_retries"]


def in_snake_case(values: Any) -> Any:
    """Helm values as the chart writes them into dagster.yaml."""
    if isinstance(values, list):
        return [in_snake_case(value) for value in values]
    if not isinstance(values, dict):
        return values
    return {
        re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name): in_snake_case(value)
        for name, value in values.items()
    }


def test_the_image_has_java_and_the_jars():
    text = deployed("dockerfile")
    assert re.search(r"apt-get install .*openjdk-17-jre", text)
    (module,) = re.findall(r"python -m (\S*warm)", text)
    assert module == warm.__name__
