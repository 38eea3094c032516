"""Carrying a plan out: one command at a time, each recording in the lake when it started and how it ended."""

from collections.abc import Callable, Iterable

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.plan import history
from backfill_assets.plan.progress import Ending, Progress
from backfill_assets.plan.text import progress_line
from backfill_assets.rebuild.run import Rebuild


def carry_out(rebuild: Rebuild, follow: Callable[[Iterable[Progress]], Progress]) -> Progress:
    """Carry a plan out; `follow` consumes its updates, which is what drives it, and returns the last one.

    Whatever interrupts it (Ctrl-C, a cancelled run) leaves the plan open: running chunks go on, nothing new is launched.
    Raises Guarded if another command is carrying it out or another open plan has a partition of it, ServiceUnavailable if
    Dagster is gone, UsageError if the very first launch is refused.
    """
    launcher, plan = rebuild.launcher, rebuild.plan
    with launcher.plans.exclusive(plan.id):
        refuse_without_daemons(launcher.dagster)
        history.start(plan, launcher.plans, launcher.now(), launcher.who)
        rebuild.open_shadow()
        try:
            end = follow(rebuild.run())
        except ServiceUnavailable as gone:
            raise ServiceUnavailable(f"{gone} Plan {plan.id} stays open: then `backfill resume {plan.id}`.") from None
        stop = {"stop": end.stopped.kind, "why": end.stopped.why} if end.stopped else {}
        tables = {table.table: table.counts() for table in end.tables()}
        stops = {"early_stops": list(map(str, end.remaining.early_stops))}
        launcher.plans.note(plan.id, "ended", launcher.now(), ending=end.ending, **stop, tables=tables, **stops)
    if end.ending == Ending.REFUSED and not rebuild.launches and end.stopped:
        raise UsageError(end.stopped.why)
    return end


def log_changes(updates: Iterable[Progress], log: Callable[[str], None]) -> Progress:
    """Log a line whenever something has changed; the last update."""
    last, logged = None, ""
    for last in updates:
        if (line := progress_line(last)) != logged:
            log(logged := line)
    assert last is not None, "a rebuild yields its progress at least once"
    return last


def refuse_without_daemons(dagster: Dagster) -> None:
    """ServiceUnavailable if a daemon that runs need does not run: what is launched would wait for it without end."""
    unhealthy = [name for name, healthy in dagster.daemons().items() if not healthy]
    if unhealthy:
        raise ServiceUnavailable(
            f"The webserver at {dagster.url} answers, but these daemons do not run: {', '.join(unhealthy)}. "
            "Nothing was launched. Start them with `backfill up`."
        )
