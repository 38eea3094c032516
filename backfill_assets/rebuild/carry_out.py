"""Carrying a plan out, whoever asks: one at a time, with what happened written down beside the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.plan.progress import Ending, Progress
from backfill_assets.plan.text import in_a_line
from backfill_assets.rebuild.run import Rebuild


def carried_out(rebuild: Rebuild, follow: Callable[[Iterable[Progress]], Progress]) -> Progress:
    """Carry a plan out; `follow` goes through the looks at it, which is what drives it, and returns the last one.

    Whatever interrupts it (Ctrl-C, a cancelled run) leaves the plan open: what is at work goes on, nothing new is started.
    """
    launcher, plan = rebuild.launcher, rebuild.plan
    with launcher.plans.at_work(plan.id):
        _refuse_without_daemon(rebuild)
        launcher.plans.note(plan.id, "started", launcher.now(), who=launcher.who)
        try:
            end = follow(rebuild.run())
        except ServiceUnavailable as gone:
            raise ServiceUnavailable(f"{gone} Plan {plan.id} stays open: then `backfill resume {plan.id}`.") from None
        stop = {"stop": end.stopped.kind, "why": end.stopped.why} if end.stopped else {}
        launcher.plans.note(plan.id, "ended", launcher.now(), ending=end.ending, **stop)
    if end.ending == Ending.REFUSED and not rebuild.launches and end.stopped:
        raise UsageError(end.stopped.why)
    return end


def line_by_line(looks: Iterable[Progress], say: Callable[[str], None]) -> Progress:
    """Say a line whenever something has changed; the last look."""
    last, told = None, ""
    for last in looks:
        if (line := in_a_line(last)) != told:
            say(told := line)
    assert last is not None, "a rebuild is looked at once at least"
    return last


def _refuse_without_daemon(rebuild: Rebuild) -> None:
    ill = [name for name, well in rebuild.launcher.dagster.daemons().items() if not well]
    if ill:
        raise ServiceUnavailable(
            f"The webserver at {rebuild.launcher.dagster.url} answers, but these daemons do not run: {', '.join(ill)}. Nothing "
            "was launched. Start them with `backfill up`."
        )
