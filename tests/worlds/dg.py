"""Projects as Dagster's `create-dagster` makes them, and its command line `dg`."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.worlds.projects import MODULE

BIN = Path(sys.executable).parent
TABLES = MODULE.partition("defs = ")[0]
DAILY = """type: backfill_assets.DailyTables
attributes:
  module: {}.tables
  first_day: 2019-06-01
  last_day: 2019-06-02
"""


def environment_of_dg(source: Path | None = None) -> dict[str, str]:
    """The environment without settings. With `source`, Python finds modules there."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BACKFILL_", "DAGSTER_"))
    }
    # No question about newer versions. Warnings are not what is tested.
    quiet = {"DAGSTER_DG_UPDATE_CHECK_ENABLED": "0", "PYTHONWARNINGS": "ignore"}
    return ours | quiet | ({"PYTHONPATH": str(source)} if source else {})


def dg(
    *arguments: str, folder: Path, env: Mapping[str, str], program: str = "dg", code: int = 0
) -> str:
    """What a command of Dagster prints. It must end with `code`."""
    done = subprocess.run(
        [str(BIN / program), *arguments],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def dg_project(root: Path, name: str, files: Mapping[str, str]) -> Path:
    """A project from `create-dagster`, with `files` in its package."""
    arguments = ("project", "--no-uv-sync", name)
    dg(*arguments, folder=root, env=environment_of_dg(), program="create-dagster")
    for path, text in files.items():
        file = root / name / "src" / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root / name


def with_component(name: str, *changes: tuple[str, str]) -> dict[str, str]:
    """The files of a project whose tables are in a `defs.yaml`."""
    text = DAILY.format(name)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return {"tables.py": TABLES, "defs/daily/defs.yaml": text}
