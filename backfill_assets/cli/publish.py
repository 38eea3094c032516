"""`backfill diff`: what a plan changed, what a day's last build changed, or in what two releases
differ. No server, no Spark.

The exit code is 0 if it was compared; with `--check`, 1 if anything differs.

`backfill publish`, `rebase` and `discard`: what becomes of a plan that was built in a shadow. No
server is needed.

`backfill verify`: the checklist of a plan that was built in its shadow. No server is needed, and
nothing is published.
"""

import getpass
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from backfill_assets.cli import exit_codes
from backfill_assets.cli.run import carry_out
from backfill_assets.cli.status import unfinished_in
from backfill_assets.cli.terminal import is_answered, refuse_page, terminal, write_page
from backfill_assets.diff import text
from backfill_assets.diff.diff import Diff
from backfill_assets.diff.sides import DiffRequest
from backfill_assets.diff.text import html_page
from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.lifecycle import resolve_shadow_id
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import outdated_lines, readers_left
from backfill_assets.plan.store import Plans
from backfill_assets.publish import shadows
from backfill_assets.publish.channels import plans_missing
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.text import not_reported, published_lines
from backfill_assets.rebuild.carry_out import after_publication
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.reconcile.dagster_record import wipe_shadows
from backfill_assets.servers.home import dagster_of
from backfill_assets.verify.checklist import verdict_json
from backfill_assets.verify.text import ending_lines, terminal_table
from backfill_assets.verify.verify import Verdicts, require_verified, verify
from backfill_assets.workspace import Workspace, open_workspace

NUMBERS = slice(2, 7)


def run_diff(comparison: DiffRequest, *, html: Path | None, check: bool, as_json: bool) -> int:
    if html:
        refuse_page(html, "compared")
    diff = comparison.run(open_workspace())
    if html:
        write_page(html_page(diff), html)
    if as_json:
        print(
            json.dumps({**asdict(diff), "differs": diff.differs, "html": str(html) if html else ""})
        )
    else:
        show_diff(terminal(), diff)
        if html:
            print(f"Written to {html}.")
    return exit_codes.PARTIAL if check and diff.differs else exit_codes.DONE


def show_diff(console: Console, diff: Diff) -> None:
    console.print(
        f"{text.diff_heading(diff)}{'' if diff.differs or not diff.tables else ': nothing differs'}"
    )
    table = Table(*text.SUMMARY_COLUMNS)
    rows = text.summary_rows(diff)
    for column in table.columns[NUMBERS]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    if rows:
        console.print(table)
    for line in text.detail_lines(diff):
        console.print(line)


def run_publish(
    plan_id: str,
    channel: str,
    *,
    reason: str,
    allow_breaking: bool,
    with_plans: Sequence[str],
    as_json: bool,
) -> int:
    """Publish a plan; the exit code is 0 if readers of `channel` get it."""
    workspace, plan = _open(plan_id, channel)
    others = tuple(map(Plans(workspace.lake.root).full_id, with_plans))
    publication = Publication(plan, workspace, getpass.getuser(), reason, together_with=others)
    approve = require_verified(plan, workspace)
    runs = partial(unfinished_in, workspace)
    published = publication.publish(
        channel, utc_now, approve, runs=runs, allow_breaking=allow_breaking
    )
    unreported = ""
    readers = readers_left(plan, workspace)
    try:
        after_publication(
            plan, published.builds, readers, workspace, dagster_of(workspace.settings)
        )
    except BackfillError as error:
        unreported = not_reported(error)
    if as_json:
        values = {
            "plan": plan.id,
            "release": published.release.number,
            "channels": dict(published.release.channels),
        }
        counts = {outcome: published.count(outcome) for outcome in ("accepted", "unchanged")}
        days = {name: [str(day) for day in of_table] for name, of_table in readers.outdated.items()}
        values |= counts | {
            "outdated_now": days,
            "not_reported": unreported,
            "exit_code": exit_codes.DONE,
        }
        print(json.dumps(values))
        return exit_codes.DONE
    for line in [*published_lines(plan.id, published, channel), unreported]:
        if line:
            terminal().print(line)
    for line in outdated_lines(readers.outdated, workspace.settings.ask_above_days):
        terminal().print(line)
    return exit_codes.DONE


def rebase(plan_id: str, *, as_json: bool) -> int:
    """Move a shadow to live as it is now, and build again what that concerns; the exit code is that
    of the building.
    """
    workspace, plan = _open(plan_id)
    state = shadows.rebase(plan, workspace, getpass.getuser())
    if not as_json:
        for line in shadows.rebased_lines(plan, state):
            terminal().print(line)
    if state.unbuilt:
        return carry_out(plan.id, workspace, as_json=as_json)
    if as_json:
        conflicts = {f"{table} {day}": why for (table, day), why in state.conflicts.items()}
        print(json.dumps({"plan": plan.id, "conflicts": conflicts, "exit_code": exit_codes.DONE}))
    return exit_codes.DONE


def discard(plan_id: str, *, reason: str, yes: bool, as_json: bool) -> int:
    """Delete a shadow; the exit code is 0 if it is gone, and 1 if the answer was no."""
    workspace, plan = _open(plan_id)
    question = f"Delete the shadow of plan {plan.id}, and what was built in it?"
    if not as_json and not yes and is_answered() and not typer.confirm(question, default=False):
        print("Nothing was discarded.")
        return exit_codes.PARTIAL
    shadows.discard(plan, workspace, who=getpass.getuser(), now=utc_now, reason=reason)
    with suppress(BackfillError):  # what Dagster shows of it goes with the next shadow
        wipe_shadows(dagster_of(workspace.settings), workspace.lake.root, workspace.names)
    said = f"Plan {plan.id} is discarded: its shadow is deleted. Live is as it was."
    print(json.dumps({"plan": plan.id, "exit_code": exit_codes.DONE}) if as_json else said)
    return exit_codes.DONE


def _open(plan_id: str, channel: str = "") -> tuple[Workspace, Plan]:
    """The plan that is meant; to be published to the readers of `channel`, also the one that only
    others got yet.
    """
    workspace = open_workspace()
    plans = Plans(workspace.lake.root)
    root = workspace.lake.root
    published = (
        plans_missing(root, Releases(root).newest(), channel) if channel and not plan_id else ()
    )
    return workspace, plans.read(resolve_shadow_id(plan_id, plans, published))


def run_verify(plan_id: str, accept: Sequence[str], *, reason: str, as_json: bool) -> int:
    """Verify a plan, or accept lines of its newest verdict; the exit code is 0 if the verdict
    passes, and 1 if not.
    """
    workspace = open_workspace()
    who = getpass.getuser()
    plans = Plans(workspace.lake.root)
    plan = plans.read(resolve_shadow_id(plan_id, plans))
    if reason and not accept:
        raise UsageError(
            "What is accepted for that reason? Nothing was verified. Name a line: --accept NAME."
        )
    if accept:
        verdict = Verdicts(workspace.lake.root).accept(
            plan.id, accept, who=who, reason=reason, at=utc_now()
        )
    else:
        verdict = verify(plan, workspace, who=who, now=utc_now)
    code = exit_codes.DONE if verdict.passed else exit_codes.PARTIAL
    if as_json:
        print(json.dumps(json.loads(verdict_json(verdict)) | {"exit_code": code}))
        return code
    # Who accepts lines has seen the others.
    terminal().print(terminal_table(verdict, with_passed=not accept))
    for line in ending_lines(verdict):
        terminal().print(line)
    return code
