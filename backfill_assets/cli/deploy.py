"""`backfill deploy`: the files that run the servers elsewhere, with this project's settings."""

import sys
from pathlib import Path
from shlex import quote
from string import Template

from backfill_assets.settings import project_at, read_settings

TEMPLATES = Path(__file__).with_name("deployment")


def deployed(kind: str) -> str:
    """The file of this kind: systemd, compose, helm-values or dockerfile."""
    settings = read_settings()
    return Template((TEMPLATES / f"{kind}.txt").read_text()).substitute(
        project=settings.project,
        home=quote(str(settings.home)),
        lake=quote(settings.lake),
        landing=quote(settings.landing),
        folder=_in_unit(str(project_at(Path.cwd())[0])),
        python=f'"{_in_unit(sys.executable)}"',
    )


def _in_unit(path: str) -> str:
    """A path in a unit for systemd, where %n is the name of the unit."""
    return path.replace("%", "%%")
