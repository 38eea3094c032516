"""The commands that plan, build and judge days, or keep them as they are.

After Ctrl-C, running chunks continue on the server, and no other chunk is launched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import typer

from backfill_assets.cli import exit_codes
from backfill_assets.cli.options import (
    Command,
    Partitions,
    PlanId,
    TableArgument,
    Target,
    either,
    with_flags,
)
from backfill_assets.cli.output import Output, dagster_of_command, workspace_of_command
from backfill_assets.plan.request import RebuildRequest, RunRequest, argument, option
from backfill_assets.user import user_name
from backfill_assets.verbs.options import AcceptCodeOptions, AdoptOptions, ArchiveOptions

if TYPE_CHECKING:
    from backfill_assets.workspace import Workspace

app = typer.Typer()


@app.command(cls=Command)
@with_flags
def plan(options: RebuildRequest, output: Output) -> None:
    """Plan a rebuild: the days of each table, the reasons and the expected time. Starts nothing."""
    from backfill_assets.verbs.plan import plan_rebuild

    workspace = workspace_of_command(only_reading=True)
    output.end(plan_rebuild(options, workspace, dagster_of_command(workspace)))


@app.command(cls=Command)
@with_flags
def run(options: RunRequest, output: Output) -> None:
    """Carry a plan out, its canary first if it has one, and follow it to its end.

    After Ctrl-C, chunks that are running go on, and no other is launched.
    """
    from backfill_assets.plan.store import Plans

    workspace = workspace_of_command()
    if options.plan:
        plan_id = Plans(workspace.lake.root).full_id(options.plan)
    else:
        plan_id = new_plan(options, workspace, output)
    carry_out_and_exit(plan_id, workspace, output)


def new_plan(request: RebuildRequest, workspace: "Workspace", output: Output) -> str:
    """Make a plan, and ask whether to carry it out.

    Exit if the answer is no, or if there is nothing to build. Raises RefusedByGuard if there is no
    terminal to ask on.
    """
    from backfill_assets.rebuild.carry_out import after_nothing
    from backfill_assets.verbs.plan import NothingBuilt, plan_rebuild

    dagster = dagster_of_command(workspace)
    report = plan_rebuild(request, workspace, dagster)
    if isinstance(report, NothingBuilt):
        after_nothing(request, workspace, dagster, output.note)
        output.end(report)
    plan_id = report.made.plan.id
    output.preview(report.contents())
    if not request.yes:
        output.confirm(
            "Carry this plan out?",
            unchanged="Nothing was started.",
            next_step=f"The plan is stored: `backfill run {plan_id}` carries it out.",
            # Readers of live can only go back by a rollback.
            default=report.made.plan.is_shadow,
        )
    return plan_id


def carry_out_and_exit(plan_id: str, workspace: "Workspace", output: Output) -> NoReturn:
    """Carry a plan out, print how it ended, and exit with the matching code."""
    from backfill_assets.cli.progress import follower
    from backfill_assets.servers.home import started_dagster
    from backfill_assets.verbs.run import run_plan

    dagster = started_dagster(workspace.settings, output.note)
    follow = follower(output.notes, plan_id, workspace, dagster)
    who = user_name()
    with detaching(output, plan_id):
        report = run_plan(plan_id, workspace, dagster, follow, who=who, warn=output.note)
    output.end(report, exit_codes.OF_ENDING[report.ending])


@contextmanager
def detaching(output: Output, plan_id: str) -> Iterator[None]:
    """Let Ctrl-C end the command, not the rebuild."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(
            f"Stopped following plan {plan_id}. Chunks that are running go on on the server; no"
            f" other is launched.\n  continue:  backfill resume {plan_id}\n  follow:    backfill"
            f" watch {plan_id}\n  cancel:    backfill cancel {plan_id}"
        )
        raise SystemExit(exit_codes.PARTIAL) from None


@app.command()
@with_flags
def resume(output: Output, plan_id: PlanId = "") -> None:
    """Continue a plan: build the days that are left, and nothing twice."""
    from backfill_assets.verbs.run import plan_to_resume

    workspace = workspace_of_command()
    plan_id = plan_to_resume(plan_id, workspace)
    output.note(f"Continuing plan {plan_id}.")
    carry_out_and_exit(plan_id, workspace, output)


@app.command()
@with_flags
def watch(output: Output, plan_id: PlanId = "") -> None:
    """Follow a plan that another command or job carries out. Launches nothing."""
    from backfill_assets.cli.progress import follower
    from backfill_assets.plan.lifecycle import resolve_plan_id
    from backfill_assets.plan.store import Plans
    from backfill_assets.verbs.run import watch_plan

    workspace = workspace_of_command(only_reading=True)
    plan_id = resolve_plan_id(plan_id, Plans(workspace.lake.root))
    dagster = dagster_of_command(workspace)
    follow = follower(output.notes, plan_id, workspace, dagster)
    try:
        report = watch_plan(plan_id, workspace, dagster, follow)
    except KeyboardInterrupt:  # the command that carries out the plan continues
        return
    # A plan that is closed, such as a published one, has another ending.
    output.end(report, exit_codes.OF_ENDING.get(report.ending, exit_codes.DONE))


@app.command()
@with_flags
def cancel(output: Output, plan_id: PlanId = "") -> None:
    """Cancel a plan: terminate its runs and launch no more. Days that are built stay."""
    from backfill_assets.settings import read_settings
    from backfill_assets.verbs.run import cancel_plan

    output.end(cancel_plan(plan_id, read_settings(), who=user_name()))


@app.command()
@with_flags
def archive(
    options: ArchiveOptions,
    output: Output,
    name: str = argument("", "The archives of one source. Default: all.", "NAME"),
) -> None:
    """Import multi-day files that are new or have changed, split into days.

    Each file is read once. No table is built.
    """
    from backfill_assets.verbs.maintain import import_archives

    output.end(import_archives(workspace_of_command(), name, options, note=output.note))


@app.command()
@with_flags
def audit(
    output: Output,
    partitions: Partitions = "",
    target: Target = "",
    purity: bool = option(
        False, "Compute them twice from shuffled inputs instead, and compare the rows."
    ),
) -> None:
    """Check built days by today's rules, as they stand. Writes no rows."""
    from backfill_assets.verbs.audit import audit_days, audit_purity

    who = user_name()
    # The address of the run goes to stderr, so that stdout has only the report.
    note = Output(as_json=True).note
    verb = audit_purity if purity else audit_days
    report = verb(workspace_of_command(), partitions, target, who=who, note=note)
    output.end(report)


@app.command()
@with_flags
def accept_code(options: AcceptCodeOptions, output: Output, table: TableArgument = "") -> None:
    """Keep days that earlier code built: the present code then builds only new days.

    No row changes. After the next change of the code, the days are outdated again.
    """
    from backfill_assets.verbs.accept_code import accept_code as keep_days

    options = replace(options, target=either(table, options.target, "--target"))
    report = keep_days(workspace_of_command(), options, who=user_name())
    output.end(report)


@app.command()
@with_flags
def adopt(options: AdoptOptions, output: Output) -> None:
    """Adopt an existing Delta table's days as they stand: they count as built.

    Nothing is computed, and no row is rewritten. Without --as-of-code, the code that made the rows
    is not known, and its changes do not matter until a day is built again.
    """
    from backfill_assets.verbs.adopt import adopt_days

    report = adopt_days(workspace_of_command(), options, who=user_name(), note=output.note)
    output.end(report)
