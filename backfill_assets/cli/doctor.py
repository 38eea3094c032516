"""`backfill doctor`: what this machine lacks, each with its remedy."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psutil

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError
from backfill_assets.lake.ledger import version_of
from backfill_assets.lake.session import DELTA_PACKAGE, JARS_REMEDY, require_java
from backfill_assets.servers.child import free_port, is_taken
from backfill_assets.servers.place import running
from backfill_assets.settings import Settings
from backfill_assets.workspace import open_workspace

GIB = 2**30
# The sample's lake takes 60 MB; below 1 GiB Spark's scratch files do not fit, below 5 GiB not those of much more data.
DISK_NEEDED, DISK_WISHED = 1 * GIB, 5 * GIB
# The engine's heap of 4 GiB, and Dagster's processes beside it.
MEMORY_WISHED = 7 * GIB


@dataclass(frozen=True)
class Finding:
    level: Literal["ok", "warn", "FAIL"]
    what: str
    message: str
    remedy: str = ""

    def line(self) -> str:
        return f"{self.level:<5} {self.what:<9} {self.message}" + (f" Remedy: {self.remedy}" if self.remedy else "")


def run(tell: Callable[[str], None] = print, *, as_json: bool = False) -> int:
    found = []
    for finding in findings():
        found.append(finding)
        if not as_json:
            tell(finding.line())
    if as_json:
        tell(json.dumps([asdict(finding) for finding in found]))
    return 1 if any(finding.level == "FAIL" for finding in found) else 0


def findings() -> Iterator[Finding]:
    """Everything that is looked at, in order; with settings that are not allowed, nothing else can be."""
    try:
        workspace = open_workspace()
    except BackfillError as error:
        yield Finding("FAIL", "settings", str(error), "correct the environment or .env")
        return
    settings, calendar = workspace.settings, workspace.calendar
    last = calendar.fixed_last or f"yesterday ({calendar.last})"
    yield Finding("ok", "settings", f"project {settings.project}, home {settings.home}, calendar {calendar.first} to {last}")
    yield java(settings)
    yield jars(settings)
    yield disk(settings)
    yield memory(settings)
    yield lake(settings)
    yield landing(settings)
    yield from servers(settings)


def java(settings: Settings) -> Finding:
    if settings.spark_remote:
        return Finding("ok", "java", f"not needed: Spark runs at {settings.spark_remote}")
    try:
        return Finding("ok", "java", f"version {require_java()}")
    except BackfillError as error:
        return Finding("FAIL", "java", str(error))


def jars(settings: Settings, user_home: Path | None = None) -> Finding:
    """Delta's jars: given, or fetched before, or still to be fetched."""
    if settings.spark_remote:
        return Finding("ok", "jars", f"not needed: Spark runs at {settings.spark_remote}")
    if settings.spark_jars:
        return Finding("ok", "jars", f"{len(settings.spark_jars)} given by BACKFILL_SPARK_JARS")
    group, name, version = DELTA_PACKAGE.split(":")
    wanted = f"{group}_{name}-{version}.jar"
    found = [path for folder in (user_home or Path.home()).glob(".ivy2*") for path in folder.glob(f"jars/{wanted}")]
    if found:
        return Finding("ok", "jars", f"{found[0]}")
    return Finding(
        "warn", "jars", "not on this machine yet; Spark fetches them at its first start.", f"if that fails: {JARS_REMEDY}"
    )


def disk(settings: Settings) -> Finding:
    there = next(folder for folder in [settings.home, *settings.home.parents] if folder.exists())
    free = psutil.disk_usage(str(there)).free
    level: Literal["ok", "warn", "FAIL"] = "ok" if free >= DISK_WISHED else "warn" if free >= DISK_NEEDED else "FAIL"
    remedy = "" if level == "ok" else "make room, or set BACKFILL_HOME to a larger disk"
    return Finding(level, "disk", f"{free / GIB:.1f} GiB free at {there}", remedy)


def memory(settings: Settings) -> Finding:
    total = psutil.virtual_memory().total
    if total >= MEMORY_WISHED or settings.spark_remote:
        return Finding("ok", "memory", f"{total / GIB:.1f} GiB")
    return Finding("warn", "memory", f"{total / GIB:.1f} GiB", """BACKFILL_SPARK_CONF='{"spark.driver.memory": "2g"}'""")


def lake(settings: Settings) -> Finding:
    try:
        if "://" not in settings.lake:
            Path(settings.lake).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=settings.lake):
                pass
        version = version_of(f"{settings.lake}/_ledger")
    except Exception as error:
        return Finding("FAIL", "lake", f"{settings.lake}: {error}", "mend its permissions or its address, or set BACKFILL_LAKE")
    return Finding(
        "ok", "lake", f"{settings.lake} " + ("is empty" if version < 0 else f"has a ledger of {version + 1} commits")
    )


def landing(settings: Settings) -> Finding:
    if settings.landing.is_dir() and any(settings.landing.iterdir()):
        return Finding("ok", "landing", str(settings.landing))
    return Finding("warn", "landing", f"{settings.landing} holds nothing", "set BACKFILL_LANDING, or type `backfill demo`")


def servers(settings: Settings) -> Iterator[Finding]:
    """The servers that run on this home, or whether the port for them is free."""
    found = running(settings.home)
    dagster = Dagster(found.url if found else settings.dagster_url, timeout=5.0)
    port = urlsplit(dagster.url).port or 80
    if not dagster.answers():
        if is_taken(port):
            yield Finding("warn", "port", f"{port} is taken by something else", f"backfill up --port {free_port()}")
        else:
            yield Finding("ok", "servers", f"none run; port {port} is free for `backfill up`")
        return
    yield Finding("ok", "webserver", dagster.url)
    for daemon, healthy in dagster.daemons().items():
        remedy = "" if healthy else f"see {settings.home / 'logs' / 'daemon.log'}, then start again with `backfill up`"
        yield Finding("ok" if healthy else "FAIL", "daemon", daemon.lower(), remedy)
    if found and found.engine_port:
        well = is_taken(found.engine_port)
        remedy = "" if well else f"it is being restarted; if not, see {settings.home / 'logs' / 'engine.log'}"
        yield Finding("ok" if well else "FAIL", "engine", f"port {found.engine_port}", remedy)
