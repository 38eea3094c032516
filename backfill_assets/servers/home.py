"""The home of the servers: Dagster's folder, their environment, and the running servers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout
from httpx import BaseTransport
from pydantic import TypeAdapter

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import NOTHING_CHANGED, ServiceUnavailable, UsageError
from backfill_assets.lake.storage import write_whole
from backfill_assets.project_file import import_paths
from backfill_assets.servers.child import ProcessId, process_tree, wait_or_kill
from backfill_assets.servers.parts import Part
from backfill_assets.servers.storage import (
    IN_POSTGRES,
    VARIABLE,
    alone_in_storage,
    dagster_yaml,
    without_secrets,
)
from backfill_assets.settings import PRIVATE, Settings, project_at
from backfill_assets.tries import Note, wait_until

# The socket of the run starter (orchestration/local/run_starter.py). It is not a setting, because
# `backfill up` sets it for its servers.
RUN_STARTER_VARIABLE = "_BACKFILL_RUN_STARTER"

# A step logs an event for each day and rule. Written one by one, the events of sixty days took
# longer to report than the rows to compute.
EVENT_BATCH_SIZE = "1000"


def dagster_home(settings: Settings) -> Path:
    return Path(os.environ.get("DAGSTER_HOME") or settings.dagster_home).expanduser().absolute()


def prepare(settings: Settings) -> Path:
    """Create Dagster's folder with this package's dagster.yaml, and return the folder.

    An edited dagster.yaml stays, and so does one in a folder that the user named. Raises UsageError
    if such a file does not use the storage of the settings.
    """
    home = dagster_home(settings)
    home.mkdir(PRIVATE, parents=True, exist_ok=True)
    target = home / "dagster.yaml"
    written = home / ".dagster_yaml_written"
    ours = (
        target.read_bytes() == written.read_bytes()
        if written.exists()
        else home == settings.dagster_home
    )
    if not target.exists() or ours:
        for file in (target, written):
            file.write_text(dagster_yaml(settings))
    elif settings.dagster_storage and VARIABLE not in target.read_text():
        raise UsageError(
            f"{target} is your own file, and does not use {VARIABLE}.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Unset {VARIABLE}, or add these lines to the file:\n{IN_POSTGRES}",
        )
    if "://" not in settings.landing:
        Path(settings.landing).mkdir(parents=True, exist_ok=True)
    _make_databases(settings, home)
    return home


def _make_databases(settings: Settings, home: Path) -> None:
    """Create Dagster's databases in one process.

    Three processes at once created them at two versions, which were unusable. A database in
    PostgreSQL is checked each time, because the address may name another server.
    """
    made = home / ".databases_made"
    if made.exists() and not settings.dagster_storage:
        return
    command = [sys.executable, "-m", "dagster", "instance", "info"]
    with alone_in_storage(settings):
        result = subprocess.run(
            command, env=environment(settings), capture_output=True, text=True, check=False
        )
    if result.returncode:
        message = without_secrets(result.stderr, settings.dagster_storage)[-800:]
        raise ServiceUnavailable(
            f"Dagster cannot use its folder {home}, or the database that it names.",
            unchanged=NOTHING_CHANGED,
            next_step=(f"Repair it, or set DAGSTER_HOME to another. Dagster's message:\n{message}"),
        )
    if not settings.dagster_storage:
        made.touch()


def environment(settings: Settings) -> dict[str, str]:
    """This process's environment with every setting, so that no child reads another .env."""
    values = {
        f"BACKFILL_{name.upper()}": _text(value)
        for name, value in settings
        if value is not None and value != ()
    }
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("BACKFILL_")
    }
    batch = os.environ.get("DAGSTER_EVENT_BATCH_SIZE", EVENT_BATCH_SIZE)
    paths = [*import_paths(project_at(Path.cwd())[0]), os.environ.get("PYTHONPATH")]
    return {
        **inherited,
        **values,
        "DAGSTER_HOME": str(dagster_home(settings)),
        "DAGSTER_EVENT_BATCH_SIZE": batch,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def _text(value: object) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def dagster_of(settings: Settings, transport: BaseTransport | None = None) -> Dagster:
    """The webserver that the settings name, or else the one that runs on this home.

    Without either, it has no URL and every request raises ServiceUnavailable.
    """
    record = servers_record(settings.home)
    url = settings.dagster_url or (record.url if record else "")
    return Dagster(url, transport, token=settings.dagster_token, ca=settings.dagster_ca)


def started_dagster(settings: Settings, note: Note) -> Dagster:
    """The webserver as `dagster_of`, after the servers of this home have started.

    Waits until they have started or ended. `note` gets one line if it must wait.
    """

    def have_started() -> bool:
        record = servers_record(settings.home)
        return not record or record.started

    if not settings.dagster_url and not have_started():
        note(f"The servers on {settings.home} are starting. Waiting for them ...")
        wait_until(have_started)
    return dagster_of(settings)


@dataclass(frozen=True)
class ServersRecord:
    """The record of running servers, in `servers.json` of the home.

    `up` is the process of `backfill up`, and `children` are its servers by name. `started` is False
    while they start. The record never contains the engine's token.
    """

    url: str
    up: ProcessId
    children: Mapping[str, ProcessId]
    engine_port: int | None = None
    started: bool = True

    def write(self, home: Path, only: Part | None = None) -> None:
        write_whole(_record_file(home, only), json.dumps(asdict(self)))


def servers_records(home: Path, part: Part | None = None) -> list[ServersRecord]:
    """The records of `backfill up` on this home, and of each `up --only`.

    With a `part`, only the records of `backfill up` and of this part.
    """
    files = [_record_file(home, each) for each in ((None, part) if part else (None, *Part))]
    records = [_read_record(file) for file in files]
    return [record for record in records if record and record.up.find()]


def servers_record(home: Path) -> ServersRecord | None:
    """The record of the servers on this home that include a webserver, or None."""
    return next((record for record in servers_records(home) if record.url), None)


@contextmanager
def only_servers(settings: Settings, log: Note = print, only: Part | None = None) -> Iterator[None]:
    """Lock this home, because two daemons on it would launch everything twice.

    `only` is the one server to run; servers that run alone share the home. Ends servers that a
    killed `backfill up` left running. Raises UsageError if servers run on this home.
    """
    home = settings.home
    home.mkdir(PRIVATE, parents=True, exist_ok=True)
    names = [f"servers-{part}" for part in Part if only in (None, part)]
    locks = ExitStack()
    try:
        for name in [*names, *([] if only else ["servers"])]:
            locks.enter_context(FileLock(home / f"{name}.lock", timeout=0))
    except Timeout:
        locks.close()
        record = next(iter(servers_records(home, only)), None)
        where = f" at {record.url or home} (process {record.up.pid})" if record else ""
        raise UsageError(
            f"Servers already run on {home}{where}.",
            unchanged=NOTHING_CHANGED,
            next_step=(
                "Use those, or stop them first: `backfill down`; or set BACKFILL_HOME to "
                "another folder."
            ),
        ) from None
    try:
        _end_leftovers(home, log)
        yield
    finally:
        _record_file(home, only).unlink(missing_ok=True)
        locks.close()


def _end_leftovers(home: Path, log: Note) -> None:
    """End servers that a killed `backfill up` left running, and log their names.

    They may differ from the servers that start now.
    """
    records = [_read_record(_record_file(home, part)) for part in (None, *Part)]
    leftovers = [
        (name, process)
        for record in records
        if record and not record.up.find()
        for name, child in record.children.items()
        if (process := child.find())
    ]
    if not leftovers:
        return
    names = ", ".join(f"{name} (process {process.pid})" for name, process in leftovers)
    log(f"An earlier `backfill up` on {home} was killed. Ending what it left running: {names} ...")
    ending: list[psutil.Process] = []
    for _, process in leftovers:
        # Children of a killed process may have ended meanwhile.
        with suppress(psutil.NoSuchProcess):
            ending += process_tree(process.pid)
    for process in ending:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    wait_or_kill(ending)


def _record_file(home: Path, only: Part | None) -> Path:
    return home / (f"servers-{only}.json" if only else "servers.json")


def _read_record(file: Path) -> ServersRecord | None:
    try:
        return TypeAdapter(ServersRecord).validate_json(file.read_bytes())
    except (OSError, ValueError):
        # there is no valid record
        return None
