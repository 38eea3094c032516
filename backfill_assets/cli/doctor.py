"""`backfill doctor`: check settings, machine, lake and servers, and name remedies.

The settings and their origin come first, then the machine, the lake, and the servers with their
addresses.
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

from backfill_assets.alerts.send import send_to_all
from backfill_assets.cli import exit_codes
from backfill_assets.dagster_client.client import Dagster, is_loopback
from backfill_assets.dagster_client.documents import VERSION
from backfill_assets.errors import (
    BackfillError,
    ProjectError,
    ServiceUnavailable,
    SettingsError,
    counted,
)
from backfill_assets.lake.backup import last_backup
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.object_store import refuse_unconditional
from backfill_assets.lake.spark.cluster import SECRET, refuse_silent
from backfill_assets.lake.spark.engine import packages_lacking
from backfill_assets.lake.spark.jars import JARS_REMEDY, jar_of, packages_of
from backfill_assets.lake.spark.session import driver_conf, require_java
from backfill_assets.rebuild.launch import WAY_OUT, tables_lacking
from backfill_assets.servers.child import USUAL_PORT, free_port, is_taken
from backfill_assets.servers.home import dagster_home, servers_record, servers_records
from backfill_assets.servers.listening import Listener, is_private, listeners
from backfill_assets.servers.storage import address_shown, refuse_unusable_storage
from backfill_assets.settings import (
    BUNDLED,
    REMEMBERED,
    Settings,
    host_of,
    master_of,
    nearest_existing,
    project_set_by,
    read_settings,
)
from backfill_assets.verbs.status import unread_files
from backfill_assets.workspace import (
    Workspace,
    area_of,
    open_workspace,
    refuse_missing_landing,
)

Level = Literal["ok", "warn", "FAIL"]

GIB = 2**30
# The sample's lake takes 60 MB. Spark's scratch files need 1 GiB, or 5 GiB for much more data.
DISK_NEEDED = 1 * GIB
DISK_RECOMMENDED = 5 * GIB
# The engine's heap of 4 GiB, plus Dagster's processes.
MEMORY_RECOMMENDED = 7 * GIB


@dataclass(frozen=True)
class Diagnosis:
    level: Level
    what: str
    message: str
    remedy: str = ""

    def line(self) -> str:
        remedy = f" Remedy: {self.remedy}" if self.remedy else ""
        return f"{self.level:<5} {self.what:<9} {self.message}{remedy}"


def run_doctor(*, as_json: bool = False, probe: bool = False) -> int:
    """Print each finding as soon as it is made. Return 1 if one is a failure.

    With `probe`, the conditional writes of the lake's store are tried.
    """
    printed = []
    for finding in findings(probe=probe):
        printed.append(finding)
        if not as_json:
            print(finding.line(), flush=True)
    if as_json:
        print(json.dumps([asdict(finding) for finding in printed]))
    has_failed = any(finding.level == "FAIL" for finding in printed)
    return exit_codes.PARTIAL if has_failed else exit_codes.DONE


def findings(*, probe: bool = False) -> Iterator[Diagnosis]:
    """Yield every finding, in order. If the settings are not allowed, yield that one alone."""
    try:
        workspace = open_workspace(only_reading=True)
    except ProjectError as error:
        place = error.place or "the project's module"
        yield Diagnosis("FAIL", "project", error.what, f"correct {place}")
        return
    except BackfillError as error:
        yield _failed("settings", error)
        return
    settings = workspace.settings
    yield _settings(settings)
    yield home(settings)
    yield _calendar(workspace)
    yield _java(settings)
    yield jars(settings, workspace.packages)
    yield from spark(settings)
    yield from disks(settings)
    yield _memory(settings)
    of_lake = lake(settings, workspace.calendar.zone, probe=probe)
    yield of_lake
    if of_lake.level == "ok":
        yield backup(settings)
    yield alerts(settings)
    yield _landing(settings)
    remedy = "rename them, or correct files= of the source, BACKFILL_FIRST_DAY or BACKFILL_LAST_DAY"
    for name, files in unread_files(workspace).items():
        yield Diagnosis("warn", "landing", f"{name}: {files}", remedy)
    yield from storage(settings)
    yield from _servers(settings, workspace.packages, workspace.names)
    yield from _listening(settings)


def _judged(
    is_well: bool, what: str, message: str, remedy: str, otherwise: Level = "FAIL"
) -> Diagnosis:
    """Return a finding with its remedy only if there is a problem."""
    return (
        Diagnosis("ok", what, message) if is_well else Diagnosis(otherwise, what, message, remedy)
    )


def _failed(what: str, error: BackfillError) -> Diagnosis:
    return Diagnosis("FAIL", what, error.what, error.next_step)


def _settings(settings: Settings) -> Diagnosis:
    """Name the project and the home. Warn if the folder names another project."""
    by, is_other = project_set_by(settings, Path.cwd())
    message = f"project {settings.project}, {by}; home {settings.home}"
    return _judged(not is_other, "settings", message, "unset BACKFILL_PROJECT", "warn")


def home(settings: Settings) -> Diagnosis:
    """Say who may read the home, and Dagster's folder if it is elsewhere."""
    if not settings.home.exists():
        return _not_made(settings.home, "home", "BACKFILL_HOME")
    dagster = dagster_home(settings)
    folders = {settings.home}
    if dagster.exists() and settings.home not in dagster.parents:
        folders.add(dagster)
    readable = sorted(str(folder) for folder in folders if not is_private(folder))
    if not readable:
        return Diagnosis("ok", "home", f"{settings.home} can be read by its owner only")
    message = (
        f"{' and '.join(readable)} can be read by other users of this machine, with logs,"
        " records and tables"
    )
    return Diagnosis("warn", "home", message, f"chmod 700 {' '.join(readable)}")


