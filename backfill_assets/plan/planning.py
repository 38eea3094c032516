"""Making plans and carrying them out on this code location: its tables, its settings, its lake. Composition only.

The command line and Dagster's jobs both come through here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from httpx import BaseTransport

from backfill_assets.calendar import Calendar, ranges
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.errors import Guarded
from backfill_assets.lake import running_steps as at_work
from backfill_assets.lake.latest import Latest, Partition, latest
from backfill_assets.lake.record import Build
from backfill_assets.lake.store import Lake
from backfill_assets.plan import history
from backfill_assets.plan.estimate import Estimate, estimate
from backfill_assets.plan.plan import Plan, PlanOptions, make, read
from backfill_assets.plan.remaining import Remaining, remaining_of
from backfill_assets.plan.request import RebuildRequest, days_of, kinds, named
from backfill_assets.plan.selection import Selection, Selector, choose
from backfill_assets.plan.status import status_of
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import Launcher
from backfill_assets.rebuild.run import Look, Rebuild
from backfill_assets.servers.place import running
from backfill_assets.settings import Settings
from backfill_assets.table.declaration import Table
from backfill_assets.table.graph import Graph


@dataclass(frozen=True)
class Planned:
    """A plan that was made, with what it leaves out and what it will take."""

    plan: Plan
    selection: Selection
    takes: Estimate


def code() -> dict[str, str]:
    return {table.name: table.version for table in TABLES}


def record_of(chosen: Settings) -> Latest:
    return latest(Lake(chosen.lake).ledger, [table.name for table in TABLES])


def runs_at_work(chosen: Settings) -> dict[Partition, str]:
    """The run that is computing each day. RebuildRequest before the record: a day that ends between the two is running, not missing."""
    return {partition: work.run for partition, work in at_work.running(chosen.lake).items()}


def planned(asked: RebuildRequest, chosen: Settings) -> Planned:
    """Make the plan, and keep it in the lake. Raises UsageError and Guarded; then nothing is kept."""
    calendar = Calendar(chosen.first_day, chosen.calendar.last)
    selector = Selector(
        [table.name for table in named(asked.target)],
        days_of(asked.days, calendar),
        kinds(asked.only),
        asked.options.force
        and not asked.only,  # with states named, the days are those; they are computed even if nothing changed
        asked.upstream,
        asked.downstream,
    )
    runs, record, graph = runs_at_work(chosen), record_of(chosen), Graph(TABLES, calendar)
    status = status_of(TABLES, calendar.days(), latest=record, calendar=chosen.calendar, running=runs)
    selection = choose(selector, graph, status.partitions)
    plans = Plans(chosen.lake)
    plan = _new(selection, graph, asked.options, plans)
    guard(plan, chosen, yes=asked.yes)
    history.refuse_overlap(plan, plans)
    plans.keep(plan.id, plan.contents())
    return Planned(plan, selection, estimate(plan.partitions(), record.last.values(), len(plan.chunks)))


def _new(selection: Selection, graph: Graph, options: PlanOptions, plans: Plans) -> Plan:
    """The plan, as one that was not carried out to its end yet: what was forced once may be asked to be forced again."""
    plan = make(selection, graph, options)
    while history.state_of(plans.events(plan.id)) == "done":
        options = replace(options, again=options.again + 1)
        plan = make(selection, graph, options)
    return plan


def guard(plan: Plan, chosen: Settings, *, yes: bool) -> None:
    """Guarded for days that are protected, or more days than may be rebuilt without saying yes."""
    days = plan.days()
    protected = chosen.calendar.clip(set(chosen.protected()) & set(days))
    if protected:
        raise Guarded(
            f"{ranges(protected)} is protected (BACKFILL_PROTECTED_DAYS={chosen.protected_days}). Nothing was planned. "
            "Leave these days out, or change the setting."
        )
    if len(days) > chosen.ask_above_days and not yes:
        raise Guarded(
            f"This plan rebuilds {len(days)} days, more than {chosen.ask_above_days} (BACKFILL_ASK_ABOVE_DAYS). "
            "Nothing was planned. Type the same with --yes if that is meant."
        )


def dagster_of(chosen: Settings, transport: BaseTransport | None = None) -> Dagster:
    """The webserver that the settings name, or the one that runs on this home; `transport` is for tests."""
    here = None if "dagster_url" in chosen.model_fields_set else running(chosen.home)
    return Dagster(here.url if here else chosen.dagster_url, transport)


def rebuild_of(
    plan_id: str,
    chosen: Settings,
    *,
    who: str,
    sleep: Callable[[float], None] = time.sleep,
    dagster: Callable[[Settings], Dagster] = dagster_of,
) -> Rebuild:
    """The plan, ready to be carried out. UsageError for an unknown plan, an edited one, or one of other code."""
    plans = Plans(chosen.lake)
    plan = read(plans.read(plan_id), plan_id)
    plan.refuse_other_code(code())
    history.refuse_overlap(plan, plans)
    return Rebuild(Launcher(plan, dagster(chosen), plans, who, sleep), looking_at(plan, chosen))


def looking_at(plan: Plan, chosen: Settings) -> Look:
    """How to look what is left of the plan; its days and tables only."""
    tables: Sequence[Table] = [table for table in TABLES if table.name in plan.code]
    graph = Graph(TABLES, Calendar(chosen.first_day, chosen.calendar.last))

    def look(before: Mapping[Partition, Build], given_up: Mapping[Partition, str]) -> Remaining:
        record = record_of(chosen)
        status = status_of(tables, plan.days(), latest=record, calendar=chosen.calendar)
        return remaining_of(plan, graph, status.partitions, record, before=before, given_up=given_up)

    return look
