"""The verbs of a rebuild: plan, run, watch, cancel, resume, rollback, list, show, late; and
archive, which may come before.
"""

from pathlib import Path
from typing import Annotated

import typer

from backfill_assets.cli.options import Json, PlanId, with_request
from backfill_assets.plan.request import RebuildRequest, flag

app = typer.Typer()


@app.command()
@with_request
def plan(request: RebuildRequest, json_: Json = False) -> None:
    """Plan a rebuild: which days of which tables, why, in which order, in how many minutes. Starts
    nothing.
    """
    from backfill_assets.cli.plan import run_plan

    raise typer.Exit(run_plan(request, as_json=json_))


@app.command()
@with_request
def run(
    request: RebuildRequest,
    plan_id: Annotated[
        str,
        typer.Argument(metavar="PLAN", help="A plan's id; without one, the flags make a new plan."),
    ] = "",
    json_: Json = False,
) -> None:
    """Carry a plan out, canary first, and follow it to its end. After Ctrl-C, chunks that are
    running go on.
    """
    from backfill_assets.cli.run import run_new, run_run

    if not plan_id:
        raise typer.Exit(run_new(request, as_json=json_))
    if request.given():
        raise typer.BadParameter(
            f"a plan is carried out as it was made; leave out {flag(request.given()[0])}"
        )
    raise typer.Exit(run_run(plan_id, as_json=json_))


@app.command()
def resume(plan_id: PlanId = "", json_: Json = False) -> None:
    """Continue a plan: build what is left of it, and nothing twice."""
    from backfill_assets.cli.run import resume

    raise typer.Exit(resume(plan_id, as_json=json_))


@app.command()
def watch(plan_id: PlanId = "", json_: Json = False) -> None:
    """Follow a plan that another command or job carries out; launches nothing."""
    from backfill_assets.cli.run import watch

    raise typer.Exit(watch(plan_id, as_json=json_))


@app.command()
def late(
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with a picture of when rows arrived.")
    ] = None,
    json_: Json = False,
) -> None:
    """List the built days that late rows have made outdated, and what to type. Starts nothing,
    changes nothing.
    """
    from backfill_assets.cli.late import run

    raise typer.Exit(run(html=html, as_json=json_))


@app.command()
def reload() -> None:
    """Let the running servers load the project's code again, after an edit; nothing is rebuilt by
    that.
    """
    from backfill_assets.cli.servers import run_reload

    raise typer.Exit(run_reload())


@app.command()
def cancel(plan_id: PlanId = "", json_: Json = False) -> None:
    """Cancel a plan: terminate its runs and launch nothing more of it; days that are built stay."""
    from backfill_assets.cli.run import run_cancel

    raise typer.Exit(run_cancel(plan_id, as_json=json_))


@app.command()
def rollback(
    plan_id: Annotated[str, typer.Argument(metavar="PLAN", help="The plan to take back.")] = "",
    release: Annotated[
        int | None,
        typer.Option(min=1, help="Instead of a plan: the release that readers get again."),
    ] = None,
    channel: Annotated[str, typer.Option(help="Whose readers: stable, candidate.")] = "stable",
    reason: Annotated[
        str, typer.Option(help="Why; kept in the commits, the ledger, the release.")
    ] = "",
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Put back days too that others built since; their rows are lost."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json_: Json = False,
) -> None:
    """Take a plan back: put the days that it changed back as they were before it. Days that others
    built since stay.

    With --release, readers go back to an earlier release at once, and no row changes.
    """
    from backfill_assets.cli.releases import run_rollback, to_release

    if release is None:
        raise typer.Exit(run_rollback(plan_id, reason=reason, force=force, yes=yes, as_json=json_))
    if plan_id or force:
        raise typer.BadParameter(
            "a plan or a release is rolled back: leave out PLAN and --force, or --release"
        )
    raise typer.Exit(to_release(release, channel, reason=reason, as_json=json_))


@app.command("list")
def list_(json_: Json = False) -> None:
    """List the plans of this lake, and the runs and backfills of tables that were launched without
    a plan.
    """
    from backfill_assets.cli.plan import run_list

    raise typer.Exit(run_list(as_json=json_))


@app.command()
def show(plan_id: PlanId = "", json_: Json = False) -> None:
    """Show a plan: its contents, its events and its progress."""
    from backfill_assets.cli.run import run_show

    raise typer.Exit(run_show(plan_id, as_json=json_))


@app.command()
def archive(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The archives of one source; all if not given.")
    ] = "",
    files: Annotated[
        str,
        typer.Option(
            help="Only archives of these names, separated by commas; * for any characters."
        ),
    ] = "",
    full_refresh: Annotated[
        bool,
        typer.Option(
            "--full-refresh", help="Read all again, and drop what is in of archives that are gone."
        ),
    ] = False,
    accept: Annotated[
        str,
        typer.Option(
            help=(
                "Archives that are taken in although they have no rows, are cut off or lack"
                " columns; by name."
            )
        ),
    ] = "",
    reason: Annotated[str, typer.Option(help="Why they are accepted; recorded.")] = "",
    json_: Json = False,
) -> None:
    """Take in archives that are new or have changed: each is read once and split into days. Builds
    no table.
    """
    from backfill_assets.cli.lake import run_archive

    raise typer.Exit(
        run_archive(
            name, files, full_refresh=full_refresh, accept=accept, reason=reason, as_json=json_
        )
    )
