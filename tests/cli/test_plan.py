"""`backfill plan` on a lake without tables, and the sample as its landing area. No Spark."""

import json
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from backfill_assets.calendar import between
from backfill_assets.cli import exit_codes
from backfill_assets.cli.app import app
from backfill_assets.errors import BackfillError, RefusedByGuard, UsageError
from backfill_assets.plan.store import Plans
from tests.worlds.command_line import backfill_main
from tests.worlds.suite import SAMPLE

pytestmark = pytest.mark.lake

CALENDAR = {
    "BACKFILL_FIRST_DAY": "2019-08-15",
    "BACKFILL_LAST_DAY": "2019-10-20",
}  # the sample ends a week before


def asked(*arguments: str, home: Path, **env: str) -> Result:
    return CliRunner().invoke(
        app, ["plan", *arguments], env=CALENDAR | {"BACKFILL_HOME": str(home)} | env
    )


def planned(*arguments: str, home: Path) -> dict[str, dict[str, str]]:
    return json.loads(asked(*arguments, "--json", home=home).stdout)["plan"]["reasons"]


def test_a_lake_without_anything_gets_everything_there_are_deliveries_for(tmp_path):
    reasons = planned("--partitions", "2019-10-10..2019-10-20", home=tmp_path)
    assert {table: len(days) for table, days in reasons.items()} == {
        "raw/rejected_lines": 4,
        "raw/outage_events": 4,
        "staging/outage_updates": 4,
        "staging/outages": 2,
        "features/late_arrivals": 4,
    }
    assert {why for days in reasons.values() for why in days.values()} == {"missing"}


def test_what_cannot_be_built_is_left_out_and_said(tmp_path):
    done = asked("--partitions", "2019-10-12..2019-10-20", "--json", home=tmp_path)
    blocked = json.loads(done.stdout)["blocked"]
    assert (len(blocked), "raw/rejected_lines 2019-10-14" in blocked) == (64, True)


def test_a_plan_names_days_that_will_fail_because_of_their_source(tmp_path, golden):
    (folder := tmp_path / "landing" / "outage_events").mkdir(parents=True)
    for n, text in ((3, '{"a": 1}\n'), (4, '{"a": ')):
        (folder / f"2019-09-0{n}.jsonl").write_text(text)
    asks = ("--partitions", "2019-09-03..2019-09-04", "--target", "raw/rejected_lines")
    done = asked(*asks, home=tmp_path, BACKFILL_LANDING=str(tmp_path / "landing"))
    values = json.loads(
        asked(*asks, "--json", home=tmp_path, BACKFILL_LANDING=str(tmp_path / "landing")).stdout
    )
    golden(done.stdout, command="plan", PLAN=values["id"])
    assert list(values["will_fail"]) == ["raw/rejected_lines 2019-09-04"]


@pytest.mark.parametrize(
    ("typed", "tables"),
    [
        pytest.param(["--downstream"], 2, id="built"),
        pytest.param(["--downstream=all"], 4, id="all"),
        pytest.param(["--downstream", "all"], 4, id="all after a space"),
    ],
)
def test_downstream_begins_no_table_unless_all_are_named(tmp_path, typed, tables):
    words = ("--partitions", "2019-09-03", "--target", "raw/outage_events", *typed, "--json")
    landing = str(SAMPLE)
    done = backfill_main("plan", *words, home=tmp_path, BACKFILL_LANDING=landing, **CALENDAR)
    made = json.loads(done.stdout)
    assert (len(made["plan"]["reasons"]), bool(made["never_built"])) == (tables, tables == 2)


def test_upstream_brings_what_is_needed_and_lacking(tmp_path):
    assert (
        asked("--partitions", "2019-09-03", "--target", "staging/outages", home=tmp_path).exit_code
        == 1
    )
    reasons = planned(
        "--partitions", "2019-09-03", "--target", "staging/outages", "--upstream", home=tmp_path
    )
    needed = ["2019-09-03", "2019-09-04", "2019-09-05"]
    assert {table: list(days) for table, days in reasons.items()} == {
        "raw/rejected_lines": needed, "raw/outage_events": needed, "staging/outage_updates": needed,
        "staging/outages": ["2019-09-03"],
    }  # fmt: skip


def test_force_plans_days_in_any_state_unless_states_are_named(tmp_path, golden):
    arguments = ["--partitions", "2019-09-03", "--target", "raw/rejected_lines", "--force"]
    assert planned(*arguments, home=tmp_path) == {"raw/rejected_lines": {"2019-09-03": "missing"}}
    nothing = asked(*arguments, "--only", "failed", home=tmp_path)
    assert nothing.exit_code == 0
    golden(nothing.stdout, command="plan")


