"""Which files a plan's builds were made from that the builds before them were not, as builds record it."""

from collections.abc import Sequence

from backfill_assets.calendar import Partition
from backfill_assets.lake.record import Build
from backfill_assets.lake.store import Lake
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.status import State
from backfill_assets.step.delivered import files_changed

COLUMNS = ("table", "day", "outcome", "code_version", "run", "delivered", "files", "hashes", "plan", "at")


def changed_since(before: Sequence[Build], build: Build) -> str:
    """Which files of a build are other than those of the last of the builds `before` it that succeeded; "" if none is known."""
    last = next((each for each in reversed(before) if each.succeeded), None)
    return files_changed(last, build) if last and build.delivered else ""


def changed_files(plan: Plan, lake: Lake) -> dict[Partition, str]:
    """Of each partition that was planned because its files had changed, and that the plan has built in live, which they are."""
    planned = [partition for partition, why in plan.partitions().items() if why == State.SOURCE_CHANGED]
    days = {table: [day for name, day in planned if name == table] for table, _ in planned}
    builds: dict[Partition, list[Build]] = {partition: [] for partition in planned}
    for build in sorted(lake.ledger.builds(days, COLUMNS) if days else (), key=lambda build: build.at):
        builds[build.table, build.day].append(build)
    changed: dict[Partition, str] = {}
    for partition, of_day in builds.items():
        first = next((n for n, build in enumerate(of_day) if build.plan == plan.id and build.succeeded), None)
        if first is not None and (files := changed_since(of_day[:first], of_day[first])):
            changed[partition] = files
    return changed
