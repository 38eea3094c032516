"""What git says about a folder."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

# A disk that hangs must not delay a build for longer.
TIMEOUT_S = 30
# Hooks set these, and git then looks at their repository instead of the folder.
_OF_HOOKS = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"}
_NOTHING: Mapping[str, str] = MappingProxyType({})


def git(folder: Path, *arguments: str) -> str:
    """The output of git; "" if there is no git or no repository, or if git fails."""
    return _output(folder, *arguments) or ""


def check_out(folder: Path, commit: str, tree: Path) -> bool:
    """Write the files of a commit into `tree`, which is empty. False if git fails.

    Unlike an archive, these are all files, as git checks them out.
    """
    index = {"GIT_INDEX_FILE": f"{tree}.index"}
    commands = (["read-tree", commit], ["checkout-index", "--all", f"--prefix={tree}/"])
    return all(_output(folder, *each, more=index, timeout_s=None) is not None for each in commands)


def _output(
    folder: Path,
    *arguments: str,
    more: Mapping[str, str] = _NOTHING,
    timeout_s: float | None = TIMEOUT_S,
) -> str | None:
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in _OF_HOOKS}
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=environment | dict(more),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
