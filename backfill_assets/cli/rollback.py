"""`backfill rollback`: what a plan changed is put back as it was before, or readers go back to a release. No server is needed.

The exit code is 0 if nothing of the plan is left in the tables, and 1 if some of it stays, or the answer was no.
"""

import getpass
import json

import typer

from backfill_assets.cli import exit_codes
from backfill_assets.cli.rendering import is_answered, terminal
from backfill_assets.errors import BackfillError
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.readers_left import Readers, outdated_lines, readers_left
from backfill_assets.plan.store import Plans
from backfill_assets.publish import text
from backfill_assets.publish.channels import behind
from backfill_assets.publish.decision import Kind
from backfill_assets.publish.release_plan import left_with_plan
from backfill_assets.publish.rollback import roll_back, rollback_of
from backfill_assets.rebuild.ended import after_publication
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import read_settings
from backfill_assets.workspace import open_workspace

NEXT_RELEASE = (
    "Readers get these rows with the next release of live: by itself while `backfill up` runs, or at once by `backfill release "
    "--reason ...`."
)


def run(plan_id: str, *, reason: str, force: bool, yes: bool, as_json: bool) -> int:
    workspace, console = open_workspace(), terminal(stderr=as_json)
    plans = Plans(workspace.lake.root)
    plan = plans.read(plans.full_id(plan_id))
    if not as_json:
        decisions = rollback_of(plan, workspace, force=force)
        show(decisions)
        restoring = any(decision.kind == Kind.RESTORE for decision in decisions.values())
        if restoring and not yes and is_answered() and not typer.confirm("Put these days back?", default=False):
            print("Nothing was restored.")
            return exit_codes.PARTIAL
    decisions, restored = roll_back(plan, workspace, who=getpass.getuser(), now=utc_now, reason=reason, force=force)
    not_reported, left = "", readers_left(plan, workspace) if restored else Readers({})
    try:
        after_publication(plan, restored, left, workspace, dagster_of(workspace.settings))
    except BackfillError as error:
        not_reported = text.not_reported(error)
    code = exit_codes.DONE if text.is_complete(decisions.values()) else exit_codes.PARTIAL
    if as_json:
        values = {"plan": plan.id, "state": plans.state(plan.id), "exit_code": code, "not_reported": not_reported}
        values["still_read"] = left_with_plan(plan, workspace)
        print(json.dumps(values | text.days_by_kind(decisions)))
        return code
    released_next = NEXT_RELEASE if restored and Releases(workspace.lake.root).newest() else ""
    newest = Releases(workspace.lake.root).newest()
    staying = "; ".join(f"The channel {each}" for each in behind(workspace.lake.root, newest))
    readers = left_with_plan(plan, workspace) or staying or released_next
    outdated = outdated_lines(left.outdated, workspace.settings.ask_above_days)
    for line in [*text.ending_lines(plan.id, decisions), readers, not_reported, *outdated]:
        if line:
            console.print(line)
    return code


def to_release(number: int, channel: str, *, reason: str, as_json: bool) -> int:
    """Point a channel at an earlier release. UsageError for an unknown number, Conflict if something was released meanwhile."""
    releases = Releases(read_settings().lake)
    releases.refuse_unknown(channel)
    target, newest = releases.get(number), releases.newest()
    assert newest is not None, "there is a release of that number"
    if newest.channels.get(channel) == number:
        said, pointed = f"Readers of {channel} get release {number} already. Nothing was changed.", newest
    else:
        why = reason or f"back to release {number}"
        pointed = releases.point(newest, channel, number, who=getpass.getuser(), reason=why)
        said = (
            f"Readers of {channel} get release {number} ({len(target.tables)} table(s), of {target.at:%Y-%m-%d %H:%M} UTC) "
            f"from now on. No row was changed. {_then(releases, channel)}"
        )
    print(json.dumps({"release": pointed.number, "channels": dict(pointed.channels)}) if as_json else said)
    return exit_codes.DONE


def _then(releases: Releases, channel: str) -> str:
    for each in behind(releases.root, releases.newest()):
        if each.channel == channel:
            return f"Releases of live do not change that{each.way_out}."
    return "They get every release of live from now on."


def show(decisions: text.Decisions) -> None:
    """What would be put back, and what stays."""
    console = terminal()
    for line in (*text.decision_lines(decisions), *text.lines_of_left(decisions)):
        console.print(line)
