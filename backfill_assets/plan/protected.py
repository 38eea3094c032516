"""Days that nobody rebuilds, whoever asks for it and whenever the plan was made."""

from backfill_assets.calendar import ranges
from backfill_assets.errors import Guarded
from backfill_assets.plan.plan import Plan
from backfill_assets.workspace import Workspace


def refuse_protected(plan: Plan, workspace: Workspace, nothing: str) -> None:
    """Guarded if a day of the plan is protected; `nothing`: what was not done."""
    settings = workspace.settings
    protected = sorted(set(settings.protected()) & set(plan.days()))
    if protected:
        raise Guarded(
            f"{ranges(protected)} is protected (BACKFILL_PROTECTED_DAYS={settings.protected_days}). {nothing} Leave these days "
            "out, or change the setting."
        )
