"""The tables that a project declares in a checkout of its repository.

A checkout is loaded in a process of its own, because one process cannot import two versions of a
module: `python -m backfill_assets.impact.declared MODULE FOLDER...` prints the tables as JSON. The
folders are those in which Python finds modules.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backfill_assets.digest import digest
from backfill_assets.errors import NOTHING_CHANGED, SettingsError, UsageError
from backfill_assets.git import check_out, git
from backfill_assets.project import load
from backfill_assets.tables.code_version.modules import file_of
from backfill_assets.tables.code_version.version import definitions_used
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table

# By table: the facts that an edit can change, as values of JSON.
Declared = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Edit:
    """The tables at a commit, and in the working tree. `is_dirty`: it has uncommitted changes."""

    commit: str
    is_dirty: bool
    before: Declared
    after: Declared


def read_edit(revision: str, module: str, folder: Path) -> Edit:
    """Load a project from the working tree around `folder`, and as it was at a revision.

    Nothing is written into the repository. Raises UsageError without a repository, and for a
    revision that does not exist or does not load.
    """
    top = git(folder, "rev-parse", "--show-toplevel")
    if not top:
        raise UsageError(
            f"{folder} is not in a git repository that git can read, or git is not installed.",
            unchanged=NOTHING_CHANGED,
            next_step="Install git, and type this in a clone of the project's repository.",
        )
    root = Path(top)
    commit = git(root, "rev-parse", "--verify", f"{revision}^{{commit}}")
    if not commit:
        raise UsageError(
            f"There is no commit {revision} in {root}.",
            unchanged=NOTHING_CHANGED,
            next_step="Name another with --base. A shallow clone lacks commits: fetch them.",
        )
    after = _declared(module, folder, root, root, "the working tree")
    with TemporaryDirectory(prefix="backfill-base-") as temporary:
        tree = Path(temporary).resolve() / "tree"
        if not check_out(root, commit, tree):
            raise UsageError(
                f"git cannot check out {revision} into {tree}.",
                unchanged=NOTHING_CHANGED,
                next_step="See if the disk is full, or if the clone lacks files of that commit.",
            )
        before = _declared(module, folder, root, tree, revision)
    return Edit(commit, bool(git(root, "status", "--porcelain")), before, after)


def _declared(module: str, folder: Path, root: Path, tree: Path, name: str) -> Declared:
    """The tables of a project in `tree`, which has the files of the repository at `root`.

    Raises UsageError if the module cannot be loaded, or is not in the repository.
    """
    # `load` adds `src` too. A module is looked up after `load`.
    folders = [folder, folder / "src", *map(Path, sys.path)]
    for n, place in enumerate(folder.resolve() for folder in folders):
        there = tree / place.relative_to(root) if place.is_relative_to(root) else place
        # A virtual environment in the repository is in no commit.
        if n == 0 or there.exists():
            folders[n] = there
    # -P: the working directory may have a folder with the name of this package.
    command = [sys.executable, "-P", "-m", __spec__.name, module, *map(str, folders)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    file, declared = json.loads(done.stdout or '["", {}]')
    if done.returncode == 0 and Path(file).is_relative_to(tree):
        return dict(declared)
    found = f"Python finds it in {file}" if file else "it ends Python"
    why = done.stderr.strip().rpartition("\n")[2] if done.returncode else found
    raise UsageError(
        f"The project {module} cannot be loaded from {name}: {why.rstrip('.')}.",
        unchanged=NOTHING_CHANGED,
        next_step="Correct that, name another commit, or type this in another folder.",
    )


def facts_of(table: Table) -> dict[str, Any]:
    """The facts about a table that an edit can change."""
    definitions: dict[str, str] = {}
    with suppress(ValueError):  # its version is given by hand
        name = table.compute.__qualname__
        definitions = definitions_used(table.compute.__module__, name, may_read=True)
    return {
        "version": [table.version],
        "definitions": {name: digest(text) for name, text in definitions.items()},
        "columns": [" ".join(column) for column in types_of(table.columns).items()],
        "key": table.key,
        "inputs": [f"{other.name} S{w.first:+}..S{w.last:+}" for other, w in table.windows()],
        "rules": [table.rules_version],
    }


def main(module: str, *folders: str) -> None:
    """Print the file of a project's module and its tables, or exit with the reason why not."""
    sys.path[:] = folders
    # What the project prints, also at its end, is not the answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        tables = load(module, Path(folders[0])).tables
        declared = {table.name: facts_of(table) for table in tables}
    except SettingsError as error:
        raised = error.__cause__ or error
        place = getattr(error, "place", "") or module
        sys.exit(" ".join(f"{place}: {type(raised).__name__}: {raised}".split()))
    with os.fdopen(answer, "w") as file:
        json.dump([file_of(module), declared], file)


if __name__ == "__main__":
    main(*sys.argv[1:])
