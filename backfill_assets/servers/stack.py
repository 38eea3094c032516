"""The servers of one lake: started, watched and stopped together.

The webserver and the daemon read the project's code from one code server, so that the daemon
launches code that was reloaded in the UI. An engine that dies is restarted on the same port with
the same token, and runs that lost it retry their step. A code server or a run starter that dies is
restarted. Then the runs of the run starter fail, as after any crash. If the webserver or the daemon
dies, all servers are stopped, because requests made meanwhile would be lost without notice.

`--only` runs one of them. The other servers run on other hosts, or as other services of this host.
"""

import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import NOTHING_CHANGED, ServiceUnavailable, UsageError
from backfill_assets.lake.spark.engine import TOKEN_VARIABLE, Engine
from backfill_assets.lake.spark.session import driver_conf, require_java
from backfill_assets.servers.child import (
    Child,
    ProcessId,
    accepts,
    free_port,
    ignoring_signals,
    is_taken,
    listen_error,
    process_tree,
    stop,
    wait_or_kill,
)
from backfill_assets.servers.children import (
    children_of,
    code_server_of,
    liveness_command,
)
from backfill_assets.servers.home import ServersRecord, only_servers, prepare
from backfill_assets.servers.parts import NAMES, Part, ServerPlace
from backfill_assets.servers.storage import refuse_unusable_storage
from backfill_assets.settings import Settings
from backfill_assets.tries import Note, wait_until

# These servers load the code location once, at their start, so the code server must answer before.
_READ_CODE = ("webserver", "daemon")
# Two cores with a cold disk cache needed 25 s.
START_TIMEOUT_S = 240
# Servers that take longer are named.
_SILENT_S = 10
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
    place: ServerPlace
    engine: Engine | None
    children: dict[str, Child]
    sockets: Path
    log: Note = print
    deaths: dict[str, list[float]] = field(default_factory=dict)

    @property
    def dagster(self) -> Dagster:
        return Dagster(self.place.url)

    def start(self) -> None:
        """Start all servers and wait until they answer.

        Raises ProjectError if Dagster cannot load the project, and ServiceUnavailable if a server
        does not start.
        """
        self._record(started=False)
        needs_code = self.place.only != Part.ENGINE
        if needs_code:
            prepare(self.settings)
        for child in self.children.values():
            if child.name not in _READ_CODE:
                child.start()
        self._record(started=False)
        if needs_code:
            at = code_server_of(self.settings, self.place, self.sockets)
            is_here = self.place.has(Part.CODE)
            remedy = (
                "Start it with `backfill up --only code --host`, or correct BACKFILL_CODE_SERVER."
            )
            self._await(
                "the code server" if is_here else f"the code server at {at}",
                lambda: accepts(at),
                "" if is_here else remedy,
            )
        for name in _READ_CODE:
            if name in self.children:
                self.children[name].start()
        self._record(started=False)
        if "webserver" in self.children:
            self._await("Dagster's webserver", lambda: self.dagster.answers())
            self.dagster.refuse_unloaded("Correct it, then start again with `backfill up`.")
        if self.engine:
            engine = self.engine
            self._await("the engine", lambda: is_taken(engine.port, self.place.reached_at))
        if "run-starter" in self.children and self.engine:
            self._warm()
        if "daemon" in self.children:
            self._await("Dagster's daemon", self._daemons_live)
        self._record()

    def _daemons_live(self) -> bool:
        if "webserver" in self.children:
            return all(self.dagster.daemons().values())
        daemon = self.children["daemon"]
        done = subprocess.run(
            liveness_command(), env=dict(daemon.environment), capture_output=True, check=False
        )
        return done.returncode == 0

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

    def kill(self) -> list[int]:
        """Kill all servers and runs at once, and return the ids of their processes.

        They can be started again.
        """
        alive = (child for child in self.children.values() if child.alive)
        processes = [process for child in alive for process in process_tree(child.pid)]
        wait_or_kill(processes, patience=0)
        for child in self.children.values():
            if not child.alive:
                child.process = None
        return [process.pid for process in processes]

    def _record(self, *, started: bool = True) -> None:
        children = {name: child.id for name, child in self.children.items() if child.id}
        engine_port = self.engine.port if self.engine else None
        up = ProcessId.of(os.getpid())
        url = self.place.url if "webserver" in self.children else ""
        record = ServersRecord(url, up, children, engine_port, started)
        record.write(self.settings.home, self.place.only)

    def _await(self, what: str, answers: Callable[[], bool], remedy: str = "") -> None:
        def ready() -> bool:
            for child in self.children.values():
                if child.process and not child.alive:
                    raise ServiceUnavailable(
                        _ended(child),
                        unchanged="All other servers were stopped.",
                        next_step="See `backfill doctor`.",
                    )
            return answers()

        if wait_until(ready, _SILENT_S):
            return
        self.log(f"Waiting for {what} ...")
        if not wait_until(ready, START_TIMEOUT_S - _SILENT_S):
            logs = self.settings.home / "logs"
            raise ServiceUnavailable(
                f"{what[0].upper()}{what[1:]} did not answer within {START_TIMEOUT_S} s.",
                unchanged="All servers of this command were stopped.",
                next_step=remedy or f"Read {logs}, or see `backfill doctor`.",
            )