def _not_made(folder: Path, what: str, setting: str) -> Diagnosis:
    """Say whether this user may create a folder that does not exist."""
    parent = nearest_existing(folder)
    with suppress(OSError), tempfile.TemporaryFile(dir=parent):
        return Diagnosis("ok", what, f"{folder} does not exist yet; it is made when needed")
    message = f"{folder} does not exist, and this user cannot make it in {parent}"
    remedy = f"correct the permissions of {parent}, or set {setting} to another folder"
    return Diagnosis("FAIL", what, message, remedy)


def _calendar(workspace: Workspace) -> Diagnosis:
    """Name the two ends of the calendar, and the origin of each."""
    days = workspace.calendar
    settings = workspace.settings
    typed = read_settings(remembered=False).model_fields_set

    def source(name: str) -> str:
        if name in typed:
            return "the environment or .env"
        is_remembered = name in settings.model_fields_set
        return str(settings.home / REMEMBERED) if is_remembered else "the project"

    last = f"yesterday, {days.last} (no last day is set)"
    if days.fixed_last:
        last = f"{days.last} ({source('last_day')})"
    first = f"{days.first} ({source('first_day')})"
    return Diagnosis("ok", "calendar", f"{first} to {last}, in {days.zone}")


def _java(settings: Settings) -> Diagnosis:
    if settings.spark_remote:
        return Diagnosis(
            "ok", "java", f"not needed: Spark runs at {host_of(settings.spark_remote)}"
        )
    try:
        return Diagnosis("ok", "java", f"version {require_java(driver_conf(settings))}")
    except BackfillError as error:
        return _failed("java", error)


def jars(settings: Settings, packages: Sequence[str] = ()) -> Diagnosis:
    """Say whether the jars of Delta and of `packages` are named, fetched, or yet to be fetched."""
    if settings.spark_remote:
        needs = f"it needs those of {', '.join(packages)}" if packages else "not needed"
        return Diagnosis("ok", "jars", f"{needs}: Spark runs at {host_of(settings.spark_remote)}")
    if settings.spark_jars:
        jar_names = {jar.name for jar in settings.spark_jars}
        lacking = [package for package in packages if jar_of(package) not in jar_names]
        message = f"{len(settings.spark_jars)} named by BACKFILL_SPARK_JARS"
        if lacking:
            message = (
                f"BACKFILL_SPARK_JARS names no jar of {', '.join(lacking)}, which sources need"
            )
        remedy = "add it, with the jars that it needs itself"
        return _judged(not lacking, "jars", message, remedy)
    wanted = {
        package: f"{package.split(':')[0]}_{jar_of(package)}"
        for package in packages_of(settings, packages)
    }
    fetched = {path.name: path for path in Path.home().glob(".ivy2*/jars/*.jar")}
    lacking = [package for package, jar in wanted.items() if jar not in fetched]
    message = ", ".join(str(fetched[jar]) for jar in wanted.values() if jar in fetched)
    if lacking:
        message = (
            f"{', '.join(lacking)} not on this machine yet; Spark fetches them at its first start."
        )
    return _judged(not lacking, "jars", message, f"If that fails: {JARS_REMEDY}", "warn")


