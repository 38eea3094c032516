"""The servers of one lake: started together, watched, ended together.

An engine that dies is started again on the same port with the same token; runs that lost it try their step again. A
webserver or daemon that dies ends everything, since what it was asked meanwhile would be lost without a word.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.lake.engine import Engine, engine_command, spark_home
from backfill_assets.servers.child import Child, end, free_port, is_taken, undisturbed
from backfill_assets.servers.place import Running, environment, only_servers, prepare
from backfill_assets.servers.pools import set_limits
from backfill_assets.settings import Settings

# Two cores and a cold disk cache: 25 s were seen; a machine that needs more than this has another trouble.
START_PATIENCE_S = 240
# An engine that dies this soon after its start will do so again: memory, a port, a jar.
TOO_SOON_S, TOO_OFTEN = 60, 3


@dataclass
class Servers:
    """What runs on a lake. `tell` hears of an engine that was restarted."""

    settings: Settings
    port: int
    engine: Engine | None
    children: dict[str, Child]
    tell: Callable[[str], None] = print
    deaths: list[float] = field(default_factory=list)

    @property
    def dagster(self) -> Dagster:
        return Dagster(f"http://127.0.0.1:{self.port}")

    def start(self) -> None:
        for child in self.children.values():
            child.start()
        self._record()
        self._await("Dagster's webserver", lambda: self.dagster.answers())
        set_limits(self.dagster)
        if self.engine:
            port = self.engine.port
            self._await("the engine", lambda: is_taken(port))
            self._warm()
        self._await("Dagster's daemon", lambda: all(self.dagster.daemons().values()))

    def check(self) -> None:
        """Restart an engine that died; ServiceUnavailable if anything else did, or it dies again and again."""
        for child in (child for child in self.children.values() if not child.alive):
            if child.name != "engine":
                raise ServiceUnavailable(f"{_ended(child)} Everything else was ended. Start again with `backfill up`.")
            self.deaths = [*[at for at in self.deaths if time.monotonic() - at < TOO_SOON_S * TOO_OFTEN], time.monotonic()]
            if len(self.deaths) > TOO_OFTEN:
                raise ServiceUnavailable(
                    f"{_ended(child)} It was restarted {TOO_OFTEN} times and died again; everything else was ended. Give it "
                    'other memory (BACKFILL_SPARK_CONF, for example {"spark.driver.memory": "2g"}) or see `backfill doctor`.'
                )
            child.start()
            self._record()
            self.tell(f"The engine died and was started again (process {child.pid}). Log: {child.log}")

    def _warm(self) -> None:
        """Ask the engine something; this also shows that it and its clients hold the same token."""
        client, log = self.children["webserver"], self.settings.home / "logs" / "warm.log"
        command = [sys.executable, "-m", "backfill_assets.lake.warm"]
        with log.open("wb") as out:
            done = subprocess.run(command, env=dict(client.environment), cwd=client.folder, stdout=out, stderr=out, check=False)
        if done.returncode:
            raise ServiceUnavailable(f"The engine did not answer a first query. Everything was ended. Its words: {log}.")

    def end(self) -> None:
        end(self.children.values())

    def _record(self) -> None:
        pids = {name: child.pid for name, child in self.children.items()}
        Running(self.dagster.url, os.getpid(), pids, self.engine.port if self.engine else None).write(self.settings.home)

    def _await(self, what: str, holds: Callable[[], bool]) -> None:
        def there() -> bool:
            for child in self.children.values():
                if not child.alive:
                    raise ServiceUnavailable(f"{_ended(child)} Everything else was ended. See `backfill doctor`.")
            return holds()

        try:
            Retrying(stop=stop_after_delay(START_PATIENCE_S), wait=wait_fixed(0.2), retry=retry_if_result(lambda ok: not ok))(
                there
            )
        except RetryError:
            logs = self.settings.home / "logs"
            raise ServiceUnavailable(
                f"{what} did not answer within {START_PATIENCE_S} s. Everything was ended. Look into {logs}, or see "
                "`backfill doctor`."
            ) from None


@contextmanager
def servers_on(settings: Settings, port: int | None = None, tell: Callable[[str], None] = print) -> Iterator[Servers]:
    """Webserver, daemon and engine on this lake, ready; ended, whatever happens, when the block is left."""
    if port and is_taken(port):
        raise UsageError(
            f"Port {port} is taken. Nothing was started. End what uses it, or choose another: --port {free_port()}"
        )
    with only_servers(settings):
        prepare(settings)
        servers = planned(settings, port or free_port(), tell)
        try:
            servers.start()
            yield servers
        finally:
            with undisturbed():
                servers.end()


def planned(settings: Settings, port: int, tell: Callable[[str], None]) -> Servers:
    """The children that these settings ask for, none of them started."""
    # A server of the user's own, or a driver for each run, and there is nothing for an engine to do.
    engine = None if settings.spark_remote or settings.spark_master else Engine(free_port())
    env = environment(settings) | {"BACKFILL_DAGSTER_URL": f"http://127.0.0.1:{port}"}
    if engine:
        env |= engine.environment() | {"BACKFILL_SPARK_REMOTE": engine.remote, "SPARK_HOME": str(spark_home())}
    location = ["-m", settings.project]
    webserver = ["dagster_webserver", "-h", "127.0.0.1", "-p", str(port), *location]
    commands = {name: [sys.executable, "-m", *of] for name, of in
                {"webserver": webserver, "daemon": ["backfill_assets.servers.daemon", "run", *location]}.items()}  # fmt: skip
    if engine:
        commands["engine"] = engine_command(settings, engine, settings.home / "engine")
    children = {name: _child(name, command, env, settings.home) for name, command in commands.items()}
    return Servers(settings, port, engine, children, tell)


def _child(name: str, command: list[str], env: dict[str, str], home: Path) -> Child:
    # The engine writes its scratch files where it stands.
    return Child(name, command, env, home / "logs" / f"{name}.log", home / "engine" if name == "engine" else Path.cwd())


def _ended(child: Child) -> str:
    code = child.process.returncode if child.process else None
    return f"The {child.name} ended by itself (exit code {code}).\n{child.last_words()}\nIts log: {child.log}."
