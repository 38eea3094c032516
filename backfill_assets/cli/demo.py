"""Running the servers of a lake, and the demo: the sample's days built and shown in the UI."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.cli import exit_codes
from backfill_assets.cli.progress import follower
from backfill_assets.cli.terminal import terminal
from backfill_assets.dagster_client.requests import reload
from backfill_assets.datasets.outages.sample import FIRST_DAY, LAST_DAY, deliver
from backfill_assets.errors import NothingToBuild, ServiceUnavailable, UsageError
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.progress import Progress, TableOutcome, lines, outcomes
from backfill_assets.plan.remaining import WorkState
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.status import latest_builds
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.carry_out import carry_out, prepare_rebuild
from backfill_assets.servers.child import USUAL_PORT, free_port, is_taken
from backfill_assets.servers.home import servers_records, started_dagster
from backfill_assets.servers.parts import NAMES, Part, ServerPlace
from backfill_assets.servers.stack import Servers, servers_on
from backfill_assets.settings import (
    BUNDLED,
    REMEMBERED,
    Settings,
    code_location,
    host_of,
    read_settings,
    remember,
)
from backfill_assets.tries import wait_until
from backfill_assets.user import user_name
from backfill_assets.verbs.report import table_of
from backfill_assets.workspace import Workspace, open_workspace, refuse_missing_landing

CHECK_EVERY_S = 0.5
# Each server has some time to end before it is killed.
STOP_TIMEOUT_S = 90
# The daemon closes a backfill at the first tick after the last run has ended.
CLOSE_TIMEOUT_S = 30


def run_reload() -> int:
    """Reload the project's code location. Return the exit code: 0 if it is loaded."""
    # Code that cannot be imported is refused here, with the line that raised.
    settings = open_workspace(only_reading=True).settings
    dagster = started_dagster(settings, print)
    reload(dagster, code_location(settings, Path.cwd()))
    print(
        f"The servers at {dagster.url} have reloaded {settings.project}. Nothing was rebuilt;"
        " `backfill status` shows which days are outdated now."
    )
    return exit_codes.DONE


def run_up(place: ServerPlace) -> int:
    console = terminal()
    packages = tuple[str, ...]()
    if place.only in (Part.WEBSERVER, Part.DAEMON):
        # These read the project from the code server, and need no code here.
        settings = read_settings()
    else:
        workspace = open_workspace()
        settings = workspace.settings
        packages = workspace.packages
    if place.has(Part.CODE):
        refuse_missing_landing(settings)
    with (
        interrupted_by_signals(),
        servers_on(settings, place, console.print, packages) as servers,
    ):
        console.print(described(servers))
        console.print(f"Logs: {settings.home / 'logs'}. Ctrl-C stops all servers.")
        keep_running(servers)
    console.print("All servers have stopped.")
    return exit_codes.DONE


def described(servers: Servers) -> str:
    """The line that says which servers run, and where they listen."""
    settings = servers.settings
    place = servers.place
    if place.only is None:
        spark = host_of(settings.spark_remote or "") or settings.spark_master
        engine = f"engine {servers.engine.remote}" if servers.engine else f"Spark {spark}"
        return f"Dagster: {servers.dagster.url}   lake: {settings.lake}   {engine}"
    if place.only == Part.WEBSERVER:
        return f"Dagster: {servers.dagster.url}"
    listens = f" listens at {place.host}:{place.port}" if place.port else " runs"
    return f"The {NAMES[place.only]}{listens}."


def stop_servers() -> int:
    """Stop the servers of this home as Ctrl-C does, and wait until they have ended.

    Raises ServiceUnavailable if they do not end.
    """
    settings = read_settings()  # whether the project can be imported or not
    running = [record.up for record in servers_records(settings.home)]
    if not running:
        print(f"No servers run on {settings.home}. Nothing was stopped.")
        return exit_codes.DONE
    for up in running:
        if process := up.find():
            process.terminate()

    if not wait_until(lambda: not any(up.find() for up in running), STOP_TIMEOUT_S):
        pids = ", ".join(str(up.pid) for up in running)
        raise ServiceUnavailable(
            f"The servers on {settings.home} (process {pids}) did not end within"
            f" {STOP_TIMEOUT_S} s. They may still be ending.",
            next_step=f"See {settings.home / 'logs'}.",
        )
    print("All servers have stopped.")
    return exit_codes.DONE


