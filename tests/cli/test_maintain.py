"""`backfill maintain` without servers: what it prints, exits with and does, and that the dry run
does nothing.
"""

import json

import pytest

from backfill_assets.cli import exit_codes
from backfill_assets.errors import UsageError
from tests.worlds.command_line import REJECTED, backfill, values_of
from tests.worlds.deliveries import day
from tests.worlds.small_lake import SmallLake, age, contents, files_on_disk


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    """A day of a bundled table, written three times, forty days ago."""
    lake = SmallLake(tmp_path / "lake", "arrival_day")
    for value in range(1, 4):
        lake.write({day(0): value}, table=REJECTED)
    age(lake, 40)
    return lake


def test_without_apply_it_says_what_would_be_done_and_changes_nothing(lake, tmp_path, golden):
    before = contents(lake.root)
    done = backfill("maintain", home=tmp_path)
    assert (done.exit_code, contents(lake.root)) == (exit_codes.DONE, before)
    golden(done.stdout, command="maintain")
    values = values_of("maintain", home=tmp_path)
    assert (values["applied"], len(values["tables"][REJECTED]["removed_files"])) == (False, 2)


def test_with_apply_the_files_are_gone_and_json_names_them(lake, tmp_path):
    before = files_on_disk(lake, REJECTED)
    newest = lake.files(REJECTED)[day(0)]
    done = backfill("maintain", "--apply", "--json", home=tmp_path)
    values = json.loads(done.stdout)
    table = values["tables"][REJECTED]
    assert (done.exit_code, values["exit_code"], values["applied"], values["problems"]) == (
        0,
        0,
        True,
        [],
    )
    assert (set(table["removed_files"]), table["kept_files"]) == (before - newest, {"newest": 1})
    assert (files_on_disk(lake, REJECTED), lake.values(REJECTED)) == (newest, {day(0): 3})
    arguments = ["maintain", "--apply", "--target", REJECTED, "--json"]
    again = json.loads(backfill(*arguments, home=tmp_path).stdout)
    assert (again["retired_releases"], again["tables"][REJECTED]["removed_files"]) == ([], [])


def test_the_window_is_a_setting(lake, tmp_path, monkeypatch, golden):
    monkeypatch.setenv("BACKFILL_ROLLBACK_DAYS", "41")
    values = values_of("maintain", home=tmp_path)
    assert (values["rollback_days"], values["tables"][REJECTED]["kept_files"]) == (
        41,
        {"newest": 1, "window": 2},
    )
    golden(backfill("maintain", home=tmp_path).stdout, command="maintain")


def test_an_unreadable_table_is_a_partial_success_and_an_unknown_one_a_usage_error(
    lake, tmp_path, golden
):
    (lake.root / REJECTED / "_delta_log" / f"{1:020}.json").write_text("{")
    done = backfill("maintain", "--json", home=tmp_path)
    (problem,) = json.loads(done.stdout)["problems"]
    assert (done.exit_code, problem.partition(": ")[0]) == (exit_codes.PARTIAL, REJECTED)
    for words in (("--target", "raw/x"), ("raw/x",), ("2019-08-15",)):
        unknown = backfill("maintain", *words, home=tmp_path).exception
        assert isinstance(unknown, UsageError)
        golden(unknown.what, words[-1], command="maintain")
    assert backfill("maintain", REJECTED, "--target", REJECTED, home=tmp_path).exit_code != 0
