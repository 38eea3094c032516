"""`backfill demo`: the bundled sample's days in audited tables, launched over GraphQL and shown in the UI."""

from __future__ import annotations

import getpass
import time
from datetime import date

from rich.console import Console

from backfill_assets.backfill.watch import Progress, follow
from backfill_assets.calendar import Calendar
from backfill_assets.commands.sample import deliver
from backfill_assets.commands.tables import outcome_table, show_progress, terminal
from backfill_assets.commands.up import ends_on_signals, watch
from backfill_assets.errors import UsageError
from backfill_assets.lake.store import Lake
from backfill_assets.servers.child import is_taken
from backfill_assets.servers.stack import Servers, servers_on
from backfill_assets.settings import SAMPLE_FIRST_DAY, SAMPLE_LAST_DAY, Settings, read_settings

OPTIONS = {"force": False, "write_mode": "overwrite", "reason": "backfill demo"}
USUAL_PORT = 3000


def run(*, days: str, port: int | None, leave: bool) -> int:
    console = terminal()
    started = time.monotonic()
    chosen = settings_for(days)
    wanted = chosen.calendar.select(days) if days else chosen.calendar.days()
    copied = deliver(chosen.landing)
    console.print(f"{copied} file(s) of the sample delivered to {chosen.landing}. Starting the servers ...")
    with ends_on_signals(), servers_on(chosen, port or usual_port(), console.print) as servers:
        console.print(f"Dagster: {servers.dagster.url}")
        try:
            done = launch(console, servers, chosen, wanted)
            console.print(f"{time.monotonic() - started:.0f} s in all.")
            if not leave:
                console.print(f"The UI stays open at {servers.dagster.url}/assets until Ctrl-C.")
                watch(servers)
        except KeyboardInterrupt:
            console.print("Stopped. What was committed stays; `backfill demo` again builds what is missing.")
            return 1
    return 0 if done else 1


def usual_port() -> int | None:
    """Where people look for Dagster; any free port where something is there already."""
    return None if is_taken(USUAL_PORT) else USUAL_PORT


def settings_for(days: str) -> Settings:
    """The settings with the sample's calendar, cut to `days`, unless the user set one.

    A day of outages waits for the two days after it, and a history for the day before it, except at the calendar's ends.
    """
    chosen = read_settings()
    first, last = SAMPLE_FIRST_DAY, SAMPLE_LAST_DAY
    if days:
        named = Calendar(first, last).select(days)
        first, last = named[0], named[-1]
    ends = {"first_day": first, "last_day": last}
    given = {name: day for name, day in ends.items() if name not in chosen.model_fields_set}
    found = read_settings(**given)
    if not (found.first_day >= SAMPLE_FIRST_DAY and found.calendar.last <= SAMPLE_LAST_DAY):
        raise UsageError(
            f"The sample holds {SAMPLE_FIRST_DAY} to {SAMPLE_LAST_DAY}, not all of {found.first_day} to {found.calendar.last}. "
            "Nothing was started. Name days within it, for example --days 2019-08-15..2019-08-21."
        )
    return found


def launch(console: Console, servers: Servers, chosen: Settings, days: list[date]) -> bool:
    """Launch the days over every table and show them being built; whether all of them stand at the end."""
    dagster, ledger = servers.dagster, Lake(chosen.lake).ledger
    tables = dagster.tables()
    tags = {"backfill/who": getpass.getuser(), "backfill/reason": OPTIONS["reason"]}
    backfill_id = dagster.launch(tables, days, options=OPTIONS, tags=tags, title="backfill demo")  # type: ignore[arg-type]
    console.print(f"Launched {len(days)} day(s) of {len(tables)} tables: {dagster.url}/runs/b/{backfill_id}")

    def sleep(seconds: float) -> None:
        servers.check()
        time.sleep(seconds)

    end = show_progress(console, follow(dagster, backfill_id, ledger=ledger, tables=tables, days=days, sleep=sleep))
    console.print(outcome_table(end.tables))
    tell_the_end(console, end, chosen)
    return all(table.complete for table in end.tables)


def tell_the_end(console: Console, end: Progress, chosen: Settings) -> None:
    if all(table.complete and not table.built for table in end.tables):
        console.print("Everything was up to date: nothing had to be computed.")
    for table in (table for table in end.tables if not table.complete):
        console.print(f"{table.table}: {table.asked - table.accepted} day(s) missing; the run in the UI names each and why.")
    path = f"{chosen.lake}/features/region_daily"
    console.print(
        "\nQuery a table, with any Delta reader:\n"
        f"""  python -c "from deltalake import DeltaTable; print(DeltaTable('{path}').to_pandas())"\n"""
        "To see the same days with `backfill up`, keep the calendar (environment or .env):\n"
        f"  BACKFILL_FIRST_DAY={chosen.first_day}\n  BACKFILL_LAST_DAY={chosen.calendar.last}\n"
    )
