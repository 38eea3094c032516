"""`backfill status` on a lake with one table, and the sample as its landing area. No Spark."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backfill_assets.cli.app import app
from backfill_assets.datasets.outages.raw import rejected_lines
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.errors import UsageError
from backfill_assets.lake.ledger import Build, Ledger, short_fingerprint
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.plan.status import State
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.inputs import deliveries
from backfill_assets.tables.columns import types_of
from tests.worlds.command_line import backfill_main
from tests.worlds.deliveries import day, days
from tests.worlds.recorded import write_days
from tests.worlds.suite import SAMPLE

NAME = rejected_lines.name
CALENDAR = {"BACKFILL_FIRST_DAY": "2019-08-15", "BACKFILL_LAST_DAY": "2019-08-18"}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Of one raw table the first day is built, the second from other files, the third was refused,
    the fourth is not there.
    """
    home = tmp_path_factory.mktemp("home")
    delivered: Any = deliveries(rejected_lines, [day(0), day(2)], LandingArea(SAMPLE))
    accepted = Build(NAME, day(0), "accepted", "run-1", rejected_lines.version, delta_version=0)
    now = delivered[day(0)]
    first = replace(accepted, rows=7, delivered=now.fingerprint)
    second = replace(accepted, day=day(1), delivered="other files")
    third = Build(
        NAME,
        day(2),
        "failed",
        "run-2",
        rejected_lines.version,
        message="no_nulls_line: 3 rows",
        who="ann",
    )
    third = replace(third, reason="to see", delivered=delivered[day(2)].fingerprint)
    write_days(home / "lake", first, second, columns=list(types_of(rejected_lines.columns)))
    Ledger(str(home / "lake")).append([first, second, third])
    return home


def asked(*arguments: str, home: Path, last: str = "2019-08-18") -> Result:
    env = CALENDAR | {"BACKFILL_HOME": str(home), "BACKFILL_LAST_DAY": last}
    return CliRunner().invoke(app, ["status", *arguments], env=env)


def test_every_day_is_shown_as_a_strip_with_counts_ranges_and_reasons(home, golden):
    done = backfill_main(
        "status", "--target", NAME, home=home, BACKFILL_LANDING=str(SAMPLE), **CALENDAR
    )
    assert (done.returncode, done.stderr) == (0, "")
    golden(done.stdout, command="status")


def test_days_of_a_file_can_be_an_argument_as_they_can_be_an_option(home, tmp_path):
    file = tmp_path / "days.txt"
    file.write_text("2019-08-15\n2019-08-17\n")
    typed = [(NAME, str(file)), (str(file), "--target", NAME), (NAME, "--partitions", str(file))]
    shown = [json.loads(asked(*words, "--json", home=home).stdout)["tables"] for words in typed]
    assert [list(tables[NAME]) for tables in shown] == [["2019-08-15", "2019-08-17"]] * 3


@pytest.mark.parametrize(
    ("last", "code"), [("2019-08-15", 0), ("2019-08-18", 1)], ids=["all are", "some are not"]
)
def test_a_check_ends_with_1_unless_every_day_is_up_to_date(home, last, code):
    assert asked("--target", NAME, "--check", home=home, last=last).exit_code == code


@pytest.mark.parametrize("log", [b"", b"{nonsense"], ids=["empty", "not JSON"])
def test_a_table_whose_log_cannot_be_read_is_named_and_hinders_no_other(home, tmp_path, log):
    copy = tmp_path / "home"
    shutil.copytree(home, copy)
    (copy / "lake" / NAME / "_delta_log" / f"{0:020}.json").write_bytes(log)
    values = json.loads(asked("--json", home=copy).stdout)
    found = values["tables"][NAME]["2019-08-15"]
    assert (found["state"], f"{copy}/lake/{NAME} " in found["why"]) == (State.REWRITTEN, True)
    env = CALENDAR | {"BACKFILL_HOME": str(copy)}
    plan = ["plan", "--partitions", "2019-08-15", "--target", "raw/outage_events", "--json"]
    planned = CliRunner().invoke(app, plan, env=env)
    assert (planned.exit_code, "raw/outage_events" in planned.stdout) == (0, True)