@pytest.fixture
def two_files(tmp_path) -> tuple[str, ...]:
    """Two files of one day, one of which has a comma in its name; what to type to plan that day."""
    (folder := tmp_path / "landing" / "outage_events").mkdir(parents=True)
    for name in ("2019-09-03.jsonl", "2019-09-03,again.jsonl"):
        (folder / name).write_text("{}\n")
    return (
        "--partitions",
        "2019-09-03..2019-09-04",
        "--target",
        "raw/rejected_lines",
        "--reason",
        "so",
        "--accept",
    )


@pytest.mark.parametrize(
    ("accept", "unknown"),
    [
        ("outage_events/2019-09-03,again.jsonl, outage_events/2019-09-03.jsonl", ""),
        ("outage_events/2019-09-03.jsonl,", ""),
        ("2019-09-03.jsonl", "2019-09-03.jsonl"),
        (
            "outage_events/2019-09-03.jsonl,outage_events/2019-09-03,agian.jsonl",
            "outage_events/2019-09-03",
        ),
    ],
    ids=[
        "both, whatever their order",
        "one",
        "a name without its folder",
        "one, and a typing error",
    ],
)
def test_a_file_to_accept_is_one_that_a_planned_day_has(
    tmp_path, two_files, accept, unknown, golden
):
    done = asked(*two_files, accept, home=tmp_path, BACKFILL_LANDING=str(tmp_path / "landing"))
    if not unknown:
        assert done.exit_code == 0, done.exception
        return
    assert isinstance(done.exception, UsageError)
    golden(done.exception.what, command="plan")
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    "arguments", [("--target", ""), ("--target=", "--force"), ("--only", "")], ids=" ".join
)
def test_a_flag_without_a_value_does_not_ask_for_everything(tmp_path, arguments):
    done = asked("--partitions", "2019-09-03", *arguments, home=tmp_path)
    assert isinstance(done.exception, UsageError)
    assert done.exception.what == f"{arguments[0].rstrip('=')} has no value."
    assert not (tmp_path / "lake").exists()


def test_nothing_is_accepted_without_a_reason(tmp_path, golden):
    done = asked(
        "--partitions",
        "2019-09-03",
        "--target",
        "raw/rejected_lines",
        "--accept",
        "a.jsonl",
        "--reason",
        " ",
        home=tmp_path,
    )
    assert isinstance(done.exception, UsageError)
    golden(done.exception.what, command="plan")
    assert not (tmp_path / "lake").exists()


def test_beside_a_delivery_that_cannot_be_used_any_file_may_be_accepted(
    tmp_path, two_files, golden
):
    (tmp_path / "landing" / "outage_events" / "2019-09-04.jsonl.gz").write_text("no gzip")
    done = asked(
        *two_files,
        "outage_events/2019-09-04b.jsonl",
        home=tmp_path,
        BACKFILL_LANDING=str(tmp_path / "landing"),
    )
    (plan,) = Plans(str(tmp_path / "lake")).ids()
    golden(done.stdout, command="plan", PLAN=plan)


def test_planning_twice_gives_one_plan_and_changes_nothing_else(tmp_path):
    ids = {
        json.loads(asked("--partitions", "last 10", "--json", home=tmp_path).stdout)["id"]
        for _ in range(2)
    }
    kept = [
        str(path.relative_to(tmp_path / "lake"))
        for path in (tmp_path / "lake").rglob("*")
        if path.is_file()
    ]
    assert kept == [f"_plans/{ids.pop()}.json"]
    assert not ids


def test_days_may_come_from_a_file(tmp_path):
    (tmp_path / "days.txt").write_text("2019-09-03\n2019-09-05..2019-09-06,\n\n")
    reasons = planned(
        "--partitions", str(tmp_path / "days.txt"), "--target", "raw/rejected_lines", home=tmp_path
    )
    assert list(reasons["raw/rejected_lines"]) == ["2019-09-03", "2019-09-05", "2019-09-06"]


