"""The commands and environments of the servers of one lake, as child processes that are not started."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from backfill_assets.lake.engine import LOOPBACK, TOKEN_VARIABLE, Engine, engine_command, spark_home
from backfill_assets.servers.child import Child
from backfill_assets.servers.home import RUN_STARTER_VARIABLE, environment
from backfill_assets.settings import Settings

RUN_STARTER = Path(__file__).parent.parent / "orchestration" / "run_starter.py"
# These load the code location once, as they start: the code server must answer before.
READ_CODE = ("webserver", "daemon")
ORCHESTRATION = "backfill_assets.orchestration"
# The engine, and what starts runs: the code server does so while the run starter is restarted. No other server gets the token.
USE_ENGINE = ("engine", "run-starter", "code-server")


def children_of(
    settings: Settings, port: int, engine: Engine | None, sockets: Path, packages: Sequence[str] = ()
) -> dict[str, Child]:
    """The servers by name: code-server, webserver, daemon, run-starter, and engine, with `packages`, if there is one."""
    env = environment(settings) | {
        "BACKFILL_DAGSTER_URL": f"http://127.0.0.1:{port}",
        RUN_STARTER_VARIABLE: str(sockets / "run-starter"),
    }
    if engine:
        env |= engine.environment() | {"BACKFILL_SPARK_REMOTE": engine.remote, "SPARK_HOME": str(spark_home())}
    socket, location, workspace = code_server_socket(sockets), settings.project, sockets / "workspace.yaml"
    workspace.write_text(json.dumps({"load_from": [{"grpc_server": {"socket": str(socket), "location_name": location}}]}))
    modules = {
        "code-server": ["dagster", "code-server", "start", "-s", str(socket), "-m", location, "--location-name", location],
        "webserver": [f"{ORCHESTRATION}.webserver", "-h", LOOPBACK, "-p", str(port), "-w", str(workspace)],
        "daemon": [f"{ORCHESTRATION}.daemon", "run", "-w", str(workspace)],
    }
    commands = {name: [sys.executable, "-m", *module] for name, module in modules.items()}
    # By its path, so that it does not import this package, which each run imports as it is on disk.
    commands["run-starter"] = [sys.executable, "-P", str(RUN_STARTER), env[RUN_STARTER_VARIABLE]]
    if engine:
        commands["engine"] = engine_command(settings, engine, settings.home / "engine", packages)
    others = {name: value for name, value in env.items() if name != TOKEN_VARIABLE}
    # The engine writes its scratch files into its working directory.
    return {
        name: Child(
            name,
            command,
            env if name in USE_ENGINE else others,
            settings.home / "logs" / f"{name}.log",
            settings.home / "engine" if name == "engine" else Path.cwd(),
        )
        for name, command in commands.items()
    }


def code_server_socket(sockets: Path) -> Path:
    return sockets / "code-server"
