"""What `backfill doctor` finds: one line each.

What `backfill doctor` finds out about the servers: whether they are well, and everything that they
listen on.

What `backfill doctor` says of the settings that a command works by, and of where each comes from.

`backfill doctor`: what is wrong with settings, machine and servers, each with its remedy.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psutil

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError, ProjectError
from backfill_assets.lake.delta import version_of
from backfill_assets.lake.spark.engine import packages_lacking
from backfill_assets.lake.spark.jars import DELTA_PACKAGE, JARS_REMEDY, jar_of
from backfill_assets.lake.spark.session import require_java
from backfill_assets.rebuild.launch import WAY_OUT, tables_lacking
from backfill_assets.servers.child import USUAL_PORT, free_port, is_taken
from backfill_assets.servers.home import dagster_home, servers_record
from backfill_assets.servers.listening import Listener, is_private, listeners
from backfill_assets.settings import REMEMBERED, Settings, host_of, read_settings
from backfill_assets.verbs.status import project_set_by
from backfill_assets.workspace import Workspace, area_of, open_workspace

Level = Literal["ok", "warn", "FAIL"]


@dataclass(frozen=True)
class Finding:
    level: Level
    what: str
    message: str
    remedy: str = ""

    def line(self) -> str:
        return f"{self.level:<5} {self.what:<9} {self.message}" + (
            f" Remedy: {self.remedy}" if self.remedy else ""
        )


def servers(
    settings: Settings, packages: Sequence[str] = (), names: Sequence[str] = ()
) -> Iterator[Finding]:
    """The servers that run on this home, with the tables of `names`; if none do, whether their port
    is free.
    """
    record = servers_record(settings.home)
    dagster = Dagster(
        settings.dagster_url or (record.url if record else f"http://127.0.0.1:{USUAL_PORT}"),
        timeout=5.0,
    )
    if not record and not settings.dagster_url and dagster.answers():
        remedy = f"backfill up --port {free_port()}"
        yield Finding(
            "ok",
            "servers",
            f"none run on this home; those at port {USUAL_PORT} are not asked",
            remedy,
        )
        return
    port = urlsplit(dagster.url).port or 80
    if not dagster.answers():
        if is_taken(port):
            yield Finding(
                "warn",
                "port",
                f"{port} is used by another process",
                f"backfill up --port {free_port()}",
            )
        else:
            yield Finding("ok", "servers", f"none run; port {port} is free for `backfill up`")
        return
    yield webserver(dagster, names)
    for daemon, healthy in dagster.daemons().items():
        remedy = (
            ""
            if healthy
            else f"see {settings.home / 'logs' / 'daemon.log'}, then start again with `backfill up`"
        )
        yield Finding("ok" if healthy else "FAIL", "daemon", daemon.lower(), remedy)
    if record and record.engine_port:
        listens = is_taken(record.engine_port)
        remedy = (
            ""
            if listens
            else f"it is being restarted; if not, see {settings.home / 'logs' / 'engine.log'}"
        )
        yield Finding("ok" if listens else "FAIL", "engine", f"port {record.engine_port}", remedy)
        if lacking := packages_lacking(settings.home / "engine", packages):
            message = f"it was started without {', '.join(lacking)}, by which sources are read"
            yield Finding("FAIL", "engine", message, "`backfill down`, then `backfill up`")


def webserver(dagster: Dagster, names: Sequence[str]) -> Finding:
    """Whether the webserver has loaded the tables of `names`."""
    try:
        lacking = tables_lacking(dagster.tables(), names)
    except BackfillError as error:
        return Finding("FAIL", "webserver", str(error))
    if lacking:
        return Finding("warn", "webserver", f"those at {dagster.url} {lacking}", WAY_OUT)
    return Finding("ok", "webserver", dagster.url)


def listening(settings: Settings) -> Iterator[Finding]:
    """Everything that the servers of this home listen on, and who may connect."""
    record = servers_record(settings.home)
    children = {name: child.pid for name, child in record.children.items()} if record else {}
    for listener in listeners(children):
        if listener.open_to_others:
            others = (
                "any machine that reaches this one"
                if listener.port
                else "other users of this machine"
            )
            remedy = (
                "close the port in the firewall"
                if listener.port
                else f"chmod 700 {listener.address}"
            )
            yield Finding("warn", "listens", f"{listener}, for {others}", remedy)
        else:
            yield Finding("ok", "listens", f"{listener}, for {clients_of(listener, settings)}")


def clients_of(listener: Listener, settings: Settings) -> str:
    """Who may connect to what only this machine can reach."""
    if not listener.port:
        return "your own programs"
    if listener.server == "webserver":
        pages = ", ".join(
            ["its own web pages", *(f"those of {host}" for host in settings.allowed_hosts)]
        )
        return f"programs of this machine, and {pages}; without a login"
    return "programs of this machine" + (
        " that have its secret" if listener.server == "engine" else ""
    )


def settings_found(settings: Settings) -> Finding:
    """The project and the home; a warning where the folder names another project."""
    by, is_other = project_set_by(settings)
    message = f"project {settings.project}, {by}; home {settings.home}"
    return (
        Finding("warn", "settings", message, "unset BACKFILL_PROJECT")
        if is_other
        else Finding("ok", "settings", message)
    )


def calendar(workspace: Workspace) -> Finding:
    """The calendar's two ends, and where each comes from."""
    days = workspace.calendar
    settings = workspace.settings
    own = read_settings(remembered=False)
    sources = {
        name: "the environment or .env" if name in own.model_fields_set
        else str(settings.home / REMEMBERED) if name in settings.model_fields_set
        else "the project"
        for name in ("first_day", "last_day")
    }  # fmt: skip
    last = (
        f"{days.last} ({sources['last_day']})"
        if days.fixed_last
        else f"yesterday, {days.last} (no last day is set)"
    )
    return Finding("ok", "calendar", f"{days.first} ({sources['first_day']}) to {last}")


