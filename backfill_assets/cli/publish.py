"""The commands that decide what readers get.

These are verify, preview, publish, rebase, discard, rollback, releases, release, switch and
export.
"""

from enum import StrEnum
from functools import partial
from pathlib import Path

import typer

from backfill_assets.cli.options import (
    Channel,
    Partitions,
    Yes,
    either,
    with_flags,
)
from backfill_assets.cli.output import (
    Output,
    dagster_of_command,
    lake_of_command,
    workspace_of_command,
    workspace_of_records,
)
from backfill_assets.plan.request import argument, option
from backfill_assets.user import user_name
from backfill_assets.verbs.options import (
    PreviewOptions,
    PublishOptions,
    RollbackOptions,
    ShadowOptions,
    SwitchOptions,
    VerifyOptions,
)

app = typer.Typer()


class Keep(StrEnum):
    """Whose rows win if both live and a plan have new rows."""

    LIVE = "live"


@app.command()
@with_flags
def verify(
    options: VerifyOptions,
    output: Output,
    all_: bool = option(False, "List every check, and all figures of each."),
) -> None:
    """Run the pre-publish checks of a plan that was built in its shadow.

    With --accept, accept a check that needs a decision. Exit with 4 while one needs a decision.
    """
    from backfill_assets.cli import exit_codes
    from backfill_assets.verbs.publish import plan_in_shadow
    from backfill_assets.verbs.verify import verify_plan

    workspace = workspace_of_command()
    plan = plan_in_shadow(options.plan, workspace)
    report = verify_plan(plan, workspace, options, who=user_name(), with_all=all_)
    output.end(report, exit_codes.OF_VERDICT[report.verdict.result])


@app.command()
@with_flags
def preview(options: PreviewOptions, output: Output) -> None:
    """Let a few readers try a plan: the newest release, with the days of the plan's shadow.

    Nothing of the plan is in live. For a channel, the plan must be verified.
    """
    from backfill_assets.verbs.publish import plan_in_shadow, preview_plan
    from backfill_assets.verbs.releases import unfinished_in

    workspace = workspace_of_command()
    plan = plan_in_shadow(options.plan, workspace)
    runs = partial(unfinished_in, workspace)
    output.end(preview_plan(plan, workspace, runs, options, who=user_name()))


@app.command()
@with_flags
def publish(
    options: PublishOptions,
    output: Output,
    dry_run: bool = option(False, "Check and decide, and change nothing."),
) -> None:
    """Publish a plan that was verified: put its days into live and into one release.

    There is one commit per table. With --without-conflicts, exit with 1 if days stay.
    """
    from backfill_assets.publish.waiting import Patience
    from backfill_assets.verbs.publish import decide_publication, plan_in_shadow, publish_plan
    from backfill_assets.verbs.releases import unfinished_in

    workspace = workspace_of_command()
    plan = plan_in_shadow(options.plan, workspace)
    runs = partial(unfinished_in, workspace)
    if dry_run:
        output.end(decide_publication(plan, workspace, runs, options, who=user_name()))
    report = publish_plan(
        plan,
        workspace,
        partial(dagster_of_command, workspace),
        runs,
        options,
        who=user_name(),
        patience=Patience(report=output.note),
    )
    output.end(report)


@app.command()
@with_flags
def rebase(
    options: ShadowOptions,
    output: Output,
    keep: Keep | None = option(
        None, "`live`: give up the plan's days that were built in live since, and keep live's."
    ),
) -> None:
    """Move a plan's shadow to live as it is now, and rebuild the days that this affects."""
    from backfill_assets.cli.rebuild import carry_out_and_exit
    from backfill_assets.verbs.publish import plan_in_shadow, rebase_plan

    workspace = workspace_of_command()
    plan = plan_in_shadow(options.plan, workspace)
    report = rebase_plan(plan, workspace, user_name(), keep_live=keep is not None)
    if report.state.unbuilt:
        output.preview(report.lines())
        carry_out_and_exit(report.plan.id, workspace, output)
    output.end(report)


@app.command()
@with_flags
def discard(
    options: ShadowOptions,
    output: Output,
    reason: str = option("", "Why; kept with the plan."),
    yes: Yes = False,
) -> None:
    """Delete a plan's shadow. Live and the releases are unchanged."""
    from backfill_assets.verbs.publish import discard_plan, plan_in_shadow

    workspace = workspace_of_command()
    plan = plan_in_shadow(options.plan, workspace)
    if not yes:
        question = f"Delete the shadow of plan {plan.id}, and the days that were built in it?"
        output.confirm(question, unchanged="Nothing was discarded.")
    dagster = partial(dagster_of_command, workspace)
    output.end(discard_plan(plan, workspace, dagster, who=user_name(), reason=reason))


