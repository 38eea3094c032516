"""What `backfill deploy` prints can be read by what it is for. `tests/journeys` starts it."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from backfill_assets.cli.deploy import TEMPLATES, deployed
from backfill_assets.lake.spark import warm
from backfill_assets.servers.parts import Part
from backfill_assets.settings import Settings
from tests.worlds.command_line import options_of
from tests.worlds.deployed import parts_of, units_of

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


def test_the_chart_gets_a_driver_that_dagster_works_with():
    values = yaml.safe_load(deployed("helm-values"))
    assert values["postgresql"]["postgresqlScheme"] == "postgresql+psycopg2"
    assert values["runLauncher"]["type"] == "K8sRunLauncher"
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert deployment["image"] == values["dagsterDaemon"]["image"]


def test_the_image_has_java_and_the_jars():
    text = deployed("dockerfile")
    assert re.search(r"apt-get install .*openjdk-17-jre", text)
    (module,) = re.findall(r"python -m (\S*warm)", text)
    assert module == warm.__name__
