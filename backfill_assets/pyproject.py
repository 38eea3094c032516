"""Which project a folder belongs to, by `[tool.backfill]` in its pyproject.toml."""

import tomllib
from pathlib import Path

from backfill_assets.errors import SettingsError

BUNDLED = "backfill_assets.datasets.outages.project"


def project_at(start: Path) -> tuple[Path, str]:
    """The project's folder and its module, by the nearest pyproject.toml from `start` upward that names one.

    Without one: `start` and the bundled outages. Raises SettingsError for a pyproject.toml that is not TOML, or whose
    [tool.backfill] has any other key.
    """
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        contents = file.read_bytes() if file.is_file() else b""
        if b"backfill" not in contents:  # it concerns others, whether it can be read or not
            continue
        try:
            tool = tomllib.loads(contents.decode()).get("tool")
        except ValueError as error:
            raise SettingsError(f"{file} cannot be read: {error}. Nothing was done. Correct it.") from None
        ours = tool.get("backfill") if isinstance(tool, dict) else None
        if not isinstance(ours, dict):
            continue
        project, others = ours.get("project"), [key for key in ours if key != "project"]
        if others:
            raise SettingsError(
                f"[tool.backfill] in {file} has {others[0]}. Nothing was done. It has one key, the module of the project: "
                'project = "my_module".'
            )
        if project:
            return folder, str(project)
    return start, BUNDLED