def test_columns_that_are_not_as_declared_are_said_and_a_plan_says_them_too(tmp_path):
    write_days(
        tmp_path / "lake",
        Build(NAME, day(0), "accepted", "r", "1", rows=1),
        columns=["arrival_day", "line", "why"],
    )
    new = (
        f"{NAME} gets source_file, reason with the first day built; days built before then hold"
        " null."
    )
    gone = f"{NAME} has why, not declared any more: gone once all 1 day(s) are built again."
    printed = asked("--target", NAME, home=tmp_path).stdout
    assert [line for line in printed.splitlines() if "columns" in line] == [
        f"  columns: {new}",
        f"  columns: {gone}",
    ]
    assert json.loads(asked("--target", NAME, "--json", home=tmp_path).stdout)["columns"] == {
        NAME: [new, gone]
    }
    env = CALENDAR | {"BACKFILL_HOME": str(tmp_path), "BACKFILL_LANDING": str(SAMPLE)}
    command = ["plan", "--partitions", "2019-08-15", "--target", NAME]
    printed = CliRunner().invoke(app, command, env=env).stdout
    assert new in printed
    assert json.loads(CliRunner().invoke(app, [*command, "--json"], env=env).stdout)["columns"] == [
        new,
        gone,
    ]


def test_a_long_calendar_folds_equal_months_and_reasons_that_differ_only_in_days(home, golden):
    done = CliRunner().invoke(
        app,
        ["status", "--target", NAME],
        env={"BACKFILL_HOME": str(home), "BACKFILL_LAST_DAY": "2020-03-31"},
    )
    assert done.exit_code == 0
    golden(done.stdout, command="status")


def test_a_day_whose_source_has_gone_is_said_to_stand_and_to_have_none(home, tmp_path, golden):
    env = CALENDAR | {"BACKFILL_HOME": str(home), "BACKFILL_LANDING": str(tmp_path)}
    arguments = ["status", "--target", NAME, "--partitions", "2019-08-15"]
    golden(CliRunner().invoke(app, arguments, env=env).stdout, command="status")


def test_machines_get_every_day_of_every_table(home):
    done = asked("--json", "--partitions", "2019-08-15,2019-08-18", home=home)
    values = json.loads(done.stdout)["tables"]
    assert list(values) == [table.name for table in TABLES]
    assert {day: partition["state"] for day, partition in values[NAME].items()} == {
        "2019-08-15": State.UP_TO_DATE,
        "2019-08-18": State.MISSING,
    }
    assert values["raw/outage_events"]["2019-08-18"]["why"] == f"needs {NAME} 2019-08-18"


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ([NAME], ["--target", NAME]),
        ([NAME, "2019-08-15"], ["--target", NAME, "--partitions", "2019-08-15"]),
        (["2019-08-15..2019-08-16"], ["--partitions", "2019-08-15..2019-08-16"]),
        (["..2019-08-16"], ["--partitions", "2019-08-15..2019-08-16"]),
        (["all"], ["--partitions", "2019-08-15..2019-08-18"]),
        ([NAME, "2019-08"], ["--target", NAME, "--partitions", "2019-08-15..2019-08-18"]),
        ([NAME, "2019-08-15", "--why"], ["--why", NAME, "2019-08-15"]),
        (
            ["--why", NAME, "2019-08-15"],
            ["--why", *f"--target {NAME} --partitions 2019-08-15".split()],
        ),
    ],
    ids=[
        "a table",
        "a table and a day",
        "days",
        "days to the second",
        "all days",
        "a table and a month",
        "why",
        "why by options",
    ],
)
def test_a_table_and_its_days_may_be_typed_without_options(home, typed, options):
    assert asked(*typed, home=home).stdout == asked(*options, home=home).stdout != ""


