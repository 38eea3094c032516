"""The words of plans and rebuilds, for the command line and for Dagster's jobs."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import SourceError, first_line
from backfill_assets.grouping import grouped
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Ending, Estimate, Progress
from backfill_assets.plan.remaining import WorkState
from backfill_assets.plan.selection import Reason, ReasonKind, Selection
from backfill_assets.plan.status import rest_hint

CHUNKS_SHOWN = 12
_BLOCKED_SHOWN = 5
_REASONS_SHOWN = 5
UNUSABLE_SHOWN = 5
_ADVISED = re.compile(r"(?:`backfill run --partitions \S+ )?(--accept (.+?) --reason 'why')`?")


def table_rows(plan: Plan) -> list[tuple[str, int, str, str]]:
    """A row for each table: its name, how many days, which, and why."""
    days = grouped(plan.partitions())
    return [
        (name, len(days[name]), ranges(days[name]), _why(reasons))
        for name, reasons in plan.reasons.items()
    ]


def _why(reasons: Mapping[date, Reason]) -> str:
    counts = Counter(
        "reads what is rebuilt" if reason.kind == ReasonKind.READS else str(reason)
        for reason in reasons.values()
    )
    return ", ".join(f"{n} {why}" for why, n in counts.most_common())


def chunk_lines(plan: Plan) -> Iterator[str]:
    """A line for each chunk, in order, and where they are built, if not in live."""
    for n, chunk in enumerate(plan.chunks[:CHUNKS_SHOWN]):
        canary = " (canary)" if n == 0 and plan.options.canary and len(plan.chunks) > 1 else ""
        days = sorted({day for _, day in chunk.partitions()})
        yield f"chunk {n + 1}{canary}: {len(chunk.partitions())} partitions, {days[0]}..{days[-1]}"
    if len(plan.chunks) > CHUNKS_SHOWN:
        yield f"and {len(plan.chunks) - CHUNKS_SHOWN} more chunks"
    if plan.is_shadow:
        yield (
            "In a shadow: no reader sees these days until they are published. --into live writes"
            " them at once."
        )


def blocked_lines(selection: Selection) -> Iterator[str]:
    if selection.blocked:
        yield f"Blocked, and not in the plan: {len(selection.blocked)} partition(s)"
        for (table, day), why in list(selection.blocked.items())[:_BLOCKED_SHOWN]:
            yield f"  {table} {day}: {why}"
        if selection.upstream_helps:
            yield "  With --upstream, a plan holds what they need too, where there is a delivery."


def never_built_lines(selection: Selection) -> Iterator[str]:
    """A sentence on the tables downstream whose first days are not in the plan."""
    if names := selection.never_built:
        yield (
            f"Downstream, but never built, and not in the plan: {', '.join(names)}."
            " --downstream=all adds their days."
        )


def unusable_lines(unusable: Mapping[Partition, SourceError]) -> Iterator[str]:
    """The days of a plan that will fail unless what was delivered for them is corrected."""
    for (table, day), error in list(unusable.items())[:UNUSABLE_SHOWN]:
        yield f"{table} {day} will fail: {error.what}"
        yield f"  {error.next_step}"
    if len(unusable) > UNUSABLE_SHOWN:
        yield (
            f"and {len(unusable) - UNUSABLE_SHOWN} more days whose source cannot be used: `backfill"
            " status` names them"
        )


def expected_line(estimate: Estimate, price_per_hour: float | None) -> str:
    cost = estimate.cost(price_per_hour)
    price = "" if cost is None else f" At {price_per_hour:g} an hour, it costs {cost:.2f}."
    return f"Expected: {estimate.text()}.{price}"


def progress_line(progress: Progress) -> str:
    """The progress in one line, the same as long as nothing has changed."""
    counts = []
    for table in progress.tables():
        unbuilt = [
            f"{n} {state}"
            for n, state in ((table.failed, "failed"), (table.blocked, "blocked"))
            if n
        ]
        counts.append(
            f"{table.table} {table.done}/{table.days}"
            + (f" ({', '.join(unbuilt)})" if unbuilt else "")
        )
    return f"{chunks_line(progress)}: {', '.join(counts)}"


def chunks_line(progress: Progress) -> str:
    total = len(progress.plan.chunks)
    running = ", ".join(f"chunk {number}" for number in sorted(progress.running))
    over = f"{len(progress.chunks_over)} of {total} chunk(s) done" + (
        f", running: {running}" if running else ""
    )
    stopped = (
        f"; stopping: {progress.stopped.why}" if progress.stopped and not progress.over else ""
    )
    waiting = f"; {progress.waiting}" if progress.waiting else ""
    return over + stopped + waiting


def shadow_lines(plan: Plan) -> Iterator[str]:
    """Yield the commands for a plan whose shadow is built."""
    yield f"Plan {plan.id} is built in its shadow. No reader sees it; live is as it was."
    yield f"  compare it with live:  backfill diff {plan.id}"
    yield f"  verify it:             backfill verify {plan.id}"
    yield f"  publish it:            backfill publish {plan.id}"
    yield f"  delete it:             backfill discard {plan.id}"


def ending_lines(end: Progress, *, in_shadow: bool = False) -> Iterator[str]:
    """Yield how a plan ended: what was up to date, what failed, what is left, and how to go on.

    For a plan that is built in its shadow, the lines say how it is published.
    """
    plan = end.plan
    if end.remaining.saved:
        yield (
            f"{len(end.remaining.saved)} partition(s) were up to date and not built again: code and"
            " inputs are the same."
        )
    yield from map(str, end.remaining.early_stops)
    yield from not_built_lines(end)
    if not end.over:
        yield f"Plan {plan.id} is open. `backfill watch {plan.id}` follows it."
        yield f"If no command carries it out any more: `backfill resume {plan.id}`."
        return
    missing = sum(table.days - table.done for table in end.tables())
    if in_shadow and end.ending == Ending.DONE and not missing:
        yield from shadow_lines(plan)
        return
    stopped = f" Stopped: {end.stopped.why.rstrip('.')}." if end.stopped else ""
    yield (
        f"Plan {plan.id}: {end.ending} after {(end.at - end.started).total_seconds():.0f}"
        f" s.{stopped}"
    )
    if missing and (in_shadow or end.ending != Ending.DONE):
        yield (
            f"{missing} partition(s) are not built; what is built stays. Correct what is named"
            f" above, then `backfill resume {plan.id}`."
        )
        if in_shadow and (advice := as_accepted(plan, end.remaining.why.values())):
            yield advice


def as_accepted(plan: Plan, messages: Iterable[str]) -> str:
    """What to type to accept what these messages of failed days name; "" if they name nothing.

    For a plan into a shadow, which is made again.
    """
    found = (match[2] for text in messages for match in _ADVISED.finditer(text))
    names = ",".join(dict.fromkeys(found))
    again = f"{plan.as_typed} --into shadow --accept {names} --reason 'why'"
    advice = f"To accept what is named: `backfill discard {plan.id}`, then `{again}`."
    return advice if names else ""


def without_command(message: str) -> str:
    """The message with the advised options only. Its command makes a plan of one day."""
    return _ADVISED.sub(r"\1", message)


def not_built_lines(end: Progress) -> Iterator[str]:
    """The reasons of failed days, then one line for each table with days that they block."""
    failed: dict[tuple[str, str], list[date]] = {}
    hints: dict[tuple[str, str], str] = {}
    blocked: dict[str, list[date]] = {}
    for (table, day), why in end.remaining.why.items():
        if end.remaining.states[table, day] == WorkState.FAILED:
            failed.setdefault((table, first_line(why)), []).append(day)
            hints.setdefault((table, first_line(why)), rest_hint(why, table, day))
        else:
            blocked.setdefault(table, []).append(day)
    for (table, reason), days in list(failed.items())[:_REASONS_SHOWN]:
        why = without_command(reason) if end.plan.is_shadow else reason
        yield f"  failed: {table} {ranges(days)}: {why}{hints[table, reason]}"
    if len(failed) > _REASONS_SHOWN:
        yield (
            f"  and {len(failed) - _REASONS_SHOWN} more reasons: `backfill show {end.plan.id}"
            " --json`"
        )
    for table, days in blocked.items():
        yield (
            f"  blocked: {table} {ranges(days)}: {min(days)} {end.remaining.why[table, min(days)]}"
        )


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for Dagster's UI, which shows Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(str(value).replace('|', '&#124;') for value in line)} |" for line in lines
    )
