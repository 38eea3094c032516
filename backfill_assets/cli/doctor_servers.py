"""What `backfill doctor` finds out about the servers: whether they are well, and everything that they listen on."""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from backfill_assets.cli.finding import Finding
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError
from backfill_assets.lake.engine import packages_lacking
from backfill_assets.rebuild.other_servers import WAY_OUT, tables_lacking
from backfill_assets.servers.child import USUAL_PORT, free_port, is_taken
from backfill_assets.servers.home import servers_record
from backfill_assets.servers.listening import Listener, listeners
from backfill_assets.settings import Settings


def servers(settings: Settings, packages: Sequence[str] = (), names: Sequence[str] = ()) -> Iterator[Finding]:
    """The servers that run on this home, with the tables of `names`; if none do, whether their port is free."""
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
    yield webserver(dagster, names)
    for daemon, healthy in dagster.daemons().items():
        remedy = "" if healthy else f"see {settings.home / 'logs' / 'daemon.log'}, then start again with `backfill up`"
        yield Finding("ok" if healthy else "FAIL", "daemon", daemon.lower(), remedy)
    if record and record.engine_port:
        listens = is_taken(record.engine_port)
        remedy = "" if listens else f"it is being restarted; if not, see {settings.home / 'logs' / 'engine.log'}"
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
            others = "any machine that reaches this one" if listener.port else "other users of this machine"
            remedy = "close the port in the firewall" if listener.port else f"chmod 700 {listener.address}"
            yield Finding("warn", "listens", f"{listener}, for {others}", remedy)
        else:
            yield Finding("ok", "listens", f"{listener}, for {clients_of(listener, settings)}")


def clients_of(listener: Listener, settings: Settings) -> str:
    """Who may connect to what only this machine can reach."""
    if not listener.port:
        return "your own programs"
    if listener.server == "webserver":
        pages = ", ".join(["its own web pages", *(f"those of {host}" for host in settings.allowed_hosts)])
        return f"programs of this machine, and {pages}; without a login"
    return "programs of this machine" + (" that have its secret" if listener.server == "engine" else "")
