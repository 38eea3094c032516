"""The incidents of a lake: what people should know now, by its status, plans and releases.

An incident joins everything of one kind about one table, plan or service. Commands show the same
facts: nothing is judged here in another way.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from backfill_assets.calendar import ranges
from backfill_assets.errors import UsageError, counted, first_line, named
from backfill_assets.grouping import grouped
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.lake.storage import STAMP
from backfill_assets.plan.late import late_rows, rebuild_commands
from backfill_assets.plan.progress import Ending
from backfill_assets.plan.status import State, Status
from backfill_assets.plan.status_in_bulk import status_in_bulk
from backfill_assets.plan.store import Plans
from backfill_assets.publish.release_live import PASSING, Runs, no_runs, running, why_not_released
from backfill_assets.verify.verify import Verdicts
from backfill_assets.workspace import Workspace

# The days in these states, and the command that helps.
_DAYS = {
    State.FAILED: "backfill run --partitions {days} --target {table} --only failed --downstream",
    State.REWRITTEN: "backfill reconcile",
    State.OCCUPIED: "backfill reconcile",
}
# The run in a reason: another attempt with the same result is the same incident.
_RUN = re.compile(r" \(run [^)]+\)")
# A plan into live that is done is news for a day. Other plans into live count for a week after they
# ended, and rows that no day reads for a week after they arrived.
_NEWS = timedelta(days=1)
_RECENT = timedelta(days=7)
LIVE = "live"


@dataclass(frozen=True)
class Incident:
    """What happened to a table, a plan or a service, who is affected, and what to type.

    Without `commands` it is news, and never over. `since` is when it began, or else when it was
    first seen. Incidents that differ only in `since` are equal.
    """

    kind: str
    subject: str
    what: str
    affected: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    since: datetime | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """Incidents of two looks are the same one if they have the same key."""
        return f"{self.kind} {self.subject}"


def look_for_incidents(
    workspace: Workspace, now: datetime, runs: Runs = no_runs, earlier: Iterable[Incident] = ()
) -> tuple[list[Incident], set[str]]:
    """Return the present incidents, and the subjects of which the earlier incidents still count.

    These are being built, so that their incidents may pass in a moment. `runs` returns the
    unfinished runs of live. `earlier` are the incidents of the look before. Raises BackfillError
    if the lake or the landing area cannot be read.
    """
    workspace = workspace.with_cached_listing()
    work = running(workspace.lake.root, runs)
    # Running steps do not count: a day that failed stays failed until it is built.
    status = status_in_bulk(workspace, workspace.tables, workspace.calendar.days(), {})
    found = [
        *_days(workspace, status),
        *_plans(workspace, status, now, {each.subject for each in earlier if each.commands}),
        *_late_rows(workspace),
        *_budgets(workspace),
    ]
    if work:
        return found, {LIVE, *(step.table for step in work)}
    # An open plan counts: no run carries it out now.
    reasons = [str(each) for each in why_not_released(workspace) if each.cause not in PASSING]
    if reasons:
        what = f"Live is not released, and readers get the release before: {named(reasons)}"
        commands = ("backfill status", "backfill release --reason 'why'")
        found.append(Incident("release", LIVE, what, ("readers of releases",), commands))
    return found, set()


def _days(workspace: Workspace, status: Status) -> Iterator[Incident]:
    for name in status.tables:
        for state, days in status.of(name).items():
            if state in _DAYS:
                spans = named(ranges(days).split(", "))
                why = _RUN.sub("", first_line(status.partitions[name, days[0]].why))
                span = "..".join(dict.fromkeys((str(days[0]), str(days[-1]))))
                helps = _DAYS[state].format(table=name, days=span)
                yield Incident(
                    state,
                    name,
                    f"{name}: {counted(len(days), 'day')} {state} ({spans}): {why}",
                    _downstream(workspace, [name]),
                    (f"backfill status --why {name} {days[0]}", helps),
                )


def _plans(
    workspace: Workspace, status: Status, now: datetime, earlier: Collection[str]
) -> Iterator[Incident]:
    """Yield recent plans, and older plans in `earlier` that still need a command."""
    plans = Plans(workspace.lake.root)
    shadows = ledgers_of_shadows(plans.root)
    for plan_id, files in plans.newest_first().items():
        if not files:
            continue
        since = datetime.strptime(files[-1].partition("-")[0], STAMP).replace(tzinfo=UTC)
        if now - since > _RECENT and plan_id not in shadows and plan_id not in earlier:
            continue
        if plans.last_change(plan_id, files)[0] != "ended":
            continue
        with suppress(UsageError):  # a plan that cannot be read cannot be carried out
            plan = plans.read(plan_id)
            ending = plans.state(plan_id, files)
            found = filter(None, map(status.partitions.get, plan.partitions()))
            is_left = plan.is_shadow or not all(each.is_up_to_date for each in found)
            commands = [f"backfill show {plan_id}", f"backfill resume {plan_id}"]
            what = f"ended ({ending}), and days of it are not up to date"
            if ending == Ending.DONE and plan.is_shadow:
                verdict = Verdicts(plans.root).newest(plan_id)
                what = f"is built in its shadow: {verdict.result if verdict else 'not verified'}"
                verb = "publish" if verdict and verdict.passed else "verify"
                commands = [f"backfill {verb} {plan_id}"]
            elif ending == Ending.DONE and now - since < _NEWS:
                what = "is done"
                commands = []
            elif ending in (Ending.DONE, Ending.CANCELLED) or not is_left:
                continue
            reason = plan.options.reason and f" ({plan.options.reason})"
            affected = _downstream(workspace, plan.code)
            what = f"Plan {plan_id}{reason} {what}."
            yield Incident("plan", plan_id, what, affected, tuple(commands), since)


def _late_rows(workspace: Workspace) -> Iterator[Incident]:
    """Yield the rows that neither nights nor sensors bring into their days."""
    late = late_rows(workspace)
    first = workspace.calendar.last - _RECENT
    beyond = grouped((each.table, each) for each in late.beyond())
    unplaced = grouped((each.table, each) for each in late.unplaced if each.day > first)
    for name in {**beyond, **unplaced}:
        days = beyond.get(name, [])
        rows = sum(each.rows for each in days) + sum(each.rows for each in unplaced.get(name, []))
        yield Incident(
            "late rows",
            name,
            f"{counted(rows, 'row')} for {name} came after the horizon, and are in no day.",
            _downstream(workspace, [name]),
            ("backfill late", *rebuild_commands(days, workspace.settings.ask_above_days)),
        )


def _budgets(workspace: Workspace) -> Iterator[Incident]:
    """Yield the tables that wait for a service which runs do not ask now."""
    # A project with such a source has loaded these modules, and Spark.
    from backfill_assets.sources.http.client import RetryPolicy, budget_of
    from backfill_assets.sources.http.source import HttpSource

    policy = RetryPolicy()
    for table in workspace.tables:
        for source in table.sources():
            if not isinstance(source, HttpSource):
                continue
            slot = budget_of(source, workspace.area, policy).wait()
            if slot.wait > policy.longest_wait:
                yield Incident(
                    "budget",
                    table.name,
                    f"{table.name} gets no answers now: {slot.why}. Its missing days wait.",
                    _downstream(workspace, [table.name]),
                    (f"backfill status {table.name}",),
                )


def _downstream(workspace: Workspace, names: Collection[str]) -> tuple[str, ...]:
    """The tables that read these, the tables that read those, and the consumers of all."""
    reached = {*names}
    for table in workspace.tables:
        if any(other.name in reached for other, _ in table.windows()):
            reached.add(table.name)
    tables = [name for name in workspace.names if name in reached and name not in names]
    consumers = [each.name for each in workspace.consumers if reached & {*each.tables}]
    return (*tables, *consumers)
