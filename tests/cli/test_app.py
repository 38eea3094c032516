"""The command line: what it costs to ask for help, what it prints and the codes it ends with."""

import json
import re
import socket
import subprocess
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pytest
from typer.main import get_command

from backfill_assets.cli import exit_codes
from backfill_assets.cli.app import app
from backfill_assets.cli.doctor import disks
from backfill_assets.errors import (
    NOTHING_CHANGED,
    Conflict,
    ServiceUnavailable,
    SettingsError,
    SourceError,
    UsageError,
)
from backfill_assets.settings import read_settings
from tests.worlds.command_line import backfill_main
from tests.worlds.suite import SAMPLE


def test_an_argument_that_is_not_utf_8_is_refused_before_anything_is_done(tmp_path, golden):
    done = backfill_main("rollback", "abc", "--reason", "\udcfc", home=tmp_path)
    assert done.returncode == 2
    golden(done.stderr, command="rollback")


def test_control_characters_in_names_and_messages_do_not_reach_the_terminal(tmp_path, golden):
    (folder := tmp_path / "landing" / "outage_events" / "2019-08-15").mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"outageNumber": ')
    (folder / "b\x1b]0;title\x07\x9b31m.jsonl").write_text('{"outageNumber": ')
    wrong = backfill_main("status", "--why", "raw/outage\x1b[31m", "2019-08-15", home=tmp_path)
    shown = backfill_main(
        "status",
        "--partitions",
        "2019-08-15",
        home=tmp_path,
        BACKFILL_LANDING=str(tmp_path / "landing"),
    )
    golden(shown.stdout, "shown", command="status")
    golden(wrong.stderr, "wrong", command="status")
    assert {"\x1b", "\x07", "\x9b"}.isdisjoint(shown.stdout + wrong.stderr)


@pytest.mark.servers
def test_help_loads_neither_dagster_nor_spark():
    script = (
        "import sys; sys.argv = ['backfill', '--help']\nfrom backfill_assets.cli.app import app,"
        " main\n"
    )
    script += "try:\n    main()\nexcept SystemExit:\n    pass\n"
    script += (
        "print(sorted({'dagster', 'pyspark', 'pandas', 'deltalake', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(UsageError("x"), 2, id="a wrong request is 2"),
        pytest.param(SettingsError("x"), 2, id="a wrong setting is 2"),
        pytest.param(ServiceUnavailable("x"), 3, id="a missing service is 3"),
        pytest.param(SourceError("x"), 1, id="a damaged delivery is 1"),
        pytest.param(Conflict("x"), 1, id="another writer is 1"),
    ],
)
def test_an_error_has_one_exit_code(error, code):
    assert exit_codes.of_error(error) == code


def test_an_unknown_verb_is_wrong_usage(tmp_path):
    assert backfill_main("rewind", home=tmp_path).returncode == 2


@pytest.mark.parametrize("arguments", [("-h",), ("status", "-h"), ("--version",)])
def test_help_and_version_are_printed_by_the_usual_letters(arguments, tmp_path):
    done = backfill_main(*arguments, home=tmp_path)
    assert done.returncode == 0
    assert (
        f"backfill-assets {version('backfill-assets')}" in done.stdout or "Usage: " in done.stdout
    )


def test_help_names_arguments_in_capitals_and_optional_ones_in_brackets():
    commands = cast(Any, get_command(app)).commands
    wrong = [
        (verb, argument.metavar)
        for verb, command in commands.items()
        for argument in command.params
        if argument.param_type_name == "argument"
        and not re.fullmatch("[A-Z|]+", argument.metavar or "")
    ]
    assert (wrong, len(commands) > 20) == ([], True)


def test_an_error_is_json_too_where_json_is_asked_for(tmp_path):
    done = backfill_main("status", "--target", "raw/lines", "--json", home=tmp_path)
    error = json.loads(done.stdout)
    assert (done.returncode, error["exit_code"]) == (2, 2)
    assert done.stderr == f"backfill: {error['error']}\n"
    assert "raw/lines" in error["what"]
    assert {"unchanged", "next_step"} <= error.keys()


