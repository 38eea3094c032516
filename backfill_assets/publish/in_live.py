"""Whether live still has rows that a plan has written: by the ledger, whatever is noted about the plan."""

from backfill_assets.errors import UsageError
from backfill_assets.lake.latest import latest
from backfill_assets.lake.ledger import Ledger
from backfill_assets.plan.store import Plans

COLUMNS = ("table", "day", "outcome", "run", "fingerprint", "delta_version", "data_files", "plan", "at")


def is_in_live(root: str, plan_id: str) -> bool:
    """Whether a partition has the files that this plan wrote, although others may have put them back, or found the same rows.

    Of a plan that cannot be read any more it is not known: it counts as in live.
    """
    try:
        plan = Plans(root).read(plan_id)
    except UsageError:
        return True
    ledger, days = Ledger(root), {name: plan.days_of(name) for name in plan.reasons}
    written = {
        (build.table, build.day, build.files_of)
        for build in ledger.builds(days, COLUMNS)
        if build.plan == plan_id and build.outcome == "accepted"
    }
    return any((name, day, build.files_of) in written for (name, day), build in latest(ledger, days, COLUMNS).accepted.items())
