"""What the servers find on disk and in their environment, and what they leave there: settings, logs, who runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout
from httpx import BaseTransport

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.servers.child import end_all, family
from backfill_assets.settings import Settings, project_at

DAGSTER_YAML = Path(__file__).with_name("dagster.yaml")

# A step tells of each day and each rule; written one by one, sixty days took longer to report than to compute.
EVENT_BATCH_SIZE = "1000"


def dagster_home(settings: Settings) -> Path:
    return Path(os.environ.get("DAGSTER_HOME") or settings.dagster_home).expanduser().absolute()


def prepare(settings: Settings) -> Path:
    """Dagster's folder with this project's dagster.yaml; a folder of the user's own keeps the one it has."""
    home = dagster_home(settings)
    home.mkdir(parents=True, exist_ok=True)
    target = home / "dagster.yaml"
    if home == settings.dagster_home or not target.exists():
        shutil.copyfile(DAGSTER_YAML, target)
    settings.landing.mkdir(parents=True, exist_ok=True)
    _make_databases(settings, home)
    return home


def _make_databases(settings: Settings, home: Path) -> None:
    """Let one process make Dagster's databases: three that began together have left them with two versions, unusable."""
    made = home / ".databases_made"
    if made.exists():
        return
    command = [sys.executable, "-m", "dagster", "instance", "info"]
    done = subprocess.run(command, env=environment(settings), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceUnavailable(
            f"Dagster cannot use its folder {home}. Nothing was started. Mend it, or set DAGSTER_HOME to another. "
            f"Dagster's words:\n{done.stderr[-800:]}"
        )
    made.touch()


def environment(settings: Settings) -> dict[str, str]:
    """Ours, and every setting spelled out, so that children see the same whatever folder or .env they find."""
    told = {f"BACKFILL_{name.upper()}": _text(value) for name, value in settings if value is not None and value != ()}
    ours = {name: value for name, value in os.environ.items() if not name.startswith("BACKFILL_")}
    batch = os.environ.get("DAGSTER_EVENT_BATCH_SIZE", EVENT_BATCH_SIZE)
    code = os.pathsep.join(filter(None, [str(project_at(Path.cwd())[0]), os.environ.get("PYTHONPATH")]))
    return ours | told | {"DAGSTER_HOME": str(dagster_home(settings)), "DAGSTER_EVENT_BATCH_SIZE": batch, "PYTHONPATH": code}


def _text(value: object) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def dagster_of(settings: Settings, transport: BaseTransport | None = None) -> Dagster:
    """The webserver that the settings name, or the one that runs on this home. `transport` is for tests."""
    here = None if "dagster_url" in settings.model_fields_set else running(settings.home)
    return Dagster(here.url if here else settings.dagster_url, transport)


@dataclass(frozen=True)
class Running:
    """What `servers.json` in the home says of the servers that run: never the token."""

    url: str
    pid: int
    children: Mapping[str, int]
    engine_port: int | None = None

    def write(self, home: Path) -> None:
        draft = _record(home).with_suffix(".new")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(_record(home))


def running(home: Path) -> Running | None:
    """The servers of this home; None where none run."""
    found = _recorded(home)
    return found if found and _known(found.pid, home) else None


@contextmanager
def only_servers(settings: Settings) -> Iterator[None]:
    """Hold this home: two daemons on one home would launch everything twice. What a killed holder left behind is ended."""
    home = settings.home
    home.mkdir(parents=True, exist_ok=True)
    lock = FileLock(home / "servers.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        found = running(home)
        where = f" at {found.url} (process {found.pid})" if found else ""
        raise UsageError(
            f"Servers already run on {home}{where}. Nothing was started. Use those, or end them with Ctrl-C first; "
            "or set BACKFILL_HOME to another folder."
        ) from None
    try:
        _end_orphans(home)
        yield
    finally:
        _record(home).unlink(missing_ok=True)
        lock.release()


def _end_orphans(home: Path) -> None:
    left = _recorded(home)
    known = [process for pid in (left.children.values() if left else ()) if (process := _known(pid, home))]
    found = [member for process in known for member in family(process.pid)]
    for process in found:
        process.terminate()
    end_all(found)


def _record(home: Path) -> Path:
    return home / "servers.json"


def _recorded(home: Path) -> Running | None:
    try:
        return Running(**json.loads(_record(home).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _known(pid: int, home: Path) -> psutil.Process | None:
    """The recorded process, if it lives; its number may have been given to another after the record was written."""
    try:
        process = psutil.Process(pid)
        older = process.create_time() <= _record(home).stat().st_mtime + 1
        return process if older and process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, OSError):
        return None