def test_a_lake_that_cannot_be_written_is_said_with_its_place_and_no_stack_trace(tmp_path, golden):
    last = {"BACKFILL_LANDING": str(SAMPLE), "BACKFILL_LAST_DAY": "2019-08-15"}
    done = backfill_main(
        "plan", "--partitions", "2019-08-15", home=tmp_path, BACKFILL_LAKE="/proc/lake", **last
    )
    assert (done.returncode, done.stdout) == (3, "")
    golden(done.stderr, command="plan")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        pytest.param(["status", "--jso"], "No such option: --jso", id="an option"),
        pytest.param(["nonsense"], "No such command 'nonsense'", id="a command"),
        pytest.param(
            ["plan", "--days-per-run", "abc"], "Invalid value for '--days-per-run'", id="a number"
        ),
    ],
)
def test_wrong_arguments_are_an_error_like_all_others(tmp_path, typed, said):
    done = backfill_main(*typed, "--json", home=tmp_path)
    error = json.loads(done.stdout)
    assert (done.returncode, error["exit_code"], error["error"].startswith(said)) == (2, 2, True)
    assert error["unchanged"] == NOTHING_CHANGED
    assert error["error"] == f"{error['what']} {error['unchanged']} {error['next_step']}"
    assert done.stderr == f"backfill: {error['error']}\n"
    assert backfill_main(*typed, home=tmp_path).stderr == done.stderr
    (advised,) = re.findall("`backfill (.+)`", error["next_step"])
    assert advised.split()[0] in (typed[0], "-h")
    assert "Usage: " in backfill_main(*advised.split(), home=tmp_path).stdout


@pytest.mark.services
def test_a_store_that_does_not_answer_is_said_in_one_line_and_as_json(tmp_path, golden):
    away = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_MAX_RETRIES": "0",
    }
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-west-1"}
    done = backfill_main(
        "list", "--json", home=tmp_path, BACKFILL_LAKE="s3://bucket/lake", **away, **keys
    )
    said = json.loads(done.stdout)["error"]
    assert (done.returncode, done.stderr) == (3, f"backfill: {said}\n")
    # The remedy is that of a store, and not that of a full disk.
    golden(said, command="list")


def test_a_misspelt_setting_is_wrong_usage(tmp_path):
    done = backfill_main("status", home=tmp_path, BACKFILL_FISRT_DAY="2019-08-15")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("backfill: BACKFILL_FISRT_DAY ")


def test_where_no_servers_run_none_are_stopped(tmp_path, golden):
    done = backfill_main("down", home=tmp_path)
    assert done.returncode == 0
    golden(done.stdout, command="down")


def test_a_taken_port_is_said_with_the_remedy(tmp_path):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = backfill_main("up", "--port", str(port), home=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"backfill: Port {port} is taken. ")
    assert "--port " in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "typed",
    [
        pytest.param("--path-prefix dagster", id="a prefix without a slash"),
        pytest.param("--path-prefix /dagster/", id="a prefix that ends with a slash"),
        pytest.param("--only code --path-prefix /dagster", id="a prefix of no pages"),
        pytest.param("--only daemon --host 0.0.0.0", id="a host of the daemon"),
    ],
)
def test_options_that_a_server_does_not_have_start_nothing(tmp_path, typed):
    done = backfill_main("up", *typed.split(), home=tmp_path / "home")
    assert (done.returncode, (tmp_path / "home").exists()) == (2, False)


@pytest.mark.parametrize(
    "days",
    [
        pytest.param("2019-08-20..2019-08-15", id="a reversed range"),
        pytest.param(
            "2018-01-01..2018-01-02",
            id="days the sample has not",
        ),
        pytest.param("yesterday", id="no day at all"),
    ],
)
def test_a_demo_of_days_that_cannot_be_starts_nothing(tmp_path, days, golden):
    done = backfill_main("demo", "--exit", "--partitions", days, home=tmp_path / "home")
    assert (done.returncode, (tmp_path / "home").exists()) == (2, False)
    golden(done.stderr, command="demo")


