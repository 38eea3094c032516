"""What a refusal advises can be typed: every command of this area, in every state of a plan."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from backfill_assets.cli.exit_codes import STOPPED, WRONG_USAGE
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.publish.shadows import discard
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.command_line import (
    FIRST,
    REJECTED,
    SECOND,
    backfill_commands,
    backfill_main,
    two_days,
)
from tests.worlds.small_lake import NOW, SmallLake, approved, killed_when, verdict_of
from tests.worlds.suite import SAMPLE

REFUSED = (WRONG_USAGE, STOPPED)
COMMANDS = (
    "publish {plan}",
    "preview {plan}",
    "verify {plan}",
    "diff {plan}",
    "rebase {plan}",
    "discard {plan} --yes",
    "rollback {plan} --yes",
    "rollback --release 1 --yes",
    "rollback --release 99 --yes",
    "resume {plan}",
    "cancel {plan}",
    "show {plan}",
    "release --reason why",
    "release --follow",
    "releases 99",
    "switch raw/rejected_lines raw/other --reason why",
)


@dataclass(frozen=True)
class World:
    """A lake with two days and a release, and a plan of the second day in its shadow."""

    home: Path
    lake: SmallLake
    workspace: Workspace
    plan: Plan

    def publish(self) -> None:
        Publication(self.plan, self.workspace, "ada").publish(lambda: NOW, approved)

    def fail(self, day=FIRST) -> None:
        ledger = self.workspace.lake.ledger
        at = ledger.next_time(REJECTED)
        ledger.append([Build(REJECTED, day, "failed", "a run", "1", message="no rows", at=at)])


def built(world: World) -> None:
    pass


def verified(world: World) -> None:
    verdict_of(world.plan, world.workspace)


def changed_in_live(world: World) -> None:
    verified(world)
    world.lake.write({SECOND: 5}, table=REJECTED)


def changed_elsewhere(world: World) -> None:
    verified(world)
    world.lake.write({FIRST: 5}, table=REJECTED)


def failed_in_live(world: World) -> None:
    verified(world)
    world.fail()


def published(world: World) -> None:
    verified(world)
    world.publish()


def killed_while_published(world: World) -> None:
    verified(world)
    before = world.lake.values(REJECTED)
    with killed_when(lambda: world.lake.values(REJECTED) != before) as killed:
        world.publish()
    assert killed


def built_again_after_the_publication(world: World) -> None:
    published(world)
    world.lake.write({SECOND: 9}, table=REJECTED)


def rolled_back(world: World) -> None:
    published(world)
    roll_back(world.plan, world.workspace, who="ada", now=lambda: NOW)


def discarded(world: World) -> None:
    discard(world.plan, world.workspace, who="ada", now=lambda: NOW)


def open_still(world: World) -> None:
    world.lake.plans.note(world.plan.id, "started", NOW, who="ada")


def cancelled(world: World) -> None:
    world.lake.plans.note(world.plan.id, "cancelled", NOW, who="ada")


STATES: list[Callable[[World], None]] = [
    built,
    verified,
    changed_in_live,
    changed_elsewhere,
    failed_in_live,
    published,
    killed_while_published,
    built_again_after_the_publication,
    rolled_back,
    discarded,
    open_still,
    cancelled,
]


@pytest.fixture
def world(tmp_path) -> World:
    home = tmp_path / "home"
    lake = two_days(home)
    workspace = open_workspace(home=home, landing=home)
    release_live(workspace, who="sensor")
    plan = lake.shadow_plan({REJECTED: [SECOND]}, workspace=workspace)
    lake.write({SECOND: 7}, table=REJECTED, into=plan)
    return World(home, lake, workspace, plan)


def refusal(world: World, words: list[str], copy: Path) -> str:
    """The message of a command that is refused in this state; "" if it is not."""
    shutil.copytree(world.home, copy)
    # The days of this lake have no deliveries, so that they stay up to date. A new plan needs some.
    landing = SAMPLE if words[0] == "plan" else copy
    try:
        done = backfill_main(*words, home=copy, BACKFILL_LANDING=str(landing))
        # A verdict that needs a decision ends with the same code, and is no error.
        return done.stderr if done.returncode in REFUSED else ""
    finally:
        shutil.rmtree(copy)


def advised(message: str) -> Iterator[list[str]]:
    for text in re.findall("`(backfill [^`]+)`", message.replace("\n", " ")):
        for words in backfill_commands(text):
            # On a terminal, these ask.
            asks = words[0] in ("discard", "rollback", "run") and "--yes" not in words
            yield [*words, "--yes"] if asks else words


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_what_a_refusal_advises_is_not_refused(world, state, tmp_path):
    state(world)
    refused = []
    tried = dict[str, str]()
    for command in COMMANDS:
        message = refusal(world, command.format(plan=world.plan.id).split(), tmp_path / "copy")
        for advice in advised(message):
            if advice[0] == "up":  # it runs until it is stopped
                continue
            line = " ".join(advice)
            if line not in tried:
                tried[line] = refusal(world, advice, tmp_path / "copy")
            if tried[line]:
                refused.append(f"{command}: {message}   {line}: {tried[line]}")
    assert not refused, "\n".join(refused)