def test_days_may_be_a_list_longer_than_a_files_name(tmp_path):
    days = [str(day) for day in between(date(2019, 8, 15), date(2019, 10, 13))]
    assert (
        list(planned("--partitions", ",".join(days), home=tmp_path)["raw/rejected_lines"]) == days
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_days_are_read_from_a_list_in_utf_8_with_its_mark_or_without(tmp_path, encoding):
    (listed := tmp_path / "days.txt").write_text("2019-09-03\n2019-09-04\n", encoding=encoding)
    done = asked("--partitions", str(listed), "--json", home=tmp_path)
    if encoding == "utf-16":
        assert isinstance(done.exception, UsageError)
        assert done.exception.what == f"{listed} is not UTF-8."
    else:
        assert list(json.loads(done.stdout)["plan"]["reasons"]["raw/rejected_lines"]) == [
            "2019-09-03",
            "2019-09-04",
        ]


def test_what_an_hour_costs_is_charged_for_what_is_known(tmp_path):
    arguments = ("--partitions", "2019-09-03", "--json")
    done = asked(*arguments, home=tmp_path, BACKFILL_PRICE_PER_HOUR="2")
    values = json.loads(done.stdout)
    assert (values["cost"], values["unknown"]) == (0.0, list(values["plan"]["reasons"]))


@pytest.mark.parametrize(
    ("arguments", "env", "code"),
    [
        ([], {}, 2),
        (["--partitions", "2018-01-01"], {}, 2),
        (["--partitions", "2019-10-14..2019-10-20"], {}, 2),
        (["--partitions", "2019-09-03", "--target", "raw/x"], {}, 2),
        (["--partitions", "2019-09-03", "--only", "late"], {}, 2),
        (["--partitions", "2019-09-03", "--budget", "soon"], {}, 2),
        (["--partitions", "2019-09-03", "--reason", "x" * 5001], {}, 2),
        (["--partitions", "2019-09-03", "--reason", "\udcff"], {}, 2),
        (["--partitions", "2019-09-03", "--spark-conf", "cores=4"], {}, 2),
        (["--partitions", "last 20"], {"BACKFILL_ASK_ABOVE_DAYS": "5"}, 4),
        (["--partitions", "2019-09-03"], {"BACKFILL_PROTECTED_DAYS": "2019-09-01..2019-09-09"}, 4),
        (["--partitions", "2019-09-03"], {"BACKFILL_PROTECTED_DAYS": "may"}, 2),
        (["--partitions", "2019-09-03"], {"BACKFILL_PROTECTED_DAYS": "last 7"}, 2),
    ],
    ids=[
        "no days",
        "a day outside the calendar",
        "nothing delivered",
        "an unknown table",
        "an unknown state",
        "no time",
        "a long reason",
        "no text",
        "no Spark setting",
        "many days",
        "a protected day",
        "no days to protect",
        "days to protect that move",
    ],
)
def test_what_cannot_be_planned_is_refused_and_nothing_is_kept(
    tmp_path, arguments, env, code, golden
):
    error = asked(*arguments, home=tmp_path, **env).exception
    assert isinstance(error, BackfillError)
    assert isinstance(error, RefusedByGuard if code == 4 else UsageError)
    assert exit_codes.of_error(error) == code
    golden(str(error), command="plan")
    assert not (tmp_path / "lake").exists()


def test_yes_says_that_many_days_are_meant(tmp_path):
    done = asked("--partitions", "last 20", "--yes", home=tmp_path, BACKFILL_ASK_ABOVE_DAYS="5")
    assert done.exit_code == 0, done.exception


RAW_LINES = ("--partitions", "2019-09-03", "--target", "raw/rejected_lines")


def test_what_a_plan_is_meant_to_change_is_kept_in_it(tmp_path):
    done = asked(*RAW_LINES, "--expect", "raw/rejected_lines: line, added", "--json", home=tmp_path)
    plan_id = json.loads(done.stdout)["id"]
    options = Plans(str(tmp_path / "lake")).read(plan_id).options
    assert options.expected == {"raw/rejected_lines": {"line", "added"}}


@pytest.mark.parametrize(
    ("expected", "tables"),
    [("nothing", "*"), ("raw/rejected_lines: nothing", "raw/rejected_lines")],
)
def test_a_plan_that_may_change_no_row_is_built_in_a_shadow(tmp_path, expected, tables):
    done = asked(*RAW_LINES, "--expect", expected, "--json", home=tmp_path)
    options = Plans(str(tmp_path / "lake")).read(json.loads(done.stdout)["id"]).options
    assert (options.expected, options.into) == ({tables: {"nothing"}}, "shadow")
    assert options.expected_of("raw/rejected_lines") == {"nothing"}


@pytest.mark.parametrize(
    "option",
    [
        ("--into", "live"),
        ("--write-mode", "merge"),
    ],
    ids=" ".join,
)
def test_a_plan_that_may_change_no_row_needs_a_shadow(tmp_path, option, golden):
    refused = asked(*RAW_LINES, "--expect", "nothing", *option, home=tmp_path).exception
    assert isinstance(refused, UsageError)
    golden(refused.what, command="plan")
    assert Plans(str(tmp_path / "lake")).ids() == []


@pytest.mark.parametrize(
    "expected",
    [
        "raw/outages: cause",
        "raw/rejected_lines: cents",
        "raw/rejected_lines",
        "raw/rejected_lines: nothing, line",
        "*: line",
    ],
)
def test_an_expected_change_of_an_unknown_table_or_column_is_refused(tmp_path, expected):
    refused = asked(*RAW_LINES, "--expect", expected, home=tmp_path).exception
    assert isinstance(refused, UsageError)
    assert refused.unchanged == "Nothing was planned."
    assert Plans(str(tmp_path / "lake")).ids() == []
