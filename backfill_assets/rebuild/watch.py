"""Looking at a plan that somebody else carries out: launches nothing, holds nothing."""

from __future__ import annotations

from collections.abc import Iterator

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import OVER
from backfill_assets.plan.history import OPEN, state_of
from backfill_assets.plan.progress import Progress, RunningChunk, Stop
from backfill_assets.plan.remaining import WorkState
from backfill_assets.rebuild.run import LOOK_EVERY_S, Rebuild


def looks(rebuild: Rebuild, known: bool = True) -> Iterator[Progress]:
    """A look each second until the plan is not open any more. Without `known`, Dagster is not asked what is at work."""
    launcher, plan = rebuild.launcher, rebuild.plan
    while True:
        events = launcher.plans.events(plan.id)
        left = rebuild.look({}, {})
        partitions = {chunk.number + 1: chunk.partitions() for chunk in plan.chunks}
        working = [each for each in launcher.launched() if each["status"] not in OVER] if known else []
        at_work = {
            (number := int(each["tags"][tags.CHUNK])): RunningChunk(str(each["id"]), partitions[number]) for each in working
        }
        over = frozenset(n for n, of in partitions.items() if n not in at_work and not left.among(of)[WorkState.LEFT])
        ended = [event for event in events if event.kind == "ended" and event.facts.get("why")]
        stop = Stop(ended[-1].facts["stop"], ended[-1].facts["why"]) if ended and state_of(events) != OPEN else None
        started = next((event.at for event in reversed(events) if event.kind == "started"), launcher.now())
        done = state_of(events) != OPEN
        at = events[-1].at if done and events else launcher.now()
        yield Progress(plan, left, at_work, over, stop, started, at, done)
        if done:
            return
        launcher.sleep(LOOK_EVERY_S)