GIB = 2**30
# The sample's lake takes 60 MB; below 1 GiB Spark's scratch files do not fit, below 5 GiB not those
# of much more data.
DISK_NEEDED = 1 * GIB
DISK_RECOMMENDED = 5 * GIB
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
        where = (
            error.place or "the project's module"
            if isinstance(error, ProjectError)
            else "the environment or .env"
        )
        yield Finding(
            "FAIL", "project" if of_project else "settings", str(error), f"correct {where}"
        )
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
    """Who may read the home, and Dagster's folder where that is elsewhere. A lake or landing area
    elsewhere is its owner's.
    """
    if not settings.home.exists():
        return to_be_made(settings.home, "home", "BACKFILL_HOME")
    folders = {folder for folder in (settings.home, dagster_home(settings)) if folder.exists()}
    outside = {
        folder
        for folder in folders
        if folder == settings.home or settings.home not in folder.parents
    }
    readable = sorted(str(folder) for folder in outside if not is_private(folder))
    if readable:
        message = (
            f"{' and '.join(readable)} can be read by other users of this machine, with logs,"
            " records and tables"
        )
        return Finding("warn", "home", message, f"chmod 700 {' '.join(readable)}")
    return Finding("ok", "home", f"{settings.home} can be read by its owner only")


def to_be_made(folder: Path, what: str, setting: str) -> Finding:
    """A folder that does not exist yet, and whether this user may make it."""
    parent = existing(folder)
    with suppress(OSError), tempfile.TemporaryFile(dir=parent):
        return Finding("ok", what, f"{folder} does not exist yet; what writes into it makes it")
    message = f"{folder} does not exist, and cannot be made in {parent} by this user"
    return Finding(
        "FAIL",
        what,
        message,
        f"correct the permissions of {parent}, or set {setting} to another folder",
    )


def java(settings: Settings) -> Finding:
    if settings.spark_remote:
        return Finding("ok", "java", f"not needed: Spark runs at {host_of(settings.spark_remote)}")
    try:
        return Finding("ok", "java", f"version {require_java()}")
    except BackfillError as error:
        return Finding("FAIL", "java", str(error))


def jars(settings: Settings, packages: Sequence[str] = ()) -> Finding:
    """Delta's jars and those of `packages`: named by a setting, fetched by an earlier start of
    Spark, or to be fetched yet.
    """
    if settings.spark_remote:
        needs = f"it needs those of {', '.join(packages)}" if packages else "not needed"
        return Finding("ok", "jars", f"{needs}: Spark runs at {host_of(settings.spark_remote)}")
    if settings.spark_jars:
        named = {jar.name for jar in settings.spark_jars}
        if lacking := [package for package in packages if jar_of(package) not in named]:
            message = (
                f"BACKFILL_SPARK_JARS names no jar of {', '.join(lacking)}, by which sources are"
                " read"
            )
            return Finding("FAIL", "jars", message, "add it, with the jars that it needs itself")
        return Finding("ok", "jars", f"{len(settings.spark_jars)} named by BACKFILL_SPARK_JARS")
    wanted = {
        package: f"{package.split(':')[0]}_{jar_of(package)}"
        for package in (DELTA_PACKAGE, *packages)
    }
    fetched = {
        path.name: path
        for folder in Path.home().glob(".ivy2*")
        for path in folder.glob("jars/*.jar")
    }
    if lacking := [package for package, jar in wanted.items() if jar not in fetched]:
        message = (
            f"{', '.join(lacking)} not on this machine yet; Spark fetches them at its first start."
        )
        return Finding("warn", "jars", message, f"If that fails: {JARS_REMEDY}")
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
    return Finding(
        "warn",
        "memory",
        f"{total / GIB:.1f} GiB",
        """BACKFILL_SPARK_CONF='{"spark.driver.memory": "2g"}'""",
    )


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
        return Finding(
            "FAIL",
            "landing",
            f"{settings.landing} {tree.fault}",
            "set BACKFILL_LANDING, or the store's variables",
        )
    if tree.entries(tree.top):
        return Finding("ok", "landing", settings.landing)
    return Finding(
        "warn",
        "landing",
        f"{settings.landing} is empty",
        "set BACKFILL_LANDING, or type `backfill demo`",
    )
