"""The verbs of a plan that was built in a shadow: verify, publish, rebase, discard."""

from typing import Annotated

import typer

from backfill_assets.cli.options import Json, ShadowId, ToPublish

app = typer.Typer()


@app.command()
def verify(
    plan_id: ShadowId = "",
    accept: Annotated[
        list[str] | None,
        typer.Option(
            help="A line that needs a decision, by name, or several by a pattern: 'drift raw/*'."
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why it is accepted.")] = "",
    json_: Json = False,
) -> None:
    """Fill the checklist of a plan that was built in its shadow; --accept takes a decision on a
    line of it.
    """
    from backfill_assets.cli.publish import run_verify

    raise typer.Exit(run_verify(plan_id, accept or [], reason=reason, as_json=json_))


@app.command()
def publish(
    plan_id: ToPublish = "",
    channel: Annotated[
        str, typer.Option(help="Whose readers get it: stable, candidate.")
    ] = "stable",
    reason: Annotated[
        str, typer.Option(help="Why; kept in the commits, the ledger, the release.")
    ] = "",
    allow_breaking: Annotated[
        bool,
        typer.Option(
            "--allow-breaking",
            help="Although columns that live has are gone, or have another type.",
        ),
    ] = False,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Another plan that these readers may get with it, once for each.",
            metavar="PLAN",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Publish a plan that was verified in its shadow: its days go live, one commit a table, and
    then into one release.
    """
    from backfill_assets.cli.publish import run_publish

    raise typer.Exit(
        run_publish(
            plan_id,
            channel,
            reason=reason,
            allow_breaking=allow_breaking,
            with_plans=with_ or (),
            as_json=json_,
        )
    )


@app.command()
def rebase(plan_id: ShadowId = "", json_: Json = False) -> None:
    """Move a plan's shadow to live as it is now, and build again the days that this concerns."""
    from backfill_assets.cli.publish import rebase

    raise typer.Exit(rebase(plan_id, as_json=json_))


@app.command()
def discard(
    plan_id: ShadowId = "",
    reason: Annotated[str, typer.Option(help="Why; kept with the plan.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json_: Json = False,
) -> None:
    """Delete a plan's shadow. Live and what readers get stay as they are."""
    from backfill_assets.cli.publish import discard

    raise typer.Exit(discard(plan_id, reason=reason, yes=yes, as_json=json_))
