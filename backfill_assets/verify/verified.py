"""Whether a plan's shadow was verified, on the very versions that would be published."""

import hashlib
from collections.abc import Callable

from backfill_assets.errors import Guarded
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.channels import NOT_PUBLISHED
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.verify.checklist import Outcome, Result
from backfill_assets.verify.verdicts import Verdicts
from backfill_assets.workspace import Workspace


def versions_of(plan: Plan, state: ShadowState) -> dict[str, int]:
    """What a verdict on the shadow is about: the version of each of its tables, and those of live that it reads."""
    shadow = {f"shadow {name}": state.versions[name] for name in plan.reasons}
    rows = {f"rows of shadow {name}": _rows(name, state) for name in plan.reasons}
    return shadow | rows | {f"live {name}": version for name, version in state.shadow.base.versions.items()}


def _rows(name: str, state: ShadowState) -> int:
    """A number for what the days of a table hold: a table that was made anew comes to the same versions with other rows."""
    days = sorted(f"{day} {build.fingerprint}" for (of, day), build in state.builds.items() if of == name)
    return int(hashlib.sha256("\n".join(days).encode()).hexdigest()[:12], 16)


def code_of(plan: Plan, workspace: Workspace) -> dict[str, str]:
    """The code that a verdict is about: of the tables as planned, their rules, and what the project declares of several."""
    tables = [table for table in workspace.tables if table.name in plan.code]
    drift = {f"drift thresholds of {table.name}": repr(sorted(table.drift.items())) for table in tables if table.drift}
    rules = {f"rules of {table.name}": table.rules_version for table in tables}
    declared = {f"check {each.name}": each.version for each in workspace.reconciliations}
    declared |= {f"check {each.name}": each.version for each in workspace.consumers}
    return {**plan.code, **rules, **drift, **declared}


def verified(plan: Plan, workspace: Workspace) -> Callable[[ShadowState], None]:
    """What refuses a shadow that was not verified: it raises Guarded where the newest verdict did not pass, or there is none,
    and Conflict where it is about other versions."""

    def approve(state: ShadowState) -> None:
        verdict = Verdicts(workspace.lake.root).newest(plan.id)
        if verdict is None:
            raise Guarded(f"Plan {plan.id} was not verified. {NOT_PUBLISHED} Type `backfill verify {plan.id}`.")
        verdict.refuse_other_versions(versions_of(plan, state), code_of(plan, workspace))
        if verdict.result == Result.FAILED:
            failed = [f"{line.name} ({line.figures})" for line in verdict.lines if line.outcome == Outcome.FAILED]
            raise Guarded(
                f"The verdict on plan {plan.id} is that it failed: {'; '.join(failed)}. {NOT_PUBLISHED} Mend what is named and "
                f"plan again, or `backfill discard {plan.id}`."
            )
        if verdict.result == Result.NEEDS_A_DECISION:
            names = [line.name for line in verdict.undecided()]
            raise Guarded(
                f"The verdict on plan {plan.id} needs a decision: {', '.join(names)}. {NOT_PUBLISHED} Look at them (`backfill "
                f"diff {plan.id}`), then `backfill verify {plan.id} --accept NAME --reason ...`."
            )

    return approve
