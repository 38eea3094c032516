"""What a step says when some of its days failed, are blocked, or were refused by an audit."""

from backfill_assets.lake.record import AUDITS
from backfill_assets.step.request import StepResult

NOTHING_WRITTEN = (
    "This was an audit of the rows as they stand: nothing was computed or written. Change the rule, or correct what the days "
    "are made from and build them again, with force."
)
OTHERS_WRITTEN = (
    "The days named were not written: the table holds what it held for them before. The other days are committed.",
    "Correct the source or the inputs named, then re-execute this run from failure, or launch these days again.",
)


def failure_message(result: StepResult) -> str:
    """The days that failed or are blocked, with rules, figures and rows; "" if there are none."""
    failed, table = result.failed(), result.table.name
    lines = [f"  {build.day}: {build.message}" for build in failed]
    lines += [f"  {day}: blocked: {why}" for day, why in sorted(result.blocked.items())]
    if not lines:
        return ""
    if any(build.outcome in AUDITS for build in result.built):
        count = f"{len(failed)} day(s) refused, {len(result.blocked)} not judged, {len(result.accepted())} passed"
        return "\n".join([f"{table}: {count}.", *lines, NOTHING_WRITTEN])
    count = f"{len(failed)} day(s) failed, {len(result.blocked)} blocked, {len(result.accepted())} built"
    return "\n".join([f"{table}: {count}.", *lines, *OTHERS_WRITTEN])
