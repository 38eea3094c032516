"""What a plan has written of the rows that live, or a release, holds: by the ledger, whatever is noted about the plan."""

from backfill_assets.calendar import Partition
from backfill_assets.errors import UsageError
from backfill_assets.lake.latest import latest
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import Build
from backfill_assets.lake.release import Release
from backfill_assets.lake.writers import writers
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans
from backfill_assets.publish.made_from import has_rows_made_from

COLUMNS = ("table", "day", "outcome", "run", "fingerprint", "delta_version", "data_files", "plan", "at")


def is_in_live(root: str, plan_id: str, release: Release | None = None) -> bool:
    """Whether live, or a release, has rows that this plan wrote, although others may have put them back, or found the same; or
    rows that others have made from them.

    Of a plan that cannot be read any more it is not known: it counts as in live.
    """
    try:
        plan = Plans(root).read(plan_id)
    except UsageError:
        return True
    return bool(written_by(root, plan, release)) or has_rows_made_from(root, plan, release)


def written_by(root: str, plan: Plan, release: Release | None = None) -> list[Build]:
    """The builds of a plan whose rows live, or a release, still has."""
    ledger, days = Ledger(root), {name: plan.days_of(name) for name in plan.reasons}
    until = {name: version.version for name, version in release.tables.items()} if release else None
    now = latest(ledger, days, COLUMNS, until=until, recorded=release.recorded if release else None).accepted
    before: dict[Partition, list[Build]] = {}
    for build in ledger.builds(days, COLUMNS):
        if build.succeeded:
            before.setdefault((build.table, build.day), []).append(build)
    wrote = [writers([*(b for b in before.get(p, ()) if b.at < build.at), build])[-1] for p, build in now.items()]
    return [build for build in wrote if build.plan == plan.id and build.outcome == "accepted"]
