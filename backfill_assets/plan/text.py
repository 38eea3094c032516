"""Plans and rebuilds in words: the same on a terminal, which draws around them, and in the runs of Dagster's jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from backfill_assets.calendar import ranges
from backfill_assets.plan.estimate import Estimate
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Progress
from backfill_assets.plan.remaining import WorkState
from backfill_assets.plan.selection import READS, Selection

CHUNKS_SHOWN = 12
LEFT_OUT_SHOWN = 5
WHYS_SHOWN = 5


def rows_of(plan: Plan) -> list[tuple[str, int, str, str]]:
    """A row a table: its name, how many days, which, and why."""
    days: dict[str, list[date]] = {}
    for table, day in plan.partitions():
        days.setdefault(table, []).append(day)
    return [(name, len(days[name]), ranges(days[name]), _why(reasons)) for name, reasons in plan.reasons.items()]


def _why(reasons: Mapping[str, str]) -> str:
    counts = Counter("reads what is rebuilt" if why.startswith(READS) else why for why in reasons.values())
    return ", ".join(f"{n} {why}" for why, n in counts.most_common())


def chunks_of(plan: Plan) -> Iterator[str]:
    """A line a chunk, in order."""
    for n, chunk in enumerate(plan.chunks[:CHUNKS_SHOWN]):
        canary = " (canary)" if n == 0 and plan.options.canary and len(plan.chunks) > 1 else ""
        every = sorted({day for each in chunk.days.values() for day in each})
        yield f"chunk {n + 1}{canary}: {len(chunk.partitions())} partitions, {every[0]}..{every[-1]}"
    if len(plan.chunks) > CHUNKS_SHOWN:
        yield f"and {len(plan.chunks) - CHUNKS_SHOWN} more chunks"


def blocked(selection: Selection) -> Iterator[str]:
    if selection.blocked:
        yield f"Blocked, and not in the plan: {len(selection.blocked)} partition(s)"
        for (table, day), why in list(selection.blocked.items())[:LEFT_OUT_SHOWN]:
            yield f"  {table} {day}: {why}"
        yield "  --upstream plans what they need along with them, where there is a delivery."


def expected(estimate: Estimate, price_per_hour: float | None) -> str:
    cost = estimate.cost(price_per_hour)
    price = "" if cost is None else f" At {price_per_hour:g} an hour, it costs {cost:.2f}."
    return f"Expected: {estimate.text()}.{price}"


def in_a_line(progress: Progress) -> str:
    counts = []
    for each in progress.tables():
        more = [f"{n} {what}" for n, what in ((each.failed, "failed"), (each.blocked, "blocked back")) if n]
        counts.append(f"{each.table} {each.done}/{each.days}" + (f" ({', '.join(more)})" if more else ""))
    return f"{chunks_over(progress)}: {', '.join(counts)}"


def chunks_over(progress: Progress) -> str:
    total = len(progress.plan.chunks)
    work = ", ".join(f"chunk {number}" for number in sorted(progress.running))
    told = f"{len(progress.chunks_over)} of {total} chunk(s) over" + (f", at work: {work}" if work else "")
    stopped = f"; stopping: {progress.stopped.why}" if progress.stopped and not progress.over else ""
    silent = f"; {progress.silent}" if progress.silent else ""
    return told + stopped + silent


def ending(end: Progress) -> Iterator[str]:
    """How it ended: what needed no computing, what failed and what waits for that, what is left and how to go on."""
    plan = end.plan
    if end.remaining.saved:
        yield f"{len(end.remaining.saved)} partition(s) were up to date without being computed: code and inputs are the same."
    yield from unbuilt(end)
    stopped = f" Stopped: {end.stopped.why}." if end.stopped else ""
    yield f"Plan {plan.id}: {end.ending} after {(end.at - end.started).total_seconds():.0f} s.{stopped}"
    missing = sum(each.days - each.done for each in end.tables())
    if missing:
        yield (
            f"{missing} partition(s) are not built; what is built stays. Mend what is named above, then "
            f"`backfill resume {plan.id}`."
        )


def unbuilt(end: Progress) -> Iterator[str]:
    """What failed, each reason once with its days; then, a line a table, what waits for that."""
    failed: dict[tuple[str, str], list[date]] = {}
    blocked: dict[str, list[date]] = {}
    for (table, day), why in end.remaining.why.items():
        if end.remaining.states[table, day] == WorkState.FAILED:
            failed.setdefault((table, why.partition("\n")[0]), []).append(day)
        else:
            blocked.setdefault(table, []).append(day)
    for (table, why), days in list(failed.items())[:WHYS_SHOWN]:
        yield f"  failed: {table} {ranges(days)}: {why}"
    if len(failed) > WHYS_SHOWN:
        yield f"  and {len(failed) - WHYS_SHOWN} more reasons: `backfill show {end.plan.id} --json`"
    for table, of in blocked.items():
        yield f"  blocked back: {table} {ranges(of)}: {min(of)} {end.remaining.why[table, min(of)]}"


def in_markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as Dagster's UI draws it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(partition).replace('|', '&#124;') for partition in line)} |" for line in lines)