def spark(settings: Settings) -> Iterator[Diagnosis]:
    """Say whether the Spark Connect server or the standalone master answers, and has a secret."""
    address = settings.spark_remote or master_of(settings)
    if not address.startswith(("sc://", "spark://")):
        return
    try:
        refuse_silent(address)
    except ServiceUnavailable as error:
        yield _failed("spark", error)
        return
    message = f"{host_of(address)} accepts connections"
    is_closed = bool(settings.spark_remote) or SECRET in settings.spark_conf
    if not is_closed:
        message += ", and shares no secret with runs: all who reach them can run code in them"
    remedy = f"give the master, the workers and BACKFILL_SPARK_CONF the same {SECRET}"
    yield _judged(is_closed, "spark", message, remedy, "warn")


def disks(settings: Settings) -> list[Diagnosis]:
    """Give the free space of the home, and of the lake if that is on another disk."""
    places = {"BACKFILL_HOME": nearest_existing(settings.home)}
    if "://" not in settings.lake:
        folder = nearest_existing(Path(settings.lake))
        if folder.stat().st_dev != places["BACKFILL_HOME"].stat().st_dev:
            places["BACKFILL_LAKE"] = folder
    return [_disk(folder, setting) for setting, folder in places.items()]


def _disk(folder: Path, setting: str) -> Diagnosis:
    free = psutil.disk_usage(str(folder)).free
    return _judged(
        free >= DISK_RECOMMENDED,
        "disk",
        f"{free / GIB:.1f} GiB free at {folder}",
        f"make room, or set {setting} to a larger disk",
        "warn" if free >= DISK_NEEDED else "FAIL",
    )


def _memory(settings: Settings) -> Diagnosis:
    total = psutil.virtual_memory().total
    is_enough = total >= MEMORY_RECOMMENDED or bool(settings.spark_remote)
    remedy = """BACKFILL_SPARK_CONF='{"spark.driver.memory": "2g"}'"""
    return _judged(is_enough, "memory", f"{total / GIB:.1f} GiB", remedy, "warn")


def lake(settings: Settings, zone: str = "", *, probe: bool = False) -> Diagnosis:
    """Say whether the lake can be used. With `probe`, try what writers need of an object store."""
    tried = probe and "://" in settings.lake
    try:
        if tried:
            refuse_unconditional(settings.lake)
        if "://" not in settings.lake:
            if not Path(settings.lake).exists():
                return _not_made(Path(settings.lake), "lake", "BACKFILL_LAKE")
            with tempfile.TemporaryFile(dir=settings.lake):
                pass
        log = Ledger(settings.lake, zone).files().files.log
    except BackfillError as error:
        return _failed("lake", error)
    except Exception as error:
        remedy = "correct its permissions or its address, or set BACKFILL_LAKE"
        return Diagnosis("FAIL", "lake", f"{settings.lake}: {error}", remedy)
    contents = f"has a ledger of {log.version + 1} commits" if log else "is empty"
    if tried:
        contents += ", and its store honours the conditions of writes"
    return Diagnosis("ok", "lake", f"{settings.lake} {contents}")


def backup(settings: Settings) -> Diagnosis:
    """Say when the lake was backed up last, and where to."""
    last = last_backup(settings.lake)
    message = "none yet; `backfill backup DEST` makes one"
    if last:
        message = f"number {last.number} of {last.at:%Y-%m-%d %H:%M} UTC, in {last.place}"
    return Diagnosis("ok", "backup", message)


def alerts(settings: Settings) -> Diagnosis:
    """Say how many URLs get alerts, and which of them cannot be used."""
    if not settings.alerts:
        return Diagnosis("ok", "alerts", "sent to no one; BACKFILL_ALERTS names URLs")
    wrong = [name for name, outcome in send_to_all(settings).items() if outcome]
    message = f"{counted(len(settings.alerts), 'URL')} in BACKFILL_ALERTS"
    if wrong:
        message += f"; these cannot be used: {', '.join(wrong)}"
    remedy = "correct BACKFILL_ALERTS. `apprise --help` describes its URLs"
    return _judged(not wrong, "alerts", message, remedy)


def _landing(settings: Settings) -> Diagnosis:
    try:
        refuse_missing_landing(settings)
    except SettingsError as error:
        return _failed("landing", error)
    tree = area_of(settings).tree("", lambda: [("", False)])
    if tree.fault:
        message = f"{settings.landing} {tree.fault}"
        remedy = "set BACKFILL_LANDING, or the store's variables"
        return Diagnosis("FAIL", "landing", message, remedy)
    if tree.entries(tree.top):
        return Diagnosis("ok", "landing", settings.landing)
    example = ", or type `backfill demo`" if settings.project == BUNDLED else ""
    remedy = f"deliver files there, or set BACKFILL_LANDING{example}. Other sources need none"
    return Diagnosis("warn", "landing", f"{settings.landing} is empty", remedy)


