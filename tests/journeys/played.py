"""A story as a new user gives it: `backfill demo --story NAME` in an empty folder."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from backfill_assets.cli.story_steps import Command, Story
from backfill_assets.servers.child import free_port
from tests.journeys.servers import environment_alone
from tests.journeys.station import TIMEOUT_S


class Played(NamedTuple):
    folder: Path
    printed: str
    code: int

    def typed(self) -> list[str]:
        return re.findall(r"^\$ (.*)$", self.printed, re.MULTILINE)


def play(story: Story, folder: Path) -> Played:
    command = [sys.executable, "-m", "backfill_assets.cli", "demo", "--story", story.name, "--port", str(free_port()), "--exit"]
    with subprocess.Popen(
        command, cwd=folder, env=environment_alone(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            printed, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends its servers itself: killed, it would leave them at work
            printed, _ = process.communicate()
    return Played(folder / f"story-{story.name}", printed, process.returncode)


def commands(story: Story) -> Sequence[str]:
    """What is typed, as far as it does not depend on the plans that are made."""
    return [step.typed.partition("{plan}")[0] for step in story.steps if isinstance(step, Command)]