def keep_running(servers: Servers) -> None:
    """Keep the servers running until Ctrl-C or SIGTERM."""
    try:
        while True:
            servers.check()
            time.sleep(CHECK_EVERY_S)
    except KeyboardInterrupt:
        return


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does.

    So every `finally` runs, and no child is left.
    """
    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def run_demo(*, days: str, port: int | None, exits: bool) -> int:
    console = terminal()
    workspace = workspace_for(days)
    selected = workspace.days(days)
    copied = deliver(folder_of(workspace.settings))
    console.print(f"{copied} file(s) of the sample delivered to {workspace.settings.landing}.")

    def build(servers: Servers) -> bool:
        remember_calendar(workspace)
        return build_sample(console, servers, workspace, selected)

    stopped = "Stopped. What was committed stays; `backfill demo` again builds what is missing."
    return run_with_servers(workspace.settings, port, build, exits=exits, stopped=stopped)


def run_with_servers(
    settings: Settings,
    port: int | None,
    work: Callable[[Servers], bool],
    *,
    exits: bool,
    stopped: str,
    next_step: str = "",
) -> int:
    """Start servers, do the work, and keep the UI open unless the command `exits` then.

    Return 0 if the work was completed. `stopped` is printed after Ctrl-C.
    """
    console = terminal()
    started = time.monotonic()
    # If no setting names a port and the usual one is taken, use any free port.
    port = port or (None if is_taken(USUAL_PORT) else USUAL_PORT)
    place = ServerPlace(port or free_port())
    with interrupted_by_signals(), servers_on(settings, place, console.print) as servers:
        console.print(f"Dagster: {servers.dagster.url}")
        try:
            is_complete = work(servers)
            console.print(f"{time.monotonic() - started:.0f} s in all.")
            if exits:
                # Dagster closes a backfill some time after its last run.
                with suppress(ServiceUnavailable):
                    wait_until(
                        lambda: all(launched.is_over for launched in servers.dagster.launched()),
                        CLOSE_TIMEOUT_S,
                        every=0.5,
                    )
            else:
                ui = f"The UI stays open at {servers.dagster.url}/assets until Ctrl-C."
                console.print("\n".join(filter(None, (ui, next_step))))
                keep_running(servers)
        except KeyboardInterrupt:
            console.print(stopped)
            return exit_codes.PARTIAL
    return exit_codes.DONE if is_complete else exit_codes.PARTIAL


def folder_of(settings: Settings) -> Path:
    """Return the folder for the sample.

    Raises UsageError if the landing area is in an object store.
    """
    if "://" in settings.landing:
        raise UsageError(
            f"The sample is copied into a folder, not to {settings.landing}.",
            unchanged="Nothing was started.",
            next_step="Unset BACKFILL_LANDING.",
        )
    return Path(settings.landing)


def remember_calendar(workspace: Workspace) -> None:
    """Store the calendar in the home, so that later commands have the same days."""
    remember(
        workspace.settings, first_day=workspace.calendar.first, last_day=workspace.calendar.last
    )


def workspace_for(days: str) -> Workspace:
    """Return the bundled project on the sample's calendar, cut to `days`.

    The environment may name another calendar. A day of outages waits for the two days after it, and
    a history for the day before it, except at the calendar's ends.
    """
    sample = Calendar(FIRST_DAY, LAST_DAY)
    selected = sample.named(days) if days else sample.days()
    _refuse_outside(selected[0], selected[-1])
    settings = read_settings(remembered=False)
    if settings.project != BUNDLED:  # must not be mixed with the sample's lake and calendar
        raise UsageError(
            f"This is the folder of the project {settings.project}.",
            unchanged="Nothing was started.",
            next_step="Use an empty folder for the demo.",
        )
    ends = {"first_day": selected[0], "last_day": selected[-1]}
    unset: dict[str, Any] = {
        name: day for name, day in ends.items() if name not in settings.model_fields_set
    }
    workspace = open_workspace(remembered=False, project=BUNDLED, **unset)
    _refuse_outside(workspace.calendar.first, workspace.calendar.last)
    return workspace


def _refuse_outside(first: date, last: date) -> None:
    if first < FIRST_DAY or last > LAST_DAY:
        raise UsageError(
            f"The sample holds {FIRST_DAY} to {LAST_DAY}, not all of {first} to {last}.",
            unchanged="Nothing was started.",
            next_step="Name days within it, for example --partitions 2019-08-15..2019-08-21.",
        )


def build_sample(
    console: Console, servers: Servers, workspace: Workspace, days: list[date]
) -> bool:
    """Plan the days over every table, carry the plan out and show it.

    Return whether all of them are built.
    """

    def sleep(seconds: float) -> None:
        servers.check()
        time.sleep(seconds)

    def build(plan_id: str) -> Progress:
        dagster = servers.dagster
        rebuild = prepare_rebuild(plan_id, workspace, dagster=dagster, who=user_name(), sleep=sleep)
        return carry_out(rebuild, follower(console, plan_id, workspace, dagster))

    for plan_id in Plans(workspace.lake.root).open():  # a demo that was killed leaves its plan open
        build(plan_id)
    request = RebuildRequest(
        partitions=",".join(map(str, days)), canary=0, into="live", reason="backfill demo", yes=True
    )
    plan_id = ""
    planned = dict[Partition, WorkState]()
    try:
        plan_id = make_plan(request, workspace).plan.id
        console.print(
            f"Plan {plan_id}: {len(days)} day(s) of {len(workspace.tables)} tables, see"
            f" {servers.dagster.url}/runs"
        )
        planned.update(build(plan_id).remaining.states)
    except NothingToBuild:
        console.print("Everything was up to date: nothing had to be computed.")
    accepted = latest_builds(workspace).accepted
    states = {
        (name, day): WorkState.DONE if (name, day) in accepted else WorkState.PENDING
        for name in workspace.names
        for day in days
    }
    tables = outcomes(workspace.lake.ledger, states | planned, plan_id)
    console.print(table_of(*lines(tables), right=slice(1, None)))
    show_next_steps(console, tables, workspace)
    return all(table.done == table.days for table in tables)


def show_next_steps(console: Console, tables: Sequence[TableOutcome], workspace: Workspace) -> None:
    for table in (table for table in tables if table.done < table.days):
        console.print(
            f"{table.table}: {table.days - table.done} day(s) missing; `backfill status` names each"
            " and why."
        )
    path = f"{workspace.lake.root}/features/region_daily"
    rows = "read('features/region_daily', live=True).to_table().to_pandas()"
    query = f"from backfill_assets import read; print({rows})"
    console.print(
        f"\nQuery a table, as here or at {path} with any Delta reader:\n"
        f'  python -c "{query}"\n'
        "Other commands on this home use the sample's calendar, which is kept in"
        f" {workspace.settings.home / REMEMBERED}.\n"
    )
