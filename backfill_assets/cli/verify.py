"""`backfill verify`: the checklist of a plan that was built in its shadow. No server is needed, and nothing is published."""

import getpass
import json
from collections.abc import Sequence

from backfill_assets.cli import exit_codes
from backfill_assets.cli.rendering import terminal
from backfill_assets.errors import UsageError
from backfill_assets.plan.history import resolve_shadow_id
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.verify.checklist import contents
from backfill_assets.verify.checklist_text import ending_lines, terminal_table
from backfill_assets.verify.verdicts import Verdicts
from backfill_assets.verify.verify import verify
from backfill_assets.workspace import open_workspace


def run(plan_id: str, accept: Sequence[str], *, reason: str, as_json: bool) -> int:
    """Verify a plan, or accept lines of its newest verdict; the exit code is 0 if the verdict passes, and 1 if not."""
    workspace, who = open_workspace(), getpass.getuser()
    plans = Plans(workspace.lake.root)
    plan = plans.read(resolve_shadow_id(plan_id, plans))
    if reason and not accept:
        raise UsageError("What is accepted for that reason? Nothing was verified. Name a line: --accept NAME.")
    if accept:
        verdict = Verdicts(workspace.lake.root).accept(plan.id, accept, who=who, reason=reason, at=utc_now())
    else:
        verdict = verify(plan, workspace, who=who, now=utc_now)
    code = exit_codes.DONE if verdict.passed else exit_codes.PARTIAL
    if as_json:
        print(json.dumps(json.loads(contents(verdict)) | {"exit_code": code}))
        return code
    # Who accepts lines has seen the others.
    terminal().print(terminal_table(verdict, with_passed=not accept))
    for line in ending_lines(verdict):
        terminal().print(line)
    return code