@app.command()
@with_flags
def rollback(
    options: RollbackOptions,
    output: Output,
    release: int | None = option(
        None, "Instead of a plan: the release to which readers are pinned.", least=1
    ),
    channel: Channel = "stable",
    yes: Yes = False,
) -> None:
    """Roll a plan back: restore the days that it changed, and remove those that it built first.

    Days that others built since stay.

    With --release, readers get an earlier release at once, until `backfill release --follow`. No
    row changes.
    """
    from backfill_assets.plan.store import Plans
    from backfill_assets.publish.pointers import release_to_pin
    from backfill_assets.publish.waiting import Patience
    from backfill_assets.verbs.releases import pin_channel, unfinished_in
    from backfill_assets.verbs.rollback import preview_rollback, rollback_plan

    who = user_name()
    if release is not None:
        if options.plan or options.force:
            raise typer.BadParameter(
                "a plan or a release is rolled back: leave out PLAN and --force, or --release"
            )
        lake = lake_of_command()
        if release_to_pin(lake.root, release, channel) and not yes:
            output.confirm(
                f"Give all readers of {channel} release {release}, until they follow again?",
                unchanged="Readers get the same release as before.",
            )
        output.end(pin_channel(lake, release, channel, who=who, reason=options.reason))
    workspace = workspace_of_command()
    plans = Plans(workspace.lake.root)
    plan = plans.read(plans.full_id(options.plan))
    if not (output.as_json and yes):
        preview = preview_rollback(plan, workspace, force=options.force)
        output.preview(preview.lines())
        if preview.question and not yes:
            output.confirm(preview.question, unchanged="Nothing was restored.")
    report = rollback_plan(
        plan,
        workspace,
        partial(dagster_of_command, workspace),
        partial(unfinished_in, workspace),
        options,
        who=who,
        patience=Patience(report=output.note),
        is_previewed=True,
    )
    output.end(report)


@app.command()
@with_flags
def releases(
    output: Output,
    number: int | None = argument(None, "A release's number, to show all of it.", "N", least=1),
) -> None:
    """List the releases of this lake, or show one with its tables and channels."""
    from backfill_assets.verbs.releases import list_releases, show_release

    lake = lake_of_command()
    output.end(list_releases(lake) if number is None else show_release(lake, number))


@app.command()
@with_flags
def release(
    output: Output,
    reason: str = option("", "Why live is released now, even if days are outdated or plans open."),
    follow: bool = option(
        False, "Instead: let readers who are pinned or have a preview follow again."
    ),
    channel: Channel = "stable",
) -> None:
    """Release live as it stands, even if days are outdated or plans open. Requires --reason.

    Refused while steps are running. With --follow, readers get each new release again.
    """
    from backfill_assets.verbs.releases import follow_channel, release_now

    if follow:
        lake = lake_of_command()
        output.end(follow_channel(lake, channel, who=user_name(), reason=reason))
    if not reason:
        raise typer.BadParameter("live is released for a reason: add --reason, or --follow")
    if channel != "stable":
        raise typer.BadParameter("live is released to all readers: leave out --channel")
    output.end(release_now(workspace_of_command(), who=user_name(), reason=reason))


@app.command()
@with_flags
def switch(options: SwitchOptions, output: Output) -> None:
    """Give readers of a table's name another table, such as a new version of it.

    This is one release. Both tables are built as before.
    """
    from backfill_assets.verbs.releases import switch_table

    output.end(switch_table(workspace_of_command(), options, who=user_name()))


@app.command()
@with_flags
def export(
    output: Output,
    table: str = argument("", "One table.", "TABLE"),
    file: Path | None = argument(None, "The file to write: .parquet, .csv or .json.", "FILE"),
    partitions: Partitions = "",
    target: str = option("", "The same as TABLE."),
    release: int | None = option(
        None, "A release's number. Default: the channel's release.", least=1
    ),
    channel: Channel = "stable",
    overwrite: bool = option(False, "Replace the file if it exists."),
) -> None:
    """Write the rows of a released table to a Parquet, CSV or JSON file, atomically."""
    from backfill_assets.verbs.export import export_table, refuse_request

    if target and table and file is None:
        # The one argument is the file then.
        file = Path(table)
        table = ""
    table = either(table, target, "--target")
    if file is None:
        raise typer.BadParameter("rows of one table are written to a file: give TABLE and FILE")
    refuse_request(file, release, channel, overwrite=overwrite)
    workspace = workspace_of_records()
    days = workspace.calendar.select(partitions) if partitions else None
    report = export_table(
        workspace, table, file, days, number=release, channel=channel, overwrite=overwrite
    )
    output.end(report)
