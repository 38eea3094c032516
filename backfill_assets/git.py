"""What git says about a folder."""

import subprocess
from pathlib import Path

# A disk that hangs must not delay a build for longer.
TIMEOUT_S = 30


def git(folder: Path, *arguments: str, timeout_s: float | None = TIMEOUT_S) -> str:
    """The output of git; "" if there is no git or no repository, or if git fails."""
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
