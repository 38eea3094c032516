"""What `backfill doctor` says of the settings that a command works by, and of where each comes from."""

from backfill_assets.cli.finding import Finding
from backfill_assets.cli.which_project import project_set_by
from backfill_assets.settings import REMEMBERED, Settings, read_settings
from backfill_assets.workspace import Workspace


def settings_found(settings: Settings) -> Finding:
    """The project and the home; a warning where the folder names another project."""
    by, is_other = project_set_by(settings)
    message = f"project {settings.project}, {by}; home {settings.home}"
    return Finding("warn", "settings", message, "unset BACKFILL_PROJECT") if is_other else Finding("ok", "settings", message)


def calendar(workspace: Workspace) -> Finding:
    """The calendar's two ends, and where each comes from."""
    days, settings = workspace.calendar, workspace.settings
    own = read_settings(remembered=False)
    sources = {
        name: "the environment or .env" if name in own.model_fields_set
        else str(settings.home / REMEMBERED) if name in settings.model_fields_set
        else "the project"
        for name in ("first_day", "last_day")
    }  # fmt: skip
    last = f"{days.last} ({sources['last_day']})" if days.fixed_last else f"yesterday, {days.last} (no last day is set)"
    return Finding("ok", "calendar", f"{days.first} ({sources['first_day']}) to {last}")
