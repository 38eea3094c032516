"""`backfill guide` lists the guides, and prints one."""

import re

import pytest
from rich.console import Console
from typer.testing import CliRunner

from backfill_assets.cli import exit_codes, guide, terminal
from backfill_assets.cli.app import app
from backfill_assets.errors import UsageError
from tests.worlds.documents import GUIDES


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
    guide.show(document.text)
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert not shown.startswith("#")
    assert "…" not in shown
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_a_wrong_topic_is_a_usage_error_that_names_the_nearest():
    failed = CliRunner().invoke(app, ["guide", "publsh"])
    assert isinstance(failed.exception, UsageError)
    assert "publish" in str(failed.exception)
