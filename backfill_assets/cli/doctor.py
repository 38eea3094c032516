"""`backfill doctor`: what is wrong with settings, machine and servers, each with its remedy."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psutil

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError
from backfill_assets.lake.ledger import version_of
from backfill_assets.lake.session import DELTA_PACKAGE, JARS_REMEDY, require_java
from backfill_assets.servers.child import USUAL_PORT, free_port, is_taken
from backfill_assets.servers.home import servers_record
from backfill_assets.settings import REMEMBERED, Settings, read_settings
from backfill_assets.workspace import Workspace, open_workspace

GIB = 2**30
# The sample's lake takes 60 MB; below 1 GiB Spark's scratch files do not fit, below 5 GiB not those of much more data.
DISK_NEEDED, DISK_RECOMMENDED = 1 * GIB, 5 * GIB
# The engine's heap of 4 GiB, plus Dagster's processes.
MEMORY_RECOMMENDED = 7 * GIB


@dataclass(frozen=True)
class Finding:
    level: Literal["ok", "warn", "FAIL"]
    what: str
    message: str
    remedy: str = ""

    def line(self) -> str:
        return f"{self.level:<5} {self.what:<9} {self.message}" + (f" Remedy: {self.remedy}" if self.remedy else "")


def run(*, as_json: bool = False) -> int:
    printed = []
    for finding in findings():
        printed.append(finding)
        if not as_json:
            print(finding.line(), flush=True)
    if as_json:
        print(json.dumps([asdict(finding) for finding in printed]))
    return 1 if any(finding.level == "FAIL" for finding in printed) else 0


def findings() -> Iterator[Finding]:
    """Every finding, in order; where the settings are not allowed, that one alone."""
    try:
        workspace = open_workspace()
    except BackfillError as error:
        yield Finding("FAIL", "settings", str(error), "correct the environment or .env")
        return
    settings = workspace.settings
    yield Finding("ok", "settings", f"project {settings.project}, home {settings.home}")
    yield calendar(workspace)
    yield java(settings)
    yield jars(settings)
    yield disk(settings)
    yield memory(settings)
    yield lake(settings)
    yield landing(settings)
    yield from servers(settings)


def calendar(workspace: Workspace) -> Finding:
    """The calendar's two ends, and where each comes from."""
    days, settings = workspace.calendar, workspace.settings
    own = read_settings(remembered=False)
    sources = {
        name: "the environment or .env" if name in own.model_fields_set
        else str(settings.home / REMEMBERED) if name in settings.model_fields_set
        else "the project"
        for name in ("first_day", "last_day")
    }  # fmt: skip
    last = f"{days.last} ({sources['last_day']})" if days.fixed_last else f"yesterday, {days.last} (no last day is set)"
    return Finding("ok", "calendar", f"{days.first} ({sources['first_day']}) to {last}")


def java(settings: Settings) -> Finding:
    if settings.spark_remote:
        return Finding("ok", "java", f"not needed: Spark runs at {settings.spark_remote}")
    try:
        return Finding("ok", "java", f"version {require_java()}")
    except BackfillError as error:
        return Finding("FAIL", "java", str(error))


def jars(settings: Settings) -> Finding:
    """Delta's jars: named by a setting, or fetched by an earlier start of Spark, or still to be fetched."""
    if settings.spark_remote:
        return Finding("ok", "jars", f"not needed: Spark runs at {settings.spark_remote}")
    if settings.spark_jars:
        return Finding("ok", "jars", f"{len(settings.spark_jars)} named by BACKFILL_SPARK_JARS")
    group, name, version = DELTA_PACKAGE.split(":")
    wanted = f"{group}_{name}-{version}.jar"
    fetched = [path for folder in Path.home().glob(".ivy2*") for path in folder.glob(f"jars/{wanted}")]
    if fetched:
        return Finding("ok", "jars", f"{fetched[0]}")
    return Finding(
        "warn", "jars", "not on this machine yet; Spark fetches them at its first start.", f"if that fails: {JARS_REMEDY}"
    )


def disk(settings: Settings) -> Finding:
    existing = next(folder for folder in [settings.home, *settings.home.parents] if folder.exists())
    free = psutil.disk_usage(str(existing)).free
    level: Literal["ok", "warn", "FAIL"] = "ok" if free >= DISK_RECOMMENDED else "warn" if free >= DISK_NEEDED else "FAIL"
    remedy = "" if level == "ok" else "make room, or set BACKFILL_HOME to a larger disk"
    return Finding(level, "disk", f"{free / GIB:.1f} GiB free at {existing}", remedy)


def memory(settings: Settings) -> Finding:
    total = psutil.virtual_memory().total
    if total >= MEMORY_RECOMMENDED or settings.spark_remote:
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
        remedy = "correct its permissions or its address, or set BACKFILL_LAKE"
        return Finding("FAIL", "lake", f"{settings.lake}: {error}", remedy)
    contents = "is empty" if version < 0 else f"has a ledger of {version + 1} commits"
    return Finding("ok", "lake", f"{settings.lake} {contents}")


def landing(settings: Settings) -> Finding:
    if settings.landing.is_dir() and any(settings.landing.iterdir()):
        return Finding("ok", "landing", str(settings.landing))
    return Finding("warn", "landing", f"{settings.landing} is empty", "set BACKFILL_LANDING, or type `backfill demo`")


def servers(settings: Settings) -> Iterator[Finding]:
    """The servers that run on this home; if none do, whether their port is free."""
    record = servers_record(settings.home)
    dagster = Dagster(settings.dagster_url or (record.url if record else f"http://127.0.0.1:{USUAL_PORT}"), timeout=5.0)
    if not record and not settings.dagster_url and dagster.answers():
        remedy = f"backfill up --port {free_port()}"
        yield Finding("ok", "servers", f"none run on this home; those at port {USUAL_PORT} are not asked", remedy)
        return
    port = urlsplit(dagster.url).port or 80
    if not dagster.answers():
        if is_taken(port):
            yield Finding("warn", "port", f"{port} is used by another process", f"backfill up --port {free_port()}")
        else:
            yield Finding("ok", "servers", f"none run; port {port} is free for `backfill up`")
        return
    yield Finding("ok", "webserver", dagster.url)
    for daemon, healthy in dagster.daemons().items():
        remedy = "" if healthy else f"see {settings.home / 'logs' / 'daemon.log'}, then start again with `backfill up`"
        yield Finding("ok" if healthy else "FAIL", "daemon", daemon.lower(), remedy)
    if record and record.engine_port:
        listens = is_taken(record.engine_port)
        remedy = "" if listens else f"it is being restarted; if not, see {settings.home / 'logs' / 'engine.log'}"
        yield Finding("ok" if listens else "FAIL", "engine", f"port {record.engine_port}", remedy)
