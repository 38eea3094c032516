"""The README's stories of a rebuild and its publication, typed on the demo's lake with real
servers.
"""

import re
import shutil
import subprocess
import sys

import pytest

from backfill_assets.lake.channels import CANDIDATE, STABLE
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.store import Plans
from tests.worlds.command_line import README
from tests.worlds.servers import demo_once, environment_alone, servers_of
from tests.worlds.station import TIMEOUT_S, Station

pytestmark = pytest.mark.scale

PLAN_ID = re.search(r"^plan (\w{12})$", README.text, re.MULTILINE)[1]  # type: ignore[index]
# A day fails in the first run, and checks need a decision.
CODES = {"backfill run": 1, "backfill verify": 4}


class Story:
    """A terminal in the folder of the demo, in which the README's blocks are typed."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.plan_id = PLAN_ID
        self.typed: list[str] = []

    @property
    def releases(self) -> Releases:
        return Releases(str(self.station.home / "lake"))

    def state(self) -> str:
        return Plans(self.releases.root).state(self.plan_id)

    def type_block(self, block: str, shown: str) -> None:
        """Run a block of commands, and compare its exit code and output with the README."""
        script = block.replace(PLAN_ID, self.plan_id)
        command = f'backfill() {{ "{sys.executable}" -m backfill_assets.cli "$@"; }}\n{script}'
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.station.project,
            env=self.station.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        last = script.strip().splitlines()[-1]
        expected = next((code for start, code in CODES.items() if last.startswith(start)), 0)
        if "--accept" in script:
            expected = 0
        assert done.returncode == expected, f"{last}\n{done.stdout}"
        if shown:
            made = re.search(r"^plan (\w{12})$", done.stdout, re.MULTILINE)
            self.plan_id = made[1] if made else self.plan_id
            assert missing_lines(shown, done.stdout) == [], done.stdout
        self.typed.append(last)


def missing_lines(shown: str, printed: str) -> list[str]:
    """Return the lines of an example that a command did not print in that order; `...` stands for
    any lines.
    """
    left = iter([comparable(line) for line in printed.splitlines()])
    return [line for line in shown.splitlines() if line != "..." and comparable(line) not in left]


def comparable(line: str) -> str:
    """Replace what differs from one lake or machine to another."""
    line = re.sub(r"^plan \w{12}$", "plan ID", line.rstrip())
    return re.sub(r"about [\d.]+ (second|minute)s?", "about N minutes", line)


def blocks_of(section: str) -> list[tuple[str, str]]:
    """Return the blocks of commands of a section, each with the output that follows it."""
    text = README.text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```bash\n(.*?)```(?:\n\n```\n(.*?)```)?", text, re.DOTALL)


@pytest.fixture(scope="module")
def story(tmp_path_factory, spark):
    """The demo's lake and deliveries in a new folder, with a release, as the demo leaves them."""
    folder = tmp_path_factory.mktemp("readme")
    home = folder / ".backfill"
    for name in ("lake", "landing"):
        shutil.copytree(demo_once().home / name, home / name)
    shutil.copy(demo_once().home / "settings.env", home)
    with servers_of(home, environment_alone(), folder) as station:
        station.backfill("release", "--reason", "the days of the demo")
        yield Story(station)


def test_the_story_of_a_rebuild(story):
    for block, shown in blocks_of("Rebuild"):
        story.type_block(block, shown)
    assert story.typed[-1] == "backfill resume"
    assert story.state() == "done"


def test_the_story_of_a_publication(story):
    checked, (accepted, _), taken_back = blocks_of("Publish")
    story.type_block(*checked)
    tried, publish, published = accepted.partition("backfill publish")
    story.type_block(tried, "")
    root = story.releases.root
    assert [open_channel(root, channel).preview for channel in (STABLE, CANDIDATE)] == [
        "",
        story.plan_id,
    ]
    story.type_block(publish + published, "")
    assert story.state() == "published"
    assert open_channel(root, CANDIDATE) == open_channel(root, STABLE)
    story.type_block(*taken_back)
    assert story.state() == "rolled_back"


def test_the_shown_output_may_leave_lines_out_and_no_more():
    assert missing_lines("a\n...\nc", "a\nb\nc\n") == []
    assert missing_lines("a\nd", "a\nb\n") == ["d"]
    assert missing_lines("plan ef542877b510", "plan 0123456789ab") == []
