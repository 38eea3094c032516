"""The verbs of a rebuild: plan, run, watch, cancel, resume, list, show."""

from __future__ import annotations

from typing import Annotated

import typer

from backfill_assets.cli.options import Json, PlanId, with_request
from backfill_assets.plan.request import RebuildRequest, flag

app = typer.Typer()


@app.command()
@with_request
def plan(request: RebuildRequest, json_: Json = False) -> None:
    """Tell what a rebuild would build, why, in which order and how long it takes, and keep it as a plan. Starts nothing."""
    from backfill_assets.cli.plan import run

    raise typer.Exit(run(request, as_json=json_))


@app.command()
@with_request
def run(
    request: RebuildRequest,
    plan_id: Annotated[str, typer.Argument(metavar="[PLAN]", help="A plan's id; or give the flags of one.")] = "",
    json_: Json = False,
) -> None:
    """Carry a plan out, canary first, and follow it to its end. Ctrl-C leaves what is at work running."""
    from backfill_assets.cli.run import run, run_new

    if not plan_id:
        raise typer.Exit(run_new(request, as_json=json_))
    if request.given():
        raise typer.BadParameter(f"a plan is carried out as it was made; leave out {flag(request.given()[0])}")
    raise typer.Exit(run(plan_id, as_json=json_))


@app.command()
def resume(plan_id: PlanId = "", json_: Json = False) -> None:
    """Go on with a plan: do what is left of it, and nothing twice."""
    from backfill_assets.cli.run import resume

    raise typer.Exit(resume(plan_id, as_json=json_))


@app.command()
def watch(plan_id: PlanId = "", json_: Json = False) -> None:
    """Follow a plan that is being carried out elsewhere; launches nothing."""
    from backfill_assets.cli.run import watch

    raise typer.Exit(watch(plan_id, as_json=json_))


@app.command()
def cancel(plan_id: PlanId = "", json_: Json = False) -> None:
    """Launch nothing more of a plan, and end its runs; days that are built stay."""
    from backfill_assets.cli.cancel import run

    raise typer.Exit(run(plan_id, as_json=json_))


@app.command("list")
def list_(json_: Json = False) -> None:
    """List the plans of this lake and the backfills that Dagster knows, those launched by hand too."""
    from backfill_assets.cli.list import run

    raise typer.Exit(run(as_json=json_))


@app.command()
def show(plan_id: PlanId = "", json_: Json = False) -> None:
    """Show a plan: what it holds, what happened to it, and how far it is."""
    from backfill_assets.cli.show import run

    raise typer.Exit(run(plan_id, as_json=json_))
