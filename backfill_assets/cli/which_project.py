"""Where the project of commands that are typed here comes from: it may be another than was meant."""

from pathlib import Path

from backfill_assets.pyproject import BUNDLED, project_at
from backfill_assets.setting_names import set_by
from backfill_assets.settings import Settings


def project_set_by(settings: Settings) -> tuple[str, bool]:
    """What names the project of the settings, and whether this folder names another one."""
    folder, own = project_at(Path.cwd())
    file, is_named = folder / "pyproject.toml", own != BUNDLED
    by = set_by("PROJECT", folder) or (f"named by {file}" if is_named else "the bundled one")
    is_other = is_named and own != settings.project
    return f"{by}; {file} names {own}" if is_other else by, is_other
