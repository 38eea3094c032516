"""What a refusal advises can be typed: every command of this area, in every state of a plan."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from backfill_assets.cli.exit_codes import STOPPED, WRONG_USAGE
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import open_shadow, shadow_of
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.publish.shadows import discard
from backfill_assets.step.inputs import delivered_for
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.command_line import (
    FIRST,
    REJECTED,
    SECOND,
    backfill,
    backfill_commands,
    backfill_main,
    refused,
    two_days,
    values_of,
)
from tests.worlds.depth import deep
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
        Publication(self.plan, self.workspace, "ada").publish(approved)

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
    roll_back(world.plan, world.workspace, who="ada")


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
IN_PART = [changed_in_live, open_still]


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


@pytest.mark.parametrize("state", deep(STATES, IN_PART), ids=lambda state: state.__name__)
def test_what_a_refusal_advises_is_not_refused(world, state, tmp_path):
    state(world)
    found = []
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
                found.append(f"{command}: {message}   {line}: {tried[line]}")
    assert not found, "\n".join(found)


def test_what_failed_in_a_shadow_is_accepted_by_planning_it_again(tmp_path):
    good, cut, other = (date(2019, 9, n) for n in (3, 4, 5))
    (landing := tmp_path / "landing" / "outage_events").mkdir(parents=True)
    whole = '{"a": 1}\n'
    for at, text in ((good, whole), (cut, f'{whole}{{"a": '), (other, "")):
        (landing / f"{at}.jsonl").write_text(text)
    place = {"home": tmp_path, "landing": landing.parent}
    days = ("--partitions", f"{good}..{other}", "--target", REJECTED)
    made = values_of("plan", *days, "--into", "shadow", **place)
    lake = SmallLake(tmp_path / "lake", "arrival_day")
    workspace = open_workspace(**place)
    plan = lake.plans.read(made["id"])
    open_shadow(plan, workspace, "ada")
    lake.write({good: 3}, table=REJECTED, into=plan)
    [table] = [table for table in workspace.tables if table.name == REJECTED]
    faults = delivered_for(table, [cut, other], workspace.area, {}, calendar=workspace.calendar)
    failed = [
        Build(REJECTED, at, "failed", "a run", table.version, plan=plan.id, message=str(fault))
        for at, fault in faults.items()
    ]
    shadow_of(plan, workspace).ledger.append(failed)
    lake.plans.note(plan.id, "started", NOW, who="ada")
    why = "2 partition(s) of the canary failed"
    lake.plans.note(plan.id, "ended", NOW, ending="stopped", stop="canary", why=why)

    names = f"outage_events/{cut}.jsonl,outage_events/{other}.jsonl"
    again = ["plan", "--partitions", f"{good}..{other}", "--target", REJECTED, "--force"]
    again += ["--into", "shadow", "--accept", names, "--reason", "why"]
    told = backfill_main("show", plan.id, home=tmp_path, BACKFILL_LANDING=str(landing.parent))
    for text in (told.stdout, refused("publish", plan.id, **place)[1]):
        assert f"--accept outage_events/{cut}.jsonl --reason 'why'" in text
        commands = [*advised(text)]
        assert commands[-2:] == [["discard", plan.id, "--yes"], again]
        assert {words[0] for words in commands} <= {"resume", "discard", "plan"}
    assert backfill("discard", plan.id, "--yes", **place).exit_code == 0
    accepted = values_of(*again, **place)
    assert (accepted["will_fail"], accepted["blocked"]) == ({}, {})
    assert [*accepted["plan"]["reasons"][REJECTED]] == [str(at) for at in (good, cut, other)]
