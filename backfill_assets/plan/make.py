"""Make a plan from a request, and store it in the lake."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from backfill_assets.calendar import Partition
from backfill_assets.errors import (
    NotFetchedYet,
    RefusedByGuard,
    SourceError,
    UsageError,
    did_you_mean,
)
from backfill_assets.lake.history import Latest
from backfill_assets.lake.table_facts import keep_facts
from backfill_assets.plan import lifecycle
from backfill_assets.plan.columns import column_lines, refuse_type_of_some_days
from backfill_assets.plan.lifecycle import refuse_protected
from backfill_assets.plan.neighbours import StatusReader, select_neighbours
from backfill_assets.plan.plan import Plan, make
from backfill_assets.plan.progress import Ending, Estimate, estimate
from backfill_assets.plan.request import ALL_TABLES, NOTHING, PlanOptions, RebuildRequest
from backfill_assets.plan.selection import Selection
from backfill_assets.plan.selector import selector_of
from backfill_assets.plan.shadow import choose_target
from backfill_assets.plan.status import (
    StatusByPartition,
    other_inputs,
    runs_by_partition,
)
from backfill_assets.plan.store import DISCARDED, PUBLISHED, ROLLED_BACK, Plans
from backfill_assets.step.accept import unknown_names
from backfill_assets.step.inputs import acceptable_rules, delivered_for, file_names
from backfill_assets.step.request import write_mode_problem
from backfill_assets.step.sources import era_lines
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Planned:
    """A plan that was made, with its selection and estimate.

    `columns` has sentences about changed columns and about changed or lost inputs. `unusable` has
    the partitions that will fail because their source cannot be used, with the reason.
    """

    plan: Plan
    selection: Selection
    expected: Estimate
    columns: Sequence[str] = ()
    unusable: Mapping[Partition, SourceError] = field(default_factory=dict)


def make_plan(request: RebuildRequest, workspace: Workspace) -> Planned:
    """Make the plan and store it in the lake.

    Raises UsageError and RefusedByGuard. Then nothing is stored.
    """
    workspace = workspace.with_cached_listing()
    graph = workspace.graph
    settings = workspace.settings
    selector = selector_of(request, workspace, graph.calendar)
    reader = StatusReader(workspace, runs_by_partition(workspace))
    selection = select_neighbours(selector, graph, reader.read, reader.was_built)
    builds = reader.builds
    plans = Plans(workspace.lake.root)
    options = request.options(settings.days_per_run)
    options = replace(options, into=choose_target(options, selection.partitions, workspace.lake))
    plan = _new(selection, graph, options, plans)
    guard(plan, workspace, yes=request.yes)
    lifecycle.refuse_overlap(plan, plans)
    tables = workspace.among(plan.code)
    mode = request.write_mode
    if refused := [why for table in tables if (why := write_mode_problem(table, mode))]:
        raise UsageError(
            f"{'; '.join(refused)}.",
            unchanged="Nothing was planned.",
            next_step="Leave such tables out (--target), or plan with --write-mode overwrite.",
        )
    _refuse_unknown_expectations(options, tables)
    refuse_type_of_some_days(plan, workspace, tables)
    columns = chain(
        *column_lines(workspace, tables, plan.chunks, in_shadow=plan.is_shadow).values(),
        era_lines(tables, {table.name: plan.days_of(table.name) for table in tables}),
        _cut_lines(plan, reader.partitions),
        _input_lines(plan, tables, builds),
    )
    _refuse_unknown_names(plan, tables, workspace, builds)
    workspace.make_home()
    plans.keep(plan)
    keep_facts({workspace.lake.path(name) for name, _ in builds.accepted})
    usual = workspace.lake.ledger.usual_seconds(plan.code)
    expected = estimate(plan.partitions(), usual, len(plan.chunks))
    return Planned(
        plan, selection, expected, list(columns), _unusable(plan, tables, workspace, builds)
    )


def _unusable(
    plan: Plan, tables: Iterable[Table], workspace: Workspace, builds: Latest
) -> dict[Partition, SourceError]:
    """The planned partitions whose delivery is neither usable nor accepted, with the reason."""
    accept = plan.options.accept
    return {
        (table.name, day): each
        for table in tables
        for day, each in delivered_for(
            table, sorted(plan.days_of(table.name)), workspace.area, builds.accepted, accept
        ).items()
        if isinstance(each, SourceError) and not isinstance(each, NotFetchedYet)
    }


def _refuse_unknown_names(
    plan: Plan, tables: Iterable[Table], workspace: Workspace, builds: Latest
) -> None:
    """Raise UsageError for a name to accept that belongs to no delivery of the planned days.

    The current deliveries and those of earlier builds count. If a delivery cannot be used, its
    names are unknown, and every name is allowed.
    """
    names = set[str]()
    accept = plan.options.accept
    for table in tables if accept else ():
        of_table = file_names(
            table, sorted(plan.days_of(table.name)), workspace.area, builds.accepted
        )
        if of_table is None:
            return
        names |= (
            of_table
            | types_of(table.columns).keys()
            | {rule.name for rule in acceptable_rules(table)}
        )
    if unknown := unknown_names(accept, names):
        raise UsageError(
            f"--accept {unknown[0]} is not a column, a rule, or a file that these days have or were"
            f" last built from.{did_you_mean(unknown[0], names)}",
            unchanged="Nothing was planned.",
            next_step="Files are named from the landing area on: orders/2024-06-01.jsonl.",
        )


def _input_lines(plan: Plan, tables: Iterable[Table], builds: Latest) -> Iterator[str]:
    """A sentence for each table whose planned days were last built from other inputs."""
    for table in tables:
        built = [
            build
            for day in plan.days_of(table.name)
            if (build := builds.accepted.get((table.name, day)))
        ]
        for difference, days in Counter(other_inputs(table, build) for build in built).items():
            if difference:
                yield f"{table.name} {difference}: {days} planned day(s) were built before."


def _cut_lines(plan: Plan, status: StatusByPartition) -> Iterator[str]:
    """Yield a sentence if days will lose inputs that are now outside the calendar."""
    cut = [partition for partition in plan.partitions() if status[partition].loses_inputs]
    if cut:
        table, day = cut[0]
        why = status[cut[0]].why
        yield (
            f"{len(cut)} partition(s) lose rows of inputs, as {table} {day}: {why}. To keep them,"
            " set BACKFILL_FIRST_DAY and BACKFILL_LAST_DAY as they were"
        )


def _refuse_unknown_expectations(options: PlanOptions, tables: Iterable[Table]) -> None:
    """Raise UsageError for an expected change of an unknown table or column."""
    planned = {table.name: table for table in tables}
    for name, expected in options.expected.items():
        if (name, expected) == (ALL_TABLES, {NOTHING}):
            continue
        if name not in planned:
            raise UsageError(
                f"--expect names {name}, which is not in this plan.{did_you_mean(name, planned)}",
                unchanged="Nothing was planned.",
                next_step=f"The plan has {', '.join(planned)}.",
            )
        columns = types_of(planned[name].columns)
        unknown = sorted(expected - {*columns, "*", "added", "removed"})
        if unknown and expected != {NOTHING}:
            raise UsageError(
                f"--expect names {unknown[0]}, which is not a column of {name}."
                f"{did_you_mean(unknown[0], columns)}",
                unchanged="Nothing was planned.",
                next_step=f"The columns are {', '.join(columns)}.",
            )


def _new(selection: Selection, graph: Graph, options: PlanOptions, plans: Plans) -> Plan:
    """Make a plan that has not been carried out yet.

    After a plan has ended, the same request makes another plan, with a higher `repeat`. `resume`
    continues the old plan.
    """
    plan = make(selection, graph, options)
    ended = {PUBLISHED, DISCARDED, ROLLED_BACK} | ({"cancelled"} if options.force else set())
    if not plan.is_shadow:  # a plan that is done in a shadow waits to be published
        ended |= set(Ending) if options.force else {Ending.DONE}
    while plans.state(plan.id) in ended:
        plan = make(selection, graph, options, repeat=plan.repeat + 1)
    return plan


def guard(plan: Plan, workspace: Workspace, *, yes: bool) -> None:
    """Raise RefusedByGuard for protected days, or for many days without `yes`."""
    refuse_protected(
        plan, workspace, "Nothing was planned; with --leave-protected, the others are."
    )
    settings = workspace.settings
    days = plan.days()
    if len(days) > settings.ask_above_days and not yes:
        raise RefusedByGuard(
            f"This plan rebuilds {len(days)} days, more than {settings.ask_above_days}"
            " (BACKFILL_ASK_ABOVE_DAYS).",
            unchanged="Nothing was planned.",
            next_step="Type the same with --yes if that is meant.",
        )
