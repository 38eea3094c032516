"""The commit of the repository that a table's code lies in, as git describes it: how the code of a build is found again."""

import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.tables.code_version.source import file_of

if TYPE_CHECKING:
    from backfill_assets.tables.declaration import Table

# A disk that hangs must not hold up a build for it.
TIMEOUT_S = 30


def git_commit(table: "Table") -> str:
    """The full hash of the commit, with `-dirty` where tracked files were changed since.

    "" where no repository has the file of the table's function: it is installed, or was never added. Asked once a process,
    which loads its code once too.
    """
    file = file_of(getattr(table.compute, "__module__", ""))
    return _commit_of(file) if file else ""


@cache
def _commit_of(file: Path) -> str:
    is_tracked = _git(file.parent, "ls-files", "--error-unmatch", "--", file.name)
    return _described(file.parent) if is_tracked else ""


@cache
def _described(folder: Path) -> str:
    # Without tags, and with the whole hash: a name that stays the same, whatever is tagged or committed later.
    return _git(folder, "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty")


def _git(folder: Path, *arguments: str) -> str:
    """What git answers; "" where there is no git, or no repository that it takes."""
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
