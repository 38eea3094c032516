"""`backfill release`: live is released as it stands, by a person's decision; and the line of `status` on why it is not."""

import getpass
import json
from collections.abc import Sequence
from functools import partial

from backfill_assets.cli import exit_codes
from backfill_assets.cli.releases import as_values
from backfill_assets.cli.rendering import terminal
from backfill_assets.errors import Guarded, ServiceUnavailable
from backfill_assets.lake.releases import Releases
from backfill_assets.publish.reasons import FAILURES, Reason
from backfill_assets.publish.release_live import NothingNew, Withheld, release_as_it_stands
from backfill_assets.servers.home import dagster_of
from backfill_assets.workspace import Workspace, open_workspace

REASONS_SHOWN = 3


def run(reason: str, *, as_json: bool) -> int:
    workspace = open_workspace()
    decision = release_as_it_stands(workspace, who=getpass.getuser(), reason=reason, runs=partial(unfinished_in, workspace))
    if isinstance(decision, Withheld):
        why = "; ".join(map(str, decision.reasons[:REASONS_SHOWN]))
        raise Guarded(f"Live is being written: {why}. Nothing was released. Type the same again when that has ended.")
    release = decision.release
    if as_json:
        before = Releases(workspace.lake.root).get(release.number - 1) if release and release.number > 1 else None
        despite = [] if isinstance(decision, NothingNew) else [reason_values(each) for each in decision.despite]
        value = as_values(release, before) if release else None
        print(json.dumps({"released": not isinstance(decision, NothingNew), "release": value, "despite": despite}))
        return exit_codes.DONE
    console = terminal()
    if isinstance(decision, NothingNew):
        is_released = f"Live is as release {release.number} has it" if release else "There is no table to release yet"
        console.print(f"{is_released}. Nothing was released.")
        return exit_codes.DONE
    console.print(f"Release {decision.release.number}: {len(decision.release.tables)} table(s). Readers of stable get it now.")
    for each in decision.despite:
        console.print(f"  in spite of {each}")
    return exit_codes.DONE


def unfinished_in(workspace: Workspace) -> list[str]:
    """The runs of live that are not finished, by the webserver; without one, running steps are known by the lake alone."""
    try:
        return dagster_of(workspace.settings).unfinished(workspace.names)
    except ServiceUnavailable:
        return []


def reason_values(reason: Reason) -> dict[str, object]:
    """A reason as plain values."""
    return {"cause": reason.cause, "table": reason.table, "days": [str(day) for day in reason.days], "why": reason.why}


def not_released_line(reasons: Sequence[Reason]) -> str:
    """The line of `backfill status` about live that is not released; "" if there is no reason."""
    if not reasons:
        return ""
    named = [f"{reason.cause}: {reason}" for reason in reasons[:REASONS_SHOWN]]
    more = [f"and {len(reasons) - REASONS_SHOWN} more"] if len(reasons) > REASONS_SHOWN else []
    failed = any(reason.cause in FAILURES for reason in reasons)
    remedy = ". In spite of it: `backfill release --reason ...`" if failed else ""
    return f"live is not released: {'; '.join(named + more)}{remedy}"