def test_a_demo_never_writes_over_a_delivery(tmp_path):
    mine = (
        tmp_path
        / "landing"
        / "outage_events"
        / "year=2019"
        / "month=09"
        / "day=05"
        / "events.jsonl.gz"
    )
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    done = backfill_main(
        "demo", "--exit", home=tmp_path / "home", BACKFILL_LANDING=str(tmp_path / "landing")
    )
    assert (done.returncode, mine.read_bytes()) == (2, b"mine")
    assert "holds 1 other file(s)" in done.stderr
    assert [path for path in (tmp_path / "landing").rglob("*") if path.is_file()] == [mine]


def findings(home: Path, **settings: str) -> Any:
    """Return what the doctor finds. It fails if a finding is a failure."""
    done = backfill_main("doctor", "--json", home=home, **settings)
    found = json.loads(done.stdout)
    assert done.returncode == any(finding["level"] == "FAIL" for finding in found)
    return found


def test_the_doctor_names_a_wrong_setting_and_fails(tmp_path):
    (finding,) = findings(tmp_path, BACKFILL_DAYS_PER_RUN="0")
    assert (finding["level"], finding["what"]) == ("FAIL", "settings")
    assert finding["message"].startswith("BACKFILL_DAYS_PER_RUN='0' ")


def test_the_doctor_checks_everything_and_exits_with_0_if_nothing_fails(tmp_path):
    done = backfill_main("doctor", home=tmp_path, BACKFILL_DAGSTER_URL="http://127.0.0.1:9")
    levels = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}
    assert list(levels) == [
        "settings",
        "home",
        "calendar",
        "java",
        "jars",
        "disk",
        "memory",
        "lake",
        "backup",
        "alerts",
        "landing",
        "servers",
    ]
    assert (done.returncode, levels["lake"], levels["landing"], levels["servers"]) == (
        0,
        "ok",
        "warn",
        "ok",
    )


def test_the_doctor_names_a_home_that_others_can_read_with_the_remedy(tmp_path):
    (tmp_path / "home").mkdir(mode=0o755)
    home = tmp_path / "home"

    def finding() -> tuple[str, str]:
        (found,) = [found for found in findings(home) if found["what"] == "home"]
        return found["level"], found["remedy"]

    assert finding() == ("warn", f"chmod 700 {home}")
    home.chmod(0o700)
    assert finding() == ("ok", "")


def test_the_doctor_prints_a_line_for_each_finding(tmp_path):
    done = backfill_main("doctor", home=tmp_path, BACKFILL_DAYS_PER_RUN="0")
    assert (done.returncode, done.stdout.split()[:2]) == (1, ["FAIL", "settings"])
    assert "Remedy: " in done.stdout


def test_the_doctor_names_a_missing_java_with_the_remedy(tmp_path):
    found = {found["what"]: found for found in findings(tmp_path, JAVA_HOME=str(tmp_path))}
    assert (found["java"]["level"], "Java 17" in found["java"]["remedy"]) == ("FAIL", True)


def test_the_doctor_looks_at_the_disk_of_a_lake_that_is_on_another_one(tmp_path, golden):
    (same,) = disks(read_settings(home=tmp_path))
    assert same.message.endswith(f" free at {tmp_path}")
    # Never on the disk of anything, and without room.
    home, lake = disks(read_settings(home=tmp_path, lake="/proc/lake"))
    assert (home.level, home.what, home.remedy) == (same.level, same.what, same.remedy)
    assert home.message.endswith(f" free at {tmp_path}")
    assert lake.level == "FAIL"
    golden(f"{lake.message}\n{lake.remedy}", command="doctor")
