"""Launchers for containers replace ours in a `dagster.yaml` of the user's own.

There is no Docker and no Kubernetes here, so an HTTP server takes what the launchers send to them.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from dagster import DagsterInstance, DagsterRunStatus

from backfill_assets.servers.home import prepare
from backfill_assets.servers.storage import DAGSTER_YAML
from backfill_assets.settings import read_settings
from tests.worlds.code_location import WRITES, Launches
from tests.worlds.databases import copy_databases
from tests.worlds.depth import deep
from tests.worlds.http_server import Request, http_server

pytestmark = pytest.mark.servers

VARIABLE = "BACKFILL_LAKE"
LAKE = "s3://bucket/lake"


def answered(request: Request, made: list[dict[str, Any]]) -> None:
    """Answer as Docker or Kubernetes does. `made` gets the containers and pods that are wanted."""
    body = json.loads(request.body() or "null")
    answer: dict[str, Any] = {"Id": "c1", "ApiVersion": "1.44", "Warnings": []}
    if request.path.partition("?")[0].endswith(("/jobs", "/containers/create")):
        made.append(body)
        answer = body | answer
    request.answer(200, json.dumps(answer).encode(), Content_Type="application/json")


def docker(_: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The launcher's part of dagster.yaml."""
    monkeypatch.setenv("DOCKER_HOST", address.replace("http", "tcp"))
    config = {"image": "backfill", "env_vars": [VARIABLE]}
    return {"module": "dagster_docker", "class": "DockerRunLauncher", "config": config}


def kubernetes(folder: Path, address: str, _: pytest.MonkeyPatch) -> dict[str, Any]:
    """The same."""
    named: dict[str, dict[str, Any]] = {
        "clusters": {"cluster": {"server": address}},
        "users": {"user": {}},
        "contexts": {"context": {"cluster": "a", "user": "a"}},
    }
    kubeconfig = {kind: [{"name": "a", **value}] for kind, value in named.items()}
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump({**kubeconfig, "current-context": "a"}))
    config = {
        "job_image": "backfill",
        "service_account_name": "runs",
        "instance_config_map": "instance",
        "dagster_home": "/opt/dagster",
        "load_incluster_config": False,
        "kubeconfig_file": str(file),
        "env_vars": [VARIABLE],
    }
    return {"module": "dagster_k8s", "class": "K8sRunLauncher", "config": config}


def container_of(wanted: dict[str, Any]) -> dict[str, Any]:
    """The image, the arguments and the environment of a container."""
    if "Image" in wanted:
        environment = dict(line.split("=", 1) for line in wanted["Env"])
        return {"image": wanted["Image"], "args": wanted["Cmd"], "environment": environment}
    (container,) = wanted["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    return {**container, "environment": environment}


@pytest.mark.parametrize("launcher", deep([docker, kubernetes], [docker]))
def test_a_launcher_of_containers_replaces_ours(launcher, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, LAKE)
    home = tmp_path / "dagster"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    made: list[dict[str, Any]] = []
    with http_server(partial(answered, made=made)) as address:
        ours = yaml.safe_load(DAGSTER_YAML.read_text())
        own = yaml.safe_dump(ours | {"run_launcher": launcher(tmp_path, address, monkeypatch)})
        (home / "dagster.yaml").write_text(own)
        copy_databases(home)
        (home / ".databases_made").touch()
        prepare(read_settings(home=tmp_path / "home", landing=tmp_path / "landing"))
        assert (home / "dagster.yaml").read_text() == own
        with DagsterInstance.from_config(str(home)) as instance:
            launches = Launches(home, instance)
            launches.declare(WRITES, "")
            run = launches.create()
            instance.launch_run(run.run_id, workspace=cast(Any, None))
            assert launches.run(run.run_id).status == DagsterRunStatus.STARTING
    (wanted,) = made
    container = container_of(wanted)
    assert container["image"] == "backfill"
    assert container["args"][:3] == ["dagster", "api", "execute_run"]
    assert container["environment"][VARIABLE] == LAKE