def storage(settings: Settings) -> Iterator[Diagnosis]:
    """Say whether Dagster's PostgreSQL answers, if it has one."""
    if not settings.dagster_storage:
        return
    try:
        refuse_unusable_storage(settings)
    except BackfillError as error:
        yield _failed("storage", error)
        return
    yield Diagnosis("ok", "storage", f"PostgreSQL at {address_shown(settings.dagster_storage)}")


def _servers(
    settings: Settings, packages: Sequence[str], names: Sequence[str]
) -> Iterator[Diagnosis]:
    """Say whether the servers of this home work and have these tables, or can be started."""
    record = servers_record(settings.home)
    url = record.url if record else f"http://127.0.0.1:{USUAL_PORT}"
    dagster = Dagster(
        settings.dagster_url or url,
        timeout=5.0,
        token=settings.dagster_token,
        ca=settings.dagster_ca,
    )
    parts = urlsplit(dagster.url)
    port = parts.port or 80
    try:
        dagster.ask(VERSION)
    except ServiceUnavailable as error:
        if not is_loopback(parts.hostname or ""):
            yield _failed("servers", error)
        elif is_taken(port):
            remedy = f"backfill up --port {free_port()}"
            yield Diagnosis("warn", "port", f"{port} is used by another process", remedy)
        else:
            yield Diagnosis("ok", "servers", f"none run; port {port} is free for `backfill up`")
        return
    if not record and not settings.dagster_url:
        message = f"none run on this home; those at port {USUAL_PORT} are not asked"
        yield Diagnosis("ok", "servers", message, f"backfill up --port {free_port()}")
        return
    yield webserver(dagster, names)
    if not dagster.checks_origins():
        message = (
            f"{dagster.url} is Dagster's own: any web page that you open can start runs there,"
            " and plots end today"
        )
        yield Diagnosis("warn", "webserver", message, "`backfill up --only webserver`")
    if not any("daemon" in found.children for found in servers_records(settings.home)):
        message = (
            "it runs elsewhere. A stock `dagster-daemon` starts backfills after up to 30 s, and"
            " notices runs that died while they started only after `start_timeout_seconds`"
        )
        yield Diagnosis("ok", "daemon", message)
    logs = settings.home / "logs"
    for daemon, is_healthy in dagster.daemons().items():
        remedy = f"see {logs / 'daemon.log'}, then start again with `backfill up`"
        yield _judged(is_healthy, "daemon", daemon.lower(), remedy)
    if record and record.engine_port:
        remedy = f"it is being restarted; if not, see {logs / 'engine.log'}"
        listens = is_taken(record.engine_port)
        yield _judged(listens, "engine", f"port {record.engine_port}", remedy)
        if lacking := packages_lacking(settings.home / "engine", packages):
            message = f"it was started without {', '.join(lacking)}, which sources need"
            yield Diagnosis("FAIL", "engine", message, "`backfill down`, then `backfill up`")


def webserver(dagster: Dagster, names: Sequence[str]) -> Diagnosis:
    """Say whether the webserver has loaded the tables of `names`."""
    try:
        lacking = tables_lacking(dagster.tables(), names)
    except BackfillError as error:
        return _failed("webserver", error)
    message = f"those at {dagster.url} {lacking}" if lacking else dagster.url
    return _judged(not lacking, "webserver", message, WAY_OUT, "warn")


def _listening(settings: Settings) -> Iterator[Diagnosis]:
    """Name every address on which the servers of this home listen, and who may connect."""
    children = {
        name: child.pid
        for record in servers_records(settings.home)
        for name, child in record.children.items()
    }
    for listener in listeners(children):
        clients = _clients_of(listener, settings)
        remedy = f"chmod 700 {listener.address}"
        if listener.port:
            remedy = "close the port in the firewall"
        message = f"{listener}, for {clients}"
        yield _judged(not listener.open_to_others, "listens", message, remedy, "warn")


def _clients_of(listener: Listener, settings: Settings) -> str:
    """Return who may connect to a server, in words."""
    if listener.open_to_others:
        is_network = bool(listener.port)
        return "any machine that reaches this one" if is_network else "other users of this machine"
    if not listener.port:
        return "your own programs"
    if listener.server == "webserver":
        pages = ["its own web pages", *(f"those of {host}" for host in settings.allowed_hosts)]
        return f"programs of this machine, and {', '.join(pages)}; without a login"
    secret = " that have its secret" if listener.server == "engine" else ""
    return f"programs of this machine{secret}"
