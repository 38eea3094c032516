"""`backfill deploy`: the files that run the servers elsewhere, with this project's settings."""

import sys
from pathlib import Path
from string import Template

from backfill_assets.settings import project_at, read_settings

TEMPLATES = Path(__file__).with_name("deployment")


def deployed(kind: str) -> str:
    """The file of this kind: systemd, compose, helm-values or dockerfile."""
    settings = read_settings()
    return Template((TEMPLATES / f"{kind}.txt").read_text()).substitute(
        project=settings.project,
        home=settings.home,
        lake=settings.lake,
        landing=settings.landing,
        folder=project_at(Path.cwd())[0],
        python=sys.executable,
    )
