"""`backfill` on a terminal, where somebody can be asked."""

import os
import re
import sys

import pytest

from backfill_assets.plan.store import Plans
from tests.worlds.command_line import DAY, REJECTED, answered, on_a_terminal

pytestmark = [pytest.mark.long, pytest.mark.servers]


def plain(printed: str) -> str:
    """The text without colours. The terminal shows what is typed before or after the question."""
    text = re.sub(r"\x1b\[[\d;]*m", "", printed)
    return re.sub(r"\? ?[ny]?\s*\[y/N\]:\s*[ny]?\s*", "? [y/N]\n", text)


def test_a_new_plan_is_shown_and_carried_out_only_if_that_is_wanted(tmp_path, golden):
    plans = Plans(str(tmp_path / "lake"))
    asked = ("run", "--partitions", str(DAY), "--target", REJECTED)
    # It is a plan into live: no answer is a no.
    code, printed = on_a_terminal("", *asked, home=tmp_path)
    (plan,) = plans.ids()
    assert (code, plans.events(plan)) == (1, [])
    code, printed = on_a_terminal("n", *asked, home=tmp_path)
    assert (code, plans.events(plan)) == (1, [])
    golden(plain(printed), "no", command="run", PLAN=plan)
    for part, answer, flags in (("yes", "y", ()), ("--yes", "", ("--yes",))):
        code, printed = on_a_terminal(answer, *asked, *flags, home=tmp_path)
        assert code == 3
        golden(plain(printed), part, command="run", PLAN=plan)
    code, printed = on_a_terminal("", "run", plan, "--yes", home=tmp_path)
    assert code == 3
    golden(plain(printed), "a plan", command="run", PLAN=plan)


# A story of one command, as `backfill demo --story` plays it on this terminal.
STORY = """
import sys
from pathlib import Path
from backfill_assets.cli.story import Story, TypedCommand, play, reader_on
from backfill_assets.cli.terminal import terminal
from backfill_assets.plan.store import Plans
story = Story("short", "", "", {}, [TypedCommand("backfill plan --only missing")])
reader = reader_on(terminal())
play(story, terminal(), Plans(sys.argv[1]), Path(), lambda typed, killed_in: 0, reader)
"""


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        pytest.param("backfill plan", 1, id="the command"),
        pytest.param("backfill run", 0, id="another one"),
        pytest.param("", 0, id="Enter"),
        pytest.param("\x04", 0, id="the end of the input"),
        pytest.param(b"\xff".decode(errors="surrogateescape"), 0, id="no UTF-8"),
    ],
)
def test_a_story_asks_on_a_terminal_and_goes_on_with_any_answer(tmp_path, answer, right):
    command = [sys.executable, "-c", STORY, str(tmp_path)]
    code, printed = answered(answer, command, os.environ)
    assert code == 0
    assert "$ backfill plan --only missing" in printed
    assert f"You named {right} of 1 commands" in printed
