"""The tags of runs: their plan and chunk, their days, who launched them, and why.

Dagster's UI and its answers over GraphQL leave out tags that begin with `.dagster/`. Our tags for
programs begin with it; runs can be looked up by them.
"""

from collections.abc import Collection, Mapping
from datetime import date

from backfill_assets.calendar import NO_DAY, between, days_as_typed, fixed_days
from backfill_assets.grouping import grouped
from backfill_assets.user import user_name

# Also on the runs that made the plan and carried it out.
PLAN = "backfill/plan"
# The chunk's number in its plan, from 1. dagster.yaml limits the runs that have it.
CHUNK = "backfill/chunk"
# The days that each asset of a run builds, if they are not the whole range of the run:
# `raw/a,raw/b: 2019-09-01,2019-09-04; staging/c: 2019-09-01..2019-09-06`.
# A longer text goes on in `backfill/days-0001`: PostgreSQL's index on tags takes 2,704 bytes.
DAYS = "backfill/days"
_LONGEST_TAG = 2000
# One launch request. If the answer was lost, the run is found by this tag.
LAUNCH = ".dagster/backfill_launch"
# The data version of days that a table does not have.
BEFORE = "before the table's first day"
# On a run that carries a plan out and builds no tables. dagster.yaml limits these runs too.
LAUNCHER = ".dagster/backfill_launcher"
WHO = "backfill/who"
# Dagster's tags on a run: its one day, or its first and its last.
DAY = "dagster/partition"
FIRST_DAY = "dagster/asset_partition_range_start"
LAST_DAY = "dagster/asset_partition_range_end"
# On the runs of run_plan that a sensor requests. The sensor looks up its batches by it.
BATCH = ".dagster/backfill_batch"
REASON = "backfill/reason"
# The process of a run, if the run starter started it.
PROCESS = ".dagster/backfill_process"
# The label of a failed step's metadata: the reason of each day that it could not build.
FAILED_DAYS = "failed days"


def tags_of_days(days: Mapping[str, Collection[date]]) -> dict[str, str]:
    """The tags of a run that builds these days of these assets.

    Dagster gives a run one range without gaps. If an asset has other days, DAYS names them. Tables
    without days are not partitioned.
    """
    days = {asset: of_asset for asset, of_asset in days.items() if NO_DAY not in of_asset}
    if not days:
        return {}
    every = {day for of_asset in days.values() for day in of_asset}
    first = min(every)
    last = max(every)
    run_tags = {DAY: str(first)} if first == last else {FIRST_DAY: str(first), LAST_DAY: str(last)}
    assets_of = grouped((days_as_typed(of_asset), asset) for asset, of_asset in days.items())
    if assets_of.keys() == {days_as_typed(between(first, last))}:
        return run_tags
    text = "; ".join(f"{','.join(assets)}: {typed}" for typed, assets in assets_of.items())
    parts = [text[at : at + _LONGEST_TAG] for at in range(0, len(text), _LONGEST_TAG)]
    return run_tags | {f"{DAYS}-{n:04}" if n else DAYS: part for n, part in enumerate(parts)}


def days_of_assets(run_tags: Mapping[str, str]) -> dict[str, list[date]]:
    """The days that a run builds of each asset, by its tag DAYS. Empty without the tag.

    Raises UsageError if someone has typed a tag that names no days.
    """
    whole = "".join(run_tags[key] for key in sorted(run_tags) if key.startswith(DAYS))
    days: dict[str, list[date]] = {}
    for text in filter(None, whole.split("; ")):
        assets, _, typed = text.partition(": ")
        # A text without days is refused as a day.
        days |= dict.fromkeys(assets.split(","), fixed_days(typed or text))
    return days


def launched_by(run_tags: Mapping[str, str]) -> str:
    """The user who launched a run, by its tags, or the user of this process.

    The first of: the plan's user, a schedule, a sensor, Dagster's user, the user of this process.
    """
    names = ("dagster/schedule_name", "dagster/sensor_name", "user")
    found = (run_tags.get(key) for key in (WHO, *names))
    return next(filter(None, found), "") or user_name()


def title_of(run_tags: Mapping[str, str]) -> str:
    """A title for a run, since Dagster has none: its plan and chunk, or its reason."""
    plan = run_tags.get(PLAN)
    chunk = run_tags.get(CHUNK)
    return f"plan {plan}, chunk {chunk}" if plan and chunk else run_tags.get(REASON, "")


def runs_of(plan_id: str) -> str:
    """The UI's page with the runs and backfills of a plan, without a host, for links in the UI."""
    return f"/runs?q[]=tag:{PLAN}={plan_id}"
