"""`backfill log` on a lake that has a record and hardly any tables. No Spark, no Dagster."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backfill_assets.cli.app import app
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.errors import UsageError
from backfill_assets.lake.ledger import Build, Ledger
from tests.worlds.deliveries import day
from tests.worlds.recorded import NOON, commit
from tests.worlds.recorded import build as of_unknown_table

NAME = "staging/outages"
RENAMED = "staging/outages_by_region"
CRASHED = "staging/o"


def builds(
    table: str, run: str, *numbers: int, outcome: Any = "accepted", minutes: int = 0, **fields: Any
) -> list[Build]:
    at = NOON.replace(minute=minutes)
    return [
        Build(table, day(n), outcome, run, "3f2a", rows=10, at=at, **{"delta_version": 4} | fields)
        for n in numbers
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """One run built three days and refused two, the next found one the same; one table had another
    name; a run crashed.
    """
    home = tmp_path_factory.mktemp("home")
    ledger = Ledger(str(home / "lake"))
    asked = {"who": "ada", "plan": "ebb0d924512e", "reason": "meters [sic] mended"}
    name = "staging/outage_updates"
    read = {"inputs": {name: {"2019-08-15": "2463-4bf5e66f"}}, "input_versions": {name: 7}}
    ledger.append(builds(RENAMED, "run-0", -400))
    ledger.append(builds(NAME, "run-1", 0, 1, 4, minutes=1, **asked, **read))
    for n in (2, 3):
        said = f"unique_key: {n} rows twice\n  a row"
        ledger.append(
            builds(
                NAME,
                "run-1",
                n,
                outcome="failed",
                minutes=2,
                message=said,
                delta_version=-1,
                **asked,
            )
        )
    ledger.append(
        builds(
            NAME,
            "run-2",
            0,
            outcome="unchanged",
            minutes=3,
            who="ben",
            write_mode="merge",
            accept="a.jsonl",
        )
    )
    ledger.append([of_unknown_table(0, 10, run="run-3", delta_version=0)])
    commit(home / "lake", of_unknown_table(0, 10, run="run-3"))
    commit(home / "lake", of_unknown_table(1, 11, run="run-3"))
    return home


def log(*arguments: str, home: Path) -> Result:
    env = {
        "BACKFILL_HOME": str(home),
        "BACKFILL_FIRST_DAY": str(day(0)),
        "BACKFILL_LAST_DAY": str(day(9)),
    }
    return CliRunner().invoke(app, ["log", *arguments], env=env)


def recorded(*arguments: str, home: Path) -> list[dict[str, Any]]:
    return list(json.loads(log(*arguments, "--json", home=home).stdout)["builds"])


def test_a_run_is_a_paragraph_and_days_that_came_to_the_same_a_line(home, golden):
    golden(log(NAME, home=home).stdout, command="log")


def test_the_builds_of_a_day_are_listed_with_their_inputs_and_messages(home, golden):
    shown = log(NAME, "2019-08-15,2019-08-17", "--run", "run-1", home=home).stdout
    golden(shown, command="log")


def test_sixty_days_of_every_table_are_a_line_each_and_one_for_their_figures(tmp_path):
    for table in TABLES:
        Ledger(str(tmp_path / "lake")).append(builds(table.name, "run-1", *range(60)))
    assert len(log(home=tmp_path).stdout.splitlines()) == 1 + 2 * len(TABLES)


def test_what_a_crash_left_out_of_the_ledger_is_told_with_the_remedy(home):
    *_, last, remedy = log(CRASHED, home=home).stdout.splitlines()
    assert last.split(", ") == ["    0 rows", "commit 1", "code 1"]
    assert "`backfill reconcile --repair`" in remedy


def test_a_table_that_was_renamed_and_its_days_outside_the_calendar_are_still_told(home):
    for arguments in ([RENAMED], [RENAMED, str(day(-400))], [str(day(-400))]):
        (found,) = recorded(*arguments, home=home)
        assert (found["table"], found["day"]) == (RENAMED, str(day(-400)))


def test_days_alone_are_those_of_every_table(home):
    found = recorded("2019-08-15", "--last", "2", home=home)
    assert (NAME, "unchanged", "run-2") in {(b["table"], b["outcome"], b["run"]) for b in found}
    assert {b["day"] for b in found} == {"2019-08-15"}


def test_a_plan_is_shown_alone(home):
    found = recorded("--plan", "ebb0", home=home)
    assert [b["run"] for b in found] == ["run-1"] * 5


def test_machines_get_every_build_with_everything_recorded(home):
    *_, known, left_out = recorded(home=home)
    expected = of_unknown_table(0, 10, run="run-3", delta_version=0)
    assert known == json.loads(json.dumps(expected.to_json())) | {"recorded": True}
    assert (left_out["recorded"], left_out["delta_version"]) == (False, 1)


@pytest.mark.parametrize("asked", [["raw/outage_events"], [NAME, "last 2"]])
def test_nothing_recorded_is_said(home, asked):
    done = log(*asked, home=home)
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 1)
    assert recorded(*asked, home=home) == []


@pytest.mark.parametrize(
    "asked",
    [
        ["raw/nothing"],
        [NAME, "yesterday"],
        [NAME, "2019-08-16..2019-08-15"],
        [NAME, "2030-01-01"],
        [RENAMED, "2018-01-01"],
        ["--plan", "ebb1"],
    ],
    ids=[
        "an unknown table",
        "no day",
        "a reversed range",
        "a day to come",
        "a day before any that was built",
        "no plan",
    ],
)
def test_what_never_was_is_refused(home, asked, golden):
    error = log(*asked, home=home).exception
    assert isinstance(error, UsageError)
    golden(str(error), command="log")


def test_looking_leaves_the_lake_as_it_was(home):
    before = {path: path.stat().st_mtime_ns for path in (home / "lake").rglob("*")}
    log("2019-08-15", home=home)
    assert {path: path.stat().st_mtime_ns for path in (home / "lake").rglob("*")} == before


def test_tables_may_be_named_as_for_every_other_verb(home, golden):
    assert log("--target", "staging/outages", home=home).stdout == log(NAME, home=home).stdout != ""
    both = log(NAME, "--target", NAME, home=home).exception
    assert isinstance(both, UsageError)
    by_option = log("--target", NAME, "--partitions", "2019-08-15", home=home).stdout
    assert by_option == log(NAME, "2019-08-15", home=home).stdout != ""
    twice = log(NAME, "2019-08-15", "--partitions", "2019-08-15", home=home).exception
    assert isinstance(twice, UsageError)
    golden(str(log(f"{NAME}x", home=home).exception), command="log")
