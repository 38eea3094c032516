"""`backfill demo`: the bundled sample's days in audited tables, launched over GraphQL and shown in the UI."""

from __future__ import annotations

import getpass
import time
from collections.abc import Sequence
from datetime import date

from rich.console import Console

from backfill_assets.calendar import Calendar
from backfill_assets.cli.rendering import outcome_table, terminal
from backfill_assets.cli.run import on_a_terminal
from backfill_assets.cli.up import ends_on_signals, watch
from backfill_assets.datasets.outages.sample import deliver
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.errors import NothingToBuild, UsageError
from backfill_assets.lake.store import Lake
from backfill_assets.plan.history import open_plans
from backfill_assets.plan.outcome import TableOutcome, outcomes
from backfill_assets.plan.plan import PlanOptions
from backfill_assets.plan.planning import planned, rebuild_of
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.store import Plans
from backfill_assets.servers.child import is_taken
from backfill_assets.servers.stack import Servers, servers_on
from backfill_assets.settings import SAMPLE_FIRST_DAY, SAMPLE_LAST_DAY, Settings, read_settings

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
    """Plan the days over every table, carry the plan out and show it; whether all of them stand at the end."""

    def sleep(seconds: float) -> None:
        servers.check()
        time.sleep(seconds)

    for left in open_plans(Plans(chosen.lake)):  # of a demo that was killed
        on_a_terminal(rebuild_of(left, chosen, who=getpass.getuser(), sleep=sleep), chosen, console)
    options = PlanOptions(days_per_run=chosen.days_per_run, canary=0, reason="backfill demo")
    asked, plan_id = {table.name: days for table in TABLES}, ""
    try:
        plan_id = planned(RebuildRequest(",".join(map(str, days)), options=options, yes=True), chosen).plan.id
        console.print(f"Plan {plan_id}: {len(days)} day(s) of {len(TABLES)} tables, see {servers.dagster.url}/runs")
        on_a_terminal(rebuild_of(plan_id, chosen, who=getpass.getuser(), sleep=sleep), chosen, console)
    except NothingToBuild:
        console.print("Everything was up to date: nothing had to be computed.")
    found = outcomes(Lake(chosen.lake).ledger, asked, lambda build: bool(plan_id) and build.plan == plan_id)
    console.print(outcome_table(found))
    tell_the_end(console, found, chosen)
    return all(table.complete for table in found)


def tell_the_end(console: Console, found: Sequence[TableOutcome], chosen: Settings) -> None:
    for table in (table for table in found if not table.complete):
        console.print(f"{table.table}: {table.asked - table.accepted} day(s) missing; `backfill status` names each and why.")
    path = f"{chosen.lake}/features/region_daily"
    console.print(
        "\nQuery a table, with any Delta reader:\n"
        f"""  python -c "from deltalake import DeltaTable; print(DeltaTable('{path}').to_pandas())"\n"""
        "To see the same days with `backfill up`, keep the calendar (environment or .env):\n"
        f"  BACKFILL_FIRST_DAY={chosen.first_day}\n  BACKFILL_LAST_DAY={chosen.calendar.last}\n"
    )
