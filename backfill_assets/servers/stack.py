"""The servers of one lake: started, watched and stopped together.

The webserver and the daemon read the project's code from one code server, so that code reloaded in
the UI is also what the daemon launches. An engine that dies is restarted on the same port with the
same token, and runs that lost it retry their step. A code server or a run starter that dies is
restarted. The runs of a run starter fail then, as after any crash. If the webserver or the daemon
dies, all servers are stopped, because requests made meanwhile would be lost without notice.

The limits of Dagster's pools are set here too: how many steps of a kind run at once, over all runs.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.documents import POOLS, SET_POOL
from backfill_assets.errors import NOTHING_CHANGED, ServiceUnavailable, UsageError
from backfill_assets.lake.spark.engine import (
    LOOPBACK,
    TOKEN_VARIABLE,
    Engine,
    engine_command,
    spark_home,
)
from backfill_assets.lake.spark.session import require_java
from backfill_assets.servers.child import (
    Child,
    ProcessId,
    accepts,
    free_port,
    ignoring_signals,
    is_taken,
    stop,
)
from backfill_assets.servers.home import (
    RUN_STARTER_VARIABLE,
    ServersRecord,
    environment,
    only_servers,
    prepare,
)
from backfill_assets.servers.storage import refuse_unusable_storage
from backfill_assets.settings import Settings

_RUN_STARTER = Path(__file__).parent.parent / "orchestration" / "local" / "run_starter.py"
# These load the code location once, as they start: the code server must answer before.
_READ_CODE = ("webserver", "daemon")
_ORCHESTRATION = "backfill_assets.orchestration.local"
# The engine, and the servers that start runs: the code server does while the run starter is
# restarted. No other server gets the token.
_USE_ENGINE = ("engine", "run-starter", "code-server")


def children_of(
    settings: Settings,
    port: int,
    engine: Engine | None,
    sockets: Path,
    packages: Sequence[str] = (),
) -> dict[str, Child]:
    """The servers by name: code-server, webserver, daemon, run-starter, and perhaps the engine.

    `packages` are Maven packages for the engine.
    """
    env = environment(settings) | {
        "BACKFILL_DAGSTER_URL": f"http://127.0.0.1:{port}",
        RUN_STARTER_VARIABLE: str(sockets / "run-starter"),
    }
    if engine:
        env |= engine.environment() | {
            "BACKFILL_SPARK_REMOTE": engine.remote,
            "SPARK_HOME": str(spark_home()),
        }
    socket = _code_server_socket(sockets)
    location = settings.project
    workspace = sockets / "workspace.yaml"
    workspace.write_text(
        json.dumps(
            {"load_from": [{"grpc_server": {"socket": str(socket), "location_name": location}}]}
        )
    )
    modules = {
        "code-server": [
            "dagster",
            "code-server",
            "start",
            "-s",
            str(socket),
            "-m",
            location,
            "--location-name",
            location,
        ],
        "webserver": [
            f"{_ORCHESTRATION}.webserver",
            "-h",
            LOOPBACK,
            "-p",
            str(port),
            "-w",
            str(workspace),
        ],
        "daemon": [f"{_ORCHESTRATION}.daemon", "run", "-w", str(workspace)],
    }
    commands = {name: [sys.executable, "-m", *module] for name, module in modules.items()}
    # Started by its path, it does not import this package, which each run imports from disk.
    commands["run-starter"] = [sys.executable, "-P", str(_RUN_STARTER), env[RUN_STARTER_VARIABLE]]
    if engine:
        commands["engine"] = engine_command(settings, engine, settings.home / "engine", packages)
    others = {name: value for name, value in env.items() if name != TOKEN_VARIABLE}
    # The engine writes its scratch files into its working directory.
    return {
        name: Child(
            name,
            command,
            env if name in _USE_ENGINE else others,
            settings.home / "logs" / f"{name}.log",
            settings.home / "engine" if name == "engine" else Path.cwd(),
        )
        for name, command in commands.items()
    }


def _code_server_socket(sockets: Path) -> Path:
    return sockets / "code-server"


POOL_LIMITS = {
    # Reading and hashing files: two steps keep a disk busy.
    "ingestion": 2,
    # Steps share the memory of one engine. Two keep two cores busy: half of a step is planning and
    # commits.
    "spark": 2,
    # Unpacking an archive keeps one core busy.
    "archives": 1,
    # A rate-limited service counts the calls of all runs together.
    "external": 1,
}


def _set_pool_limits(dagster: Dagster) -> None:
    """Set the limit of each pool that has none yet."""
    limits = dagster.ask(POOLS)["instance"]["concurrencyLimits"]
    configured = {pool["concurrencyKey"] for pool in limits if not pool["usingDefaultLimit"]}
    for pool, limit in POOL_LIMITS.items():
        if pool not in configured:
            dagster.ask(SET_POOL, {"pool": pool, "limit": limit})


# Two cores with a cold disk cache needed 25 s.
START_TIMEOUT_S = 240
_RESTARTED = ("code-server", "engine", "run-starter")
# A server that dies more often within three minutes has a lasting problem: memory, a port, a jar.
_RESTART_WINDOW_S = 180
MAX_RESTARTS = 3


@dataclass
class Servers:
    """The servers of a lake.

    `sockets` is the folder of their sockets. `log` gets a message for each restart.
    """

    settings: Settings
    port: int
    engine: Engine | None
    children: dict[str, Child]
    sockets: Path
    log: Callable[[str], None] = print
    deaths: dict[str, list[float]] = field(default_factory=dict)

    @property
    def dagster(self) -> Dagster:
        return Dagster(f"http://127.0.0.1:{self.port}")

    def start(self) -> None:
        """Start all servers and wait until they answer.

        Raises ProjectError if Dagster cannot load the project, and ServiceUnavailable if a server
        does not start.
        """
        self._record(started=False)
        prepare(self.settings)
        for child in self.children.values():
            if child.name not in _READ_CODE:
                child.start()
        self._record(started=False)
        self._await("the code server", lambda: accepts(_code_server_socket(self.sockets)))
        for name in _READ_CODE:
            self.children[name].start()
        self._record(started=False)
        self._await("Dagster's webserver", lambda: self.dagster.answers())
        self.dagster.refuse_unloaded("Correct it, then start again with `backfill up`.")
        _set_pool_limits(self.dagster)
        if self.engine:
            port = self.engine.port
            self._await("the engine", lambda: is_taken(port))
            self._warm()
        self._await("Dagster's daemon", lambda: all(self.dagster.daemons().values()))
        self._record()

    def check(self) -> None:
        """Restart a code server, engine or run starter that died.

        Raises ServiceUnavailable if it died too often, or if another server died.
        """
        for child in (child for child in self.children.values() if not child.alive):
            if child.name not in _RESTARTED:
                raise ServiceUnavailable(
                    _ended(child),
                    unchanged="All other servers were stopped.",
                    next_step="Start again with `backfill up`.",
                )
            now = time.monotonic()
            recent = [at for at in self.deaths.get(child.name, []) if now - at < _RESTART_WINDOW_S]
            self.deaths[child.name] = [*recent, now]
            if len(recent) >= MAX_RESTARTS:
                raise ServiceUnavailable(
                    f"{_ended(child)} It was restarted {MAX_RESTARTS} times and died again.",
                    unchanged="All other servers were stopped.",
                    next_step=(
                        "See `backfill doctor`. An engine takes its memory from"
                        ' BACKFILL_SPARK_CONF, for example {"spark.driver.memory": "2g"}.'
                    ),
                )
            child.start()
            self._record()
            self.log(
                f"The {child.name} died and was restarted (process {child.pid}). Log: {child.log}"
            )

    def _warm(self) -> None:
        """Run a first query on the engine, which also shows that its clients have its token."""
        client = self.children["run-starter"]
        log = self.settings.home / "logs" / "warm.log"
        command = [sys.executable, "-m", "backfill_assets.lake.spark.warm"]
        with log.open("wb") as out:
            done = subprocess.run(
                command,
                env=dict(client.environment),
                cwd=client.folder,
                stdout=out,
                stderr=out,
                check=False,
            )
        if done.returncode:
            raise ServiceUnavailable(
                "The engine did not answer a first query.",
                unchanged="All servers were stopped.",
                next_step=f"The error is in {log}.",
            )

    def stop(self) -> None:
        stop(self.children.values())

    def _record(self, *, started: bool = True) -> None:
        children = {name: child.id for name, child in self.children.items() if child.id}
        engine_port = self.engine.port if self.engine else None
        up = ProcessId.of(os.getpid())
        record = ServersRecord(self.dagster.url, up, children, engine_port, started)
        record.write(self.settings.home)

    def _await(self, what: str, answers: Callable[[], bool]) -> None:
        def ready() -> bool:
            for child in self.children.values():
                if child.process and not child.alive:
                    raise ServiceUnavailable(
                        _ended(child),
                        unchanged="All other servers were stopped.",
                        next_step="See `backfill doctor`.",
                    )
            return answers()

        try:
            Retrying(
                stop=stop_after_delay(START_TIMEOUT_S),
                wait=wait_fixed(0.2),
                retry=retry_if_result(lambda ok: not ok),
            )(ready)
        except RetryError:
            logs = self.settings.home / "logs"
            raise ServiceUnavailable(
                f"{what} did not answer within {START_TIMEOUT_S} s.",
                unchanged="All servers were stopped.",
                next_step=f"Read {logs}, or see `backfill doctor`.",
            ) from None


@contextmanager
def servers_on(
    settings: Settings,
    port: int | None = None,
    log: Callable[[str], None] = print,
    packages: Sequence[str] = (),
) -> Iterator[Servers]:
    """Start the servers of this lake, and stop them when the block is left.

    A missing Java is found before anything is started.

    Raises UsageError if the port is taken or servers run on this home. Raises ServiceUnavailable if
    a server does not start.
    """
    if not settings.spark_remote:
        require_java()
    refuse_unusable_storage(settings)
    # A socket's path has at most about a hundred characters, and a home may be longer. Only the
    # owner may enter the folder.
    with only_servers(settings, log), tempfile.TemporaryDirectory(prefix="backfill-") as sockets:
        if port and is_taken(port):
            raise UsageError(
                f"Port {port} is taken.",
                unchanged=NOTHING_CHANGED,
                next_step=f"Stop the process that uses it, or use another: --port {free_port()}",
            )
        log(f"Starting the servers on {settings.home} (about half a minute) ...")
        servers = servers_of(settings, port or free_port(), log, Path(sockets), packages)
        try:
            servers.start()
            yield servers
        finally:
            with ignoring_signals():
                servers.stop()


def servers_of(
    settings: Settings,
    port: int,
    log: Callable[[str], None],
    sockets: Path,
    packages: Sequence[str] = (),
) -> Servers:
    """The servers that these settings need, not started. Their sockets are in `sockets`."""
    # No engine is needed for the user's own Spark Connect server, or with a driver in each run.
    engine = None if settings.spark_remote or settings.spark_master else Engine(free_port())
    return Servers(
        settings, port, engine, children_of(settings, port, engine, sockets, packages), sockets, log
    )


def _ended(child: Child) -> str:
    code = child.process.returncode if child.process else None
    return f"The {child.name} exited (code {code}).\n{child.log_tail()}\nIts log: {child.log}."
