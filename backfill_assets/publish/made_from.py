"""What others have computed from rows of a plan that are not there any more, because they were taken back or built over.

Until it is built again, live has what the plan has brought about, though nothing that it wrote.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

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
    later, reached, followed = ledger.files().rows(COLUMNS, after=min(build.at for build in wrote)), gone, set[str]()
    while further := {day for _, day in reached} - followed:
        followed |= further
        builds = [build for build in from_arrow(_that_read(later, followed)) if _is_in(build, release)]
        reached, made = _followed(gone, sorted(builds, key=lambda build: build.at))
    return any(made.values())


def _that_read(rows: pa.Table, days: Collection[str]) -> pa.Table:
    """The builds of the days of which one has read any of these days: years that have not are not looked at."""
    reading = rows.filter(pc.match_substring_regex(rows["inputs"], "|".join(sorted(days))))
    of_table, of_day = (pc.is_in(rows[name], value_set=pc.unique(reading[name])) for name in ("table", "day"))
    return rows.filter(pc.and_(of_table, of_day))


def _followed(
    gone: Mapping[Input, Collection[str]], builds: Iterable[Build]
) -> tuple[dict[Input, set[str]], dict[Input, bool]]:
    """What is gone of a plan, with what others have made from it; and of each partition of these `builds`, which are in order,
    whether its rows are such."""
    reached, made = {each: set(fingerprints) for each, fingerprints in gone.items()}, dict[Input, bool]()
    for build in builds:
        this, inputs = _as_input(build), ((name, day) for name, of in build.inputs.items() for day in of)
        from_gone = any(build.inputs[name][day] in reached.get((name, day), ()) for name, day in inputs)
        # Rows that were the same before are not made from it.
        made[this] = from_gone and (build.outcome != "unchanged" or made.get(this, False))
        if made[this]:
            reached.setdefault(this, set()).update(_fingerprints(build))
        elif this in reached and this not in gone:
            reached[this].clear()
    return reached, made


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