@contextmanager
def servers_on(
    settings: Settings,
    place: ServerPlace | None = None,
    log: Note = print,
    packages: Sequence[str] = (),
) -> Iterator[Servers]:
    """Start the servers of this lake, and stop them when the block is left.

    Without a `place`, all servers run here, the webserver at any free port. A missing Java, and a
    database that cannot be used, are reported before anything is started.

    Raises UsageError if the port is taken, servers run on this home, or an engine alone has no
    token. Raises ServiceUnavailable if a server does not start.
    """
    only = place.only if place else None
    if only == Part.ENGINE or (only in (None, Part.CODE) and not settings.spark_remote):
        require_java(driver_conf(settings))
    if only == Part.ENGINE and not os.environ.get(TOKEN_VARIABLE):
        raise UsageError(
            "An engine that runs alone needs a token, which its clients send.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Set {TOKEN_VARIABLE} here and where the code server runs.",
        )
    if only != Part.ENGINE:
        refuse_unusable_storage(settings)
    # A socket's path has at most about a hundred characters, and the path of a home may be longer.
    # Only the owner may enter the folder.
    with (
        only_servers(settings, log, only),
        tempfile.TemporaryDirectory(prefix="backfill-") as sockets,
    ):
        if place and place.port:
            _refuse_place(place)
        what = f"the {NAMES[only]}" if only else "the servers"
        log(f"Starting {what} on {settings.home} (about half a minute) ...")
        servers = servers_of(
            settings, place or ServerPlace(free_port()), log, Path(sockets), packages
        )
        try:
            servers.start()
            yield servers
        finally:
            with ignoring_signals():
                servers.stop()


def _refuse_place(place: ServerPlace) -> None:
    """Raise UsageError if a server cannot listen there."""
    error = listen_error(place.host, place.port)
    if error is None:
        return
    what = f"No server can listen at {place.host} port {place.port}: {error.strerror}."
    next_step = "Name an address of this machine, or 0.0.0.0 for all, and a port from 1024 on."
    if error.errno == errno.EADDRINUSE:
        what = f"Port {place.port} is taken."
        next_step = f"Stop the process that uses it, or use another: --port {free_port()}"
    raise UsageError(what, unchanged=NOTHING_CHANGED, next_step=next_step)


def servers_of(
    settings: Settings,
    place: ServerPlace,
    log: Note,
    sockets: Path,
    packages: Sequence[str] = (),
) -> Servers:
    """The servers that these settings need here, not started yet. `sockets` is their folder."""
    engine = _engine_of(settings, place)
    children = children_of(settings, place, engine, sockets, packages)
    return Servers(settings, place, engine, children, sockets, log)


def _engine_of(settings: Settings, place: ServerPlace) -> Engine | None:
    if place.only == Part.ENGINE:
        return Engine(place.port, os.environ[TOKEN_VARIABLE], place.host)
    # The user's own Spark Connect server, or a driver in each run, needs no engine.
    if place.only or settings.spark_remote or settings.spark_master:
        return None
    return Engine(free_port())


def _ended(child: Child) -> str:
    code = child.process.returncode if child.process else None
    return f"The {child.name} exited (code {code}).\n{child.log_tail()}\nIts log: {child.log}."
