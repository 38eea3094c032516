"""Wrong words are refused with what to type, and each option takes the values that it offers."""

import pytest

from backfill_assets.cli.app import command_line
from backfill_assets.cli.exit_codes import WRONG_USAGE
from backfill_assets.cli.options import OPTIONAL_VALUES
from tests.worlds.command_line import backfill_main

COMMANDS = command_line().commands


def test_a_value_that_is_not_offered_is_refused_with_those_that_are(tmp_path, golden):
    done = backfill_main("rebase", "--keep", "mine", home=tmp_path)
    assert done.returncode == WRONG_USAGE
    golden(done.stderr, command="rebase")


def test_a_second_table_is_refused_with_the_option_that_takes_two(tmp_path):
    done = backfill_main("status", "raw/rejected_lines", "raw/outage_events", home=tmp_path)
    assert done.returncode == WRONG_USAGE
    assert "--target raw/rejected_lines,raw/outage_events" in done.stderr


@pytest.mark.parametrize("option", OPTIONAL_VALUES)
def test_an_option_with_an_optional_value_takes_each_of_its_values(option):
    for value in OPTIONAL_VALUES[option]:
        for words in ([f"{option}={value}"], [option, value]):
            assert COMMANDS["plan"].make_context("plan", words).params["downstream"] == value


@pytest.mark.parametrize("command", ["accept-code", "export", "log", "maintain", "reproduce"])
def test_a_table_typed_as_an_argument_may_be_typed_as_an_option(command):
    names = {name for option in COMMANDS[command].params for name in option.opts}
    assert {"table", "--target"} <= names


def test_every_command_that_takes_days_or_tables_takes_them_by_the_same_options():
    other = {"--days", "--day", "--table", "--tables"}
    for name, command in COMMANDS.items():
        assert other.isdisjoint(option for each in command.params for option in each.opts), name
