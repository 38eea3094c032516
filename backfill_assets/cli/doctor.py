"""`backfill doctor`: what is wrong with settings, machine and servers, each with its remedy."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil

from backfill_assets.cli.doctor_servers import listening, servers
from backfill_assets.cli.doctor_settings import calendar, settings_found
from backfill_assets.cli.finding import Finding, Level
from backfill_assets.errors import BackfillError, ProjectError
from backfill_assets.lake.delta_table import version_of
from backfill_assets.lake.jars import DELTA_PACKAGE, JARS_REMEDY, jar_of
from backfill_assets.lake.session import require_java
from backfill_assets.servers.home import dagster_home
from backfill_assets.servers.listening import is_private
from backfill_assets.setting_names import host_of
from backfill_assets.settings import Settings
from backfill_assets.workspace import area_of, open_workspace

GIB = 2**30
# The sample's lake takes 60 MB; below 1 GiB Spark's scratch files do not fit, below 5 GiB not those of much more data.
DISK_NEEDED, DISK_RECOMMENDED = 1 * GIB, 5 * GIB
# The engine's heap of 4 GiB, plus Dagster's processes.
MEMORY_RECOMMENDED = 7 * GIB


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
        workspace = open_workspace(only_reading=True)
    except BackfillError as error:
        of_project = isinstance(error, ProjectError)
        where = error.place or "the project's module" if isinstance(error, ProjectError) else "the environment or .env"
        yield Finding("FAIL", "project" if of_project else "settings", str(error), f"correct {where}")
        return
    settings = workspace.settings
    yield settings_found(settings)
    yield home(settings)
    yield calendar(workspace)
    yield java(settings)
    yield jars(settings, workspace.packages)
    yield from disks(settings)
    yield memory(settings)
    yield lake(settings)
    yield landing(settings)
    yield from servers(settings, workspace.packages, workspace.names)
    yield from listening(settings)


def home(settings: Settings) -> Finding:
    """Who may read the home, and Dagster's folder where that is elsewhere. A lake or landing area elsewhere is its owner's."""
    if not settings.home.exists():
        return to_be_made(settings.home, "home", "BACKFILL_HOME")
    folders = {folder for folder in (settings.home, dagster_home(settings)) if folder.exists()}
    outside = {folder for folder in folders if folder == settings.home or settings.home not in folder.parents}
    readable = sorted(str(folder) for folder in outside if not is_private(folder))
    if readable:
        message = f"{' and '.join(readable)} can be read by other users of this machine, with logs, records and tables"
        return Finding("warn", "home", message, f"chmod 700 {' '.join(readable)}")
    return Finding("ok", "home", f"{settings.home} can be read by its owner only")


def to_be_made(folder: Path, what: str, setting: str) -> Finding:
    """A folder that does not exist yet, and whether this user may make it."""
    parent = existing(folder)
    with suppress(OSError), tempfile.TemporaryFile(dir=parent):
        return Finding("ok", what, f"{folder} does not exist yet; what writes into it makes it")
    message = f"{folder} does not exist, and cannot be made in {parent} by this user"
    return Finding("FAIL", what, message, f"correct the permissions of {parent}, or set {setting} to another folder")


def java(settings: Settings) -> Finding:
    if settings.spark_remote:
        return Finding("ok", "java", f"not needed: Spark runs at {host_of(settings.spark_remote)}")
    try:
        return Finding("ok", "java", f"version {require_java()}")
    except BackfillError as error:
        return Finding("FAIL", "java", str(error))


def jars(settings: Settings, packages: Sequence[str] = ()) -> Finding:
    """Delta's jars and those of `packages`: named by a setting, fetched by an earlier start of Spark, or to be fetched yet."""
    if settings.spark_remote:
        needs = f"it needs those of {', '.join(packages)}" if packages else "not needed"
        return Finding("ok", "jars", f"{needs}: Spark runs at {host_of(settings.spark_remote)}")
    if settings.spark_jars:
        named = {jar.name for jar in settings.spark_jars}
        if lacking := [package for package in packages if jar_of(package) not in named]:
            message = f"BACKFILL_SPARK_JARS names no jar of {', '.join(lacking)}, by which sources are read"
            return Finding("FAIL", "jars", message, "add it, with the jars that it needs itself")
        return Finding("ok", "jars", f"{len(settings.spark_jars)} named by BACKFILL_SPARK_JARS")
    wanted = {package: f"{package.split(':')[0]}_{jar_of(package)}" for package in (DELTA_PACKAGE, *packages)}
    fetched = {path.name: path for folder in Path.home().glob(".ivy2*") for path in folder.glob("jars/*.jar")}
    if lacking := [package for package, jar in wanted.items() if jar not in fetched]:
        message = f"{', '.join(lacking)} not on this machine yet; Spark fetches them at its first start."
        return Finding("warn", "jars", message, f"if that fails: {JARS_REMEDY}")
    return Finding("ok", "jars", ", ".join(str(fetched[jar]) for jar in wanted.values()))


def disks(settings: Settings) -> list[Finding]:
    """The free space of the home, and of the lake where that is on another disk."""
    places = {"BACKFILL_HOME": existing(settings.home)}
    if "://" not in settings.lake:
        places["BACKFILL_LAKE"] = existing(Path(settings.lake))
    settings_of = {folder.stat().st_dev: setting for setting, folder in reversed(places.items())}
    return [disk(places[setting], setting) for setting in places if setting in settings_of.values()]


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(each for each in [folder, *folder.parents] if each.exists())


def disk(folder: Path, setting: str) -> Finding:
    free = psutil.disk_usage(str(folder)).free
    level: Level = "ok" if free >= DISK_RECOMMENDED else "warn" if free >= DISK_NEEDED else "FAIL"
    remedy = "" if level == "ok" else f"make room, or set {setting} to a larger disk"
    return Finding(level, "disk", f"{free / GIB:.1f} GiB free at {folder}", remedy)


def memory(settings: Settings) -> Finding:
    total = psutil.virtual_memory().total
    if total >= MEMORY_RECOMMENDED or settings.spark_remote:
        return Finding("ok", "memory", f"{total / GIB:.1f} GiB")
    return Finding("warn", "memory", f"{total / GIB:.1f} GiB", """BACKFILL_SPARK_CONF='{"spark.driver.memory": "2g"}'""")


def lake(settings: Settings) -> Finding:
    try:
        if "://" not in settings.lake:
            if not Path(settings.lake).exists():
                return to_be_made(Path(settings.lake), "lake", "BACKFILL_LAKE")
            with tempfile.TemporaryFile(dir=settings.lake):
                pass
        version = version_of(f"{settings.lake}/_ledger")
    except Exception as error:
        remedy = "correct its permissions or its address, or set BACKFILL_LAKE"
        return Finding("FAIL", "lake", f"{settings.lake}: {error}", remedy)
    contents = "is empty" if version < 0 else f"has a ledger of {version + 1} commits"
    return Finding("ok", "lake", f"{settings.lake} {contents}")


def landing(settings: Settings) -> Finding:
    tree = area_of(settings).tree("", lambda: [("", False)])
    if tree.fault:
        return Finding("FAIL", "landing", f"{settings.landing} {tree.fault}", "set BACKFILL_LANDING, or the store's variables")
    if tree.entries(tree.top):
        return Finding("ok", "landing", settings.landing)
    return Finding("warn", "landing", f"{settings.landing} is empty", "set BACKFILL_LANDING, or type `backfill demo`")
