"""What a rebuild is shown as, where there is little room, and where nothing can be drawn over."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from backfill_assets.cli import exit_codes, guide, terminal
from backfill_assets.cli.app import app
from backfill_assets.cli.progress import drawn, show_progress
from backfill_assets.cli.terminal import WIDTH_OF_A_PIPE
from backfill_assets.errors import UsageError
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Progress, TableOutcome, lines
from backfill_assets.plan.remaining import Remaining, WorkState
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.verbs.report import table_of
from tests.worlds.command_line import GUIDES
from tests.worlds.deliveries import day

NAME = "features/restoration_examples"
URL = "http://dagster.example.com:3000/runs?q[]=tag:backfill/plan=c030e8dd2a50"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLAN = Plan(
    {NAME: "1"},
    {NAME: {day(0): Reason(ReasonKind.MISSING), day(1): Reason(ReasonKind.MISSING)}},
    [],
    PlanOptions(),
)
BEGUN = Progress(
    PLAN,
    Remaining(dict.fromkeys([(NAME, day(0)), (NAME, day(1))], WorkState.PENDING)),
    {1: "r"},
    frozenset(),
    None,
    NOW,
    NOW,
    False,
)
HALF = replace(
    BEGUN, remaining=Remaining({(NAME, day(0)): WorkState.DONE, (NAME, day(1)): WorkState.PENDING})
)


@pytest.mark.parametrize("width", [80, WIDTH_OF_A_PIPE], ids=["a narrow terminal", "a pipe"])
def test_no_name_of_a_table_and_no_figure_is_cut(width):
    printed = StringIO()
    outcome = TableOutcome(
        NAME, 1234, changed=1234, rows=12_345_678, checks=7_404, checks_passed=7_404
    )
    table = table_of(*lines([outcome]), right=slice(1, None))
    Console(file=printed, width=width).print(table)
    assert (NAME in printed.getvalue(), "…" in printed.getvalue()) == (True, False)


@pytest.mark.parametrize("width", [60, 80], ids=["a narrow terminal", "a usual one"])
def test_the_live_view_cuts_no_name_and_no_link(width):
    printed = StringIO()
    Console(file=printed, width=width, soft_wrap=True).print(
        drawn(HALF, None, URL), soft_wrap=False
    )
    text = printed.getvalue()
    assert (NAME in text, "…" in text) == (True, False)
    assert URL in text.replace("\n", "")
    assert max(map(len, text.splitlines())) <= width


def test_on_a_dumb_terminal_progress_is_lines_that_come_as_it_changes():
    """There nothing can be drawn over: what is drawn so would be shown at the end only."""
    printed = StringIO()
    seen = list[str]()

    def progress():
        for each in (BEGUN, HALF, HALF):
            yield each
            seen.append(printed.getvalue())

    console = Console(file=printed, width=200, force_terminal=True, _environ={"TERM": "dumb"})
    assert show_progress(console, progress(), {}) is HALF
    assert [f"{NAME} 0/2" in seen[0], f"{NAME} 1/2" in seen[1], seen[2] == seen[1]] == [
        True,
        True,
        True,
    ]


def test_without_a_topic_every_guide_is_listed_with_one_line():
    listed = CliRunner().invoke(app, ["guide"]).stdout.splitlines()
    assert [line.split()[0] for line in listed[: len(GUIDES)]] == [
        each.path.stem for each in GUIDES
    ]
    assert all(len(line) <= 132 and line.endswith(".") for line in listed[: len(GUIDES)])


@pytest.mark.parametrize("document", GUIDES, ids=str)
def test_through_a_pipe_a_guide_is_printed_as_it_is_written(document):
    printed = CliRunner().invoke(app, ["guide", document.path.stem])
    assert (printed.exit_code, printed.stdout) == (exit_codes.DONE, document.text)


@pytest.mark.parametrize("document", GUIDES, ids=str)
def test_on_a_terminal_a_guide_is_formatted_and_no_word_is_cut(document, monkeypatch, capsys):
    monkeypatch.setattr(
        terminal, "terminal", lambda: Console(force_terminal=True, width=80, soft_wrap=True)
    )
    guide.print_markdown(document.text)
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert not shown.startswith("#")
    assert "…" not in shown
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_a_wrong_topic_is_a_usage_error_that_names_the_nearest():
    failed = CliRunner().invoke(app, ["guide", "publsh"])
    assert isinstance(failed.exception, UsageError)
    assert "publish" in str(failed.exception)
