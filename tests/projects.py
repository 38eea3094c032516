"""A small project of one's own, written into a folder and opened there."""

from pathlib import Path
from typing import Any

from backfill_assets.workspace import Workspace, open_workspace

MODULE = '''import backfill_assets
from datetime import date
from backfill_assets import Landing, rules, same_day, table

@table(
    "raw/files", partition_by="arrival_day", columns="arrival_day DATE, source_file STRING, line STRING",
    reads={"lines": Landing("marks")}, rules=[rules.has_rows()],
)
def files(lines):
    """As delivered."""
    return lines.select("arrival_day", "source_file", "line")

@table("staging/marks", partition_by="arrival_day", columns="arrival_day DATE, line STRING", reads={"files": same_day(files)})
def marks(files):
    """One row per mark."""
    return files.select("arrival_day", "line")

defs = backfill_assets.definitions(tables=[files, marks], first_day=date(2019, 6, 1), last_day=date(2019, 6, 2))
'''


def written(root: Path, name: str, *changes: tuple[str, str]) -> Path:
    """A folder with the module `name` and a pyproject.toml that names it; of each change, the first text becomes the second."""
    folder = root / f"{name} folder"
    folder.mkdir(parents=True)
    module = MODULE
    for old, new in changes:
        assert old in module
        module = module.replace(old, new)
    (folder / f"{name}.py").write_text(module)
    (folder / "pyproject.toml").write_text(f'[tool.backfill]\nproject = "{name}"\n')
    return folder


def opened(folder: Path, **given: Any) -> Workspace:
    """The workspace of a folder, with nothing taken from the environment that the tests run in."""
    return open_workspace(folder, **{"home": ".backfill", "lake": "", "landing": "", "last_day": "", **given})


def deliver(workspace: Workspace, *days: str) -> None:
    """Deliver a file of one line for each of `days`."""
    source = workspace.tables[0].source()
    assert source
    folder = workspace.area.root / source.name
    folder.mkdir(parents=True, exist_ok=True)
    for day in days:
        (folder / f"{day}.jsonl").write_text(f'{{"day": "{day}"}}\n')
