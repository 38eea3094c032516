"""Plans into live that ended before all of their partitions were built: what they have built is a rebuild half done."""

from collections.abc import Iterator
from datetime import UTC, datetime

from backfill_assets.calendar import Partition
from backfill_assets.errors import UsageError
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import AUDITS
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import CLOSED, PLANNED, Plans
from backfill_assets.publish.in_live import written_by
from backfill_assets.publish.live import LiveState
from backfill_assets.workspace import Workspace

WORDS = {"cancelled": "was cancelled", "stopped": "was stopped"}
LATER = datetime.max.replace(tzinfo=UTC)
COLUMNS = ("table", "day", "outcome", "run", "plan", "at")


def given_up(workspace: Workspace, state: LiveState, builds: Latest) -> Iterator[str]:
    """Of each such plan of which live has rows that it wrote since the last release, how it ended, and the commands that lead
    on. `builds`: the latest of what was built since, also what a crash left out of the ledger.

    A plan that cannot be read is passed over, as one that cannot be run either.
    """
    plans, root = Plans(workspace.lake.root), workspace.lake.root
    recorded = Ledger(root).files().plans_after({name: state.since(name) for name in workspace.names})
    for plan_id in sorted({*recorded, *(build.plan for build in builds.accepted.values())} - {"", *state.plans}):
        try:
            plan, ended = plans.read(plan_id), plans.state(plan_id)
        except UsageError:
            continue
        if plan.is_shadow or ended in (*CLOSED, PLANNED, "done"):
            continue
        if not any(build.at > state.since(build.table) for build in written_by(root, plan)):
            continue
        if unbuilt := _unbuilt(plan, Ledger(root)):
            yield (
                f"plan {plan_id} {WORDS.get(ended, 'ended')} with {len(unbuilt)} of its {len(plan.partitions())} partition(s) "
                f"not built, as {unbuilt[0][0]} {unbuilt[0][1]}: `backfill resume {plan_id}` builds them, `backfill rollback "
                f"{plan_id}` takes back what is built"
            )


def _unbuilt(plan: Plan, ledger: Ledger) -> list[Partition]:
    """The partitions that nobody has built, or failed to, since the plan's first build."""
    tried = [b for b in ledger.builds({name: plan.days_of(name) for name in plan.reasons}, COLUMNS) if b.outcome not in AUDITS]
    begun = min((build.at for build in tried if build.plan == plan.id), default=LATER)
    since = {(build.table, build.day) for build in tried if build.at >= begun}
    return [partition for partition in plan.partitions() if partition not in since]
