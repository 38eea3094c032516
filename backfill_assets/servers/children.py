"""The commands of the servers that run here, and the environment of each."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from backfill_assets.lake.spark.cluster import worker_python
from backfill_assets.lake.spark.engine import TOKEN_VARIABLE, Engine, engine_command, spark_home
from backfill_assets.project_file import import_paths
from backfill_assets.servers.child import Child, host_and_port
from backfill_assets.servers.home import RUN_STARTER_VARIABLE, environment
from backfill_assets.servers.parts import USUAL_CODE_SERVER, Part, ServerPlace, in_url
from backfill_assets.servers.storage import VARIABLE as STORAGE_VARIABLE
from backfill_assets.settings import Settings, code_location, master_of, project_at

_RUN_STARTER = Path(__file__).parent.parent / "orchestration" / "local" / "run_starter.py"
_ORCHESTRATION = "backfill_assets.orchestration.local"


def children_of(
    settings: Settings,
    place: ServerPlace,
    engine: Engine | None,
    sockets: Path,
    packages: Sequence[str] = (),
) -> dict[str, Child]:
    """The servers that run here, by name, such as code-server, run-starter and engine.

    `packages` are Maven packages for the engine.
    """
    env = environment(settings)
    if place.has(Part.WEBSERVER):
        env |= {"BACKFILL_DAGSTER_URL": place.url}
        if place.is_named:
            # Requests to the engine are addressed to that name.
            hosts = [*settings.allowed_hosts, place.server]
            env |= {"BACKFILL_ALLOWED_HOSTS": ",".join(hosts)}
    if place.only is None:
        env |= {RUN_STARTER_VARIABLE: str(sockets / "run-starter")}
    if engine:
        env |= engine.environment() | worker_python(master_of(settings))
        env |= {
            "BACKFILL_SPARK_REMOTE": engine.remote,
            "SPARK_HOME": str(spark_home()),
        }
    code_server = code_server_of(settings, place, sockets)
    location = code_location(settings, Path.cwd())
    commands = dict[str, list[str]]()
    if place.has(Part.CODE):
        listens = ["-s", code_server]
        if place.only:
            listens = ["-h", in_url(place.host), "-p", str(place.port)]
        commands["code-server"] = _python(
            *("dagster", "code-server", "start", *listens),
            *("-m", settings.project, "--location-name", location),
            # Runs import the project from here.
            *("-d", import_paths(project_at(Path.cwd())[0])[0]),
        )
    workspace = _workspace_file(location, code_server, sockets)
    if place.has(Part.WEBSERVER):
        prefix = ("--path-prefix", place.path_prefix) if place.path_prefix else ()
        address = ("-h", place.host, "-p", str(place.port))
        commands["webserver"] = _python(
            f"{_ORCHESTRATION}.webserver", *address, "-w", str(workspace), *prefix
        )
    if place.has(Part.DAEMON):
        commands["daemon"] = _python(f"{_ORCHESTRATION}.daemon", "run", "-w", str(workspace))
    if place.only is None:
        # Started by its path, the run starter does not import this package. Each run imports it
        # from disk.
        commands["run-starter"] = [
            sys.executable,
            "-P",
            str(_RUN_STARTER),
            env[RUN_STARTER_VARIABLE],
        ]
    if engine:
        commands["engine"] = engine_command(settings, engine, settings.home / "engine", packages)
    return {
        name: Child(
            name,
            command,
            {key: env[key] for key in env.keys() - _NOT_FOR.get(name, ())},
            settings.home / "logs" / f"{name}.log",
            # The engine writes its scratch files into its working directory.
            settings.home / "engine" if name == "engine" else Path.cwd(),
        )
        for name, command in commands.items()
    }


# The secrets that a server does not need. The engine's token is for the engine and for processes
# that start runs: also the code server, while the run starter is restarted.
_NOT_FOR = {
    "webserver": (TOKEN_VARIABLE,),
    "daemon": (TOKEN_VARIABLE,),
    "engine": (STORAGE_VARIABLE, "BACKFILL_DAGSTER_TOKEN"),
}


def liveness_command() -> list[str]:
    """The command that ends with 0 if the daemons that Dagster needs have reported recently."""
    return _python(f"{_ORCHESTRATION}.daemon", "liveness-check")


def code_server_of(settings: Settings, place: ServerPlace, sockets: Path) -> str:
    """The address of the code server of this place: a socket's path, or a host and a port."""
    if place.only is None:
        return str(sockets / "code-server")
    if place.only == Part.CODE:
        return f"{place.reached_at}:{place.port}"
    return settings.code_server or USUAL_CODE_SERVER


def _workspace_file(location: str, code_server: str, sockets: Path) -> Path:
    """The file that gives the webserver and the daemon the address of the code server."""
    server: dict[str, str | int] = {"location_name": location}
    if code_server.startswith("/"):
        server["socket"] = code_server
    else:
        server["host"], server["port"] = host_and_port(code_server)
    file = sockets / "workspace.yaml"
    file.write_text(json.dumps({"load_from": [{"grpc_server": server}]}))
    return file


def _python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]