def test_a_file_of_days_is_taken(home, tmp_path):
    (tmp_path / "days.txt").write_text("2019-08-15\n2019-08-18\n")
    by_file = asked("--partitions", str(tmp_path / "days.txt"), home=home).stdout
    assert by_file == asked("--partitions", "2019-08-15,2019-08-18", home=home).stdout


def test_one_day_is_explained_down_to_the_run_the_commit_and_the_source_file(home):
    done = asked("--why", NAME, "2019-08-15", home=home)
    size = (SAMPLE / "outage_events/year=2019/month=08/day=15/events.jsonl.gz").stat().st_size
    assert f"outage_events/year=2019/month=08/day=15/events.jsonl.gz, {size} bytes, " in done.stdout
    assert "accepted: 7 rows, commit 0" in done.stdout
    values = json.loads(asked("--why", NAME, "2019-08-15", "--json", home=home).stdout)
    (build,) = values["builds"]
    assert (build["run"], build["delta_version"], build["rows"]) == ("run-1", 0, 7)
    assert short_fingerprint(build["delivered"]) in done.stdout


def test_a_refused_day_is_explained_by_what_refused_it(home):
    values = json.loads(asked("--why", NAME, "2019-08-17", "--json", home=home).stdout)
    (build,) = values["builds"]
    assert (values["state"], build["message"][:13], build["who"]) == (
        "failed", "no_nulls_line", "ann",
    )  # fmt: skip


def test_a_day_a_run_is_at_work_on_is_running_whatever_else_is_known_of_it(home):
    """Also to `--why`, which tells for which plan and since when, and to `plan`, which leaves it to
    that run.
    """
    since = datetime(2019, 9, 1, 12, 30, tzinfo=UTC)
    with mark_running(str(home / "lake"), RunningStep(NAME, days(2, 3), "run-3", "plan-1", since)):
        lines = asked("--target", NAME, home=home).stdout.splitlines()
        why = asked("--why", NAME, "2019-08-17", home=home)
        values = asked("--json", "--target", NAME, home=home)
        details = json.loads(asked("--why", NAME, "2019-08-17", "--json", home=home).stdout)
        env = CALENDAR | {"BACKFILL_HOME": str(home)}
        plan = CliRunner().invoke(
            app, ["plan", "--partitions", "2019-08-15..2019-08-18", "--json"], env=env
        )
    assert lines[1] == f"  2019-08 {' ' * 14}=s>>"
    since_shown = "  run run-3, plan plan-1, since 2019-09-01 12:30:00 UTC"
    assert why.stdout.splitlines()[1] == since_shown
    assert json.loads(values.stdout)["tables"][NAME]["2019-08-18"] == {
        "state": "running",
        "why": "run run-3",
    }
    assert details["running"] == {"run": "run-3", "plan": "plan-1", "since": "2019-09-01 12:30:00"}
    assert list(json.loads(plan.stdout)["plan"]["reasons"][NAME]) == ["2019-08-16"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--target", "raw/nothing"],
        ["--partitions", "2019-08-19"],
        ["--partitions", "2019-08-17..2019-08-16"],
        ["--why", NAME, "yesterday"],
        ["--why", NAME, "2019-08-15..2019-08-16"],
        ["--why", "raw/outage_events,raw/rejected_lines", "2019-08-15"],
        ["--why", "", "2019-08-15"],
        ["--why"],
        ["--why", "raw/nothing", "2019-08-15"],
    ],
    ids=[
        "an unknown table",
        "a day outside",
        "a reversed range",
        "no day",
        "two days",
        "two tables",
        "no table",
        "no table and no day",
        "an unknown table to explain",
    ],
)
def test_what_is_not_there_is_refused_and_what_is_there_named(home, arguments, golden):
    error = asked(*arguments, home=home).exception
    assert isinstance(error, UsageError)
    golden(str(error), command="status")


def test_looking_leaves_the_lake_as_it_was(home):
    def lake() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in (home / "lake").rglob("*")}

    before = lake()
    assert asked(home=home).exit_code == 0
    assert lake() == before
