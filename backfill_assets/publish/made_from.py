"""What others have computed from rows of a plan that are not there any more, because they were taken back or built over.

Until it is built again, live has what the plan has brought about, though nothing that it wrote.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from backfill_assets.lake.latest import latest
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import COMMITTED, Build, from_arrow
from backfill_assets.lake.release import Release
from backfill_assets.plan.plan import Plan

COLUMNS = ("table", "day", "outcome", "run", "fingerprint", "day_fingerprints", "inputs", "delta_version", "plan", "at")
# A table, and a day of it as inputs name it.
Input = tuple[str, str]


def has_rows_made_from(root: str, plan: Plan, release: Release | None = None) -> bool:
    """Whether live, or a release, has rows that were computed from such rows of the plan, or from rows computed from these."""
    ledger, days = Ledger(root), {name: plan.days_of(name) for name in plan.reasons}
    wrote = [b for b in ledger.builds(days, COLUMNS) if b.plan == plan.id and b.outcome == "accepted"]
    until = {name: version.version for name, version in release.tables.items()} if release else None
    now = latest(ledger, days, COLUMNS, until=until, recorded=release.recorded if release else None).accepted
    gone: dict[Input, set[str]] = {}
    for build in wrote:
        there = now.get((build.table, build.day))
        gone.setdefault(_as_input(build), set()).update(_fingerprints(build) - (_fingerprints(there) if there else set()))
    if not any(gone.values()):
        return False
    later = from_arrow(ledger.files().rows(COLUMNS, after=min(build.at for build in wrote)))
    return any(_made_from(gone, sorted((b for b in later if _is_in(b, release)), key=lambda build: build.at)))


def _made_from(gone: dict[Input, set[str]], builds: Iterable[Build]) -> Collection[bool]:
    """Of each partition that one of these `builds`, oldest first, is of, whether its rows were made from what is `gone`."""
    of_plan, made = set(gone), dict[Input, bool]()
    for build in builds:
        this, inputs = _as_input(build), ((name, day) for name, of in build.inputs.items() for day in of)
        from_gone = any(build.inputs[name][day] in gone.get((name, day), ()) for name, day in inputs)
        # Rows that were the same before are not made from it.
        made[this] = from_gone and (build.outcome != "unchanged" or made.get(this, False))
        if made[this]:
            gone.setdefault(this, set()).update(_fingerprints(build))
        elif this not in of_plan:
            gone.pop(this, None)
    return made.values()


def _is_in(build: Build, release: Release | None) -> bool:
    if not build.succeeded or release is None:
        return build.succeeded
    version, recorded = release.tables.get(build.table), release.recorded.get(build.table, datetime.max.replace(tzinfo=UTC))
    known = build.outcome in COMMITTED or build.at <= recorded
    return version is not None and build.delta_version <= version.version and known


def _as_input(build: Build) -> Input:
    return build.table, build.day.isoformat()


def _fingerprints(build: Build) -> set[str]:
    """Those by which readers of a day name it: of all its rows, or of those about one day."""
    return {build.fingerprint, *build.day_fingerprints.values()} - {""}
