"""`backfill releases`, `release`, `export`, and the line of `status` on live that is not released.
No server, no Spark.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from backfill_assets.cli import exit_codes
from backfill_assets.cli.app import app
from backfill_assets.errors import RefusedByGuard, ServiceUnavailable, TableUnreadable, UsageError
from backfill_assets.lake.channels import CANDIDATE, STABLE, ChannelHistory, Pointer
from backfill_assets.lake.releases import TableVersion
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.reading import read
from backfill_assets.verbs.export import write
from tests.worlds.command_line import without_now
from tests.worlds.deliveries import day
from tests.worlds.recorded import BuiltLake, channel_numbers, move_pointer, retire

A = "raw/rejected_lines"
B = "raw/outage_events"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch) -> BuiltLake:
    """Three days of two of the bundled tables; the first release has two of the first's and none of
    the second's.
    """
    monkeypatch.setenv("BACKFILL_HOME", str(tmp_path))
    monkeypatch.setenv("BACKFILL_LAST_DAY", str(day(2)))
    monkeypatch.chdir(tmp_path)
    lake = BuiltLake(tmp_path / "lake")
    lake.build(A, 0, 1)
    assert backfill("release", "--reason", "to begin").exit_code == 0
    lake.build(A, 1, 2, rows=3)
    lake.build(B, 0)
    return lake


def backfill(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def values(*arguments: str) -> Any:
    done = backfill(*arguments, "--json")
    values = json.loads(done.stdout)
    assert (done.exit_code, values.pop("exit_code")) == (0, 0), done
    return values


def test_a_lake_without_releases_says_how_one_is_made(tmp_path, monkeypatch, golden):
    monkeypatch.setenv("BACKFILL_HOME", str(tmp_path))
    golden(backfill("releases").stdout, command="releases")
    nothing: dict[str, list[Any]] = {"releases": [], "changes": [], "not_following": []}
    assert values("releases") == nothing
    assert values("release", "--reason", "x") == {"released": False, "release": None, "despite": []}
    assert isinstance(backfill("releases", "1").exception, UsageError)


def test_releases_are_listed_newest_first_with_the_channels_that_point_at_them_now(lake, golden):
    assert values("release", "--reason", "all of it")["release"]["channels"] == ["stable"]
    move_pointer(str(lake.root), CANDIDATE, Pointer(1), "to compare")
    printed = backfill("releases").stdout
    golden(without_now(printed.splitlines()[-1]), command="releases")
    lines = [line.split("│")[1:-1] for line in printed.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line] for line in lines]
    assert [(c[0], c[2], c[4], c[5], c[6]) for c in cells] == [
        ("", "channel", "", "", "to compare"),
        ("2", "live", "stable", "2 of 2", "all of it"),
        ("1", "live", "candidate", "1 of 1", "to begin"),
    ]
    listed = values("releases")["releases"]
    changed = [(each["release"], sorted(each["changed_tables"])) for each in listed]
    assert changed == [(1, [A]), (2, [B, A])]
    (change,) = values("releases")["changes"]
    assert (change["kind"], change["reason"]) == ("channel", "to compare")


def test_one_release_is_shown_with_its_tables_and_as_json_in_snake_case(lake, golden):
    backfill("release", "--reason", "all of it")
    shown = backfill("releases", "2").stdout
    value = values("releases", "2")
    golden(without_now(shown), command="releases")
    assert list(value) == [
        "release",
        "at",
        "who",
        "reason",
        "kind",
        "channels",
        "retired",
        "tables",
        "switches",
        "changed_tables",
    ]
    ids = {name: str(DeltaTable(str(lake.root / name)).metadata().id) for name in (A, B)}
    assert value["tables"] == {
        A: {"path": A, "version": 1, "id": ids[A]},
        B: {"path": B, "version": 0, "id": ids[B]},
    }
    assert (value["channels"], value["retired"], sorted(value["changed_tables"])) == (
        ["stable"],
        None,
        [B, A],
    )


def test_a_retired_release_stays_in_the_list_and_says_since_when(lake, golden):
    backfill("release", "--reason", "all of it")
    retire(str(lake.root), [1], day(3))
    golden(without_now(backfill("releases", "1").stdout), command="releases")
    assert [value["retired"] for value in values("releases")["releases"]] == [
        str(day(3)),
        None,
    ]


def test_live_that_is_not_released_is_a_line_of_status_until_a_person_releases_it(lake, golden):
    lake.fail(A, 0)
    assert values("status")["not_released"] == []
    lake.rewrite(A, 1)
    golden(backfill("status").stdout.splitlines()[-1], command="status")
    (reason,) = values("status")["not_released"]
    assert (reason["cause"], reason["table"], reason["days"]) == (
        "not as it was built",
        A,
        [str(day(1))],
    )
    released = values("release", "--reason", "the report is due")
    assert released["despite"] == [reason]
    assert values("status")["not_released"] == []
    again = values("release", "--reason", "again")
    assert (again["released"], again["release"]["release"]) == (False, 2)


def test_live_that_a_plan_holds_open_is_a_line_of_status(lake):
    plan = lake.start_plan(B, [1])
    (reason,) = values("status")["not_released"]
    assert (reason["cause"], f"`backfill watch {plan}`" in reason["why"]) == ("open plan", True)
    assert "`backfill release" not in backfill("status").stdout


def test_nobody_releases_while_a_step_is_running(lake):
    with mark_running(str(lake.root), RunningStep(B, [day(1)], "run-7")):
        refused = backfill("release", "--reason", "now").exception
    assert isinstance(refused, RefusedByGuard)
    assert f"{B} {day(1)}: run run-7" in refused.what
    assert len(lake.releases.all()) == 1


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_released_table_is_exported_whole_or_by_days_and_channels(lake, ending, tmp_path):
    first = lake.releases.newest()
    tables = {A: TableVersion(A, 1)}
    lake.releases.add(first, tables, kind="publish", who="", reason="")
    move_pointer(str(lake.root), STABLE, Pointer(1))
    move_pointer(str(lake.root), CANDIDATE, Pointer(2))
    name = f"rows.{ending}"
    for options, expected in (
        ((), [day(0), day(1)]),
        (("--release", "2"), [day(0), *[day(1)] * 3, *[day(2)] * 3]),
        (("--channel", "candidate", "--partitions", "last 1"), [day(2)] * 3),
        (("--partitions", f"{day(2)}"), []),
    ):
        value = values("export", A, name, "--overwrite", *options)
        assert (value["file"], value["rows"], value["table"]) == (name, len(expected), A)
        table = pq.read_table(name) if ending == "parquet" else csv.read_csv(name)
        assert table.column_names == ["outage_day", "n"]
        assert [str(at) for at in table["outage_day"].to_pylist()] == [str(at) for at in expected]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            (A, "rows.txt"),
            id="another ending",
        ),
        pytest.param(
            (A, "there.csv"),
            id="it is there",
        ),
        pytest.param((A, "no/rows.csv"), id="no folder"),
        pytest.param((B, "rows.csv"), id="a table not yet released"),
        pytest.param((A, "rows.csv", "--release", "7"), id="no release"),
        pytest.param((A, "rows.csv", "--channel", "beta"), id="no channel"),
        pytest.param(
            (A, "rows.csv", "--release", "1", "--channel", "candidate"),
            id="both",
        ),
        pytest.param((A, "rows.csv", "--partitions", "2001-01-01"), id="days outside"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_nothing_is_written(
    lake, arguments, tmp_path, golden
):
    Path("there.csv").write_text("mine")
    refused = backfill("export", *arguments)
    assert isinstance(refused.exception, UsageError)
    golden(str(refused.exception), command="export")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["there.csv"]
    assert Path("there.csv").read_text() == "mine"


def test_the_table_of_an_export_may_be_named_by_its_option(lake):
    by_option = values("export", "--target", A, "rows.csv", "--overwrite")
    assert by_option == values("export", A, "rows.csv", "--overwrite")
    for words in (("--target", A), (A,), ("--target", A, A, "rows.csv")):
        assert backfill("export", *words).exit_code != 0


def test_a_file_that_cannot_be_written_to_its_end_leaves_what_was_there(lake, tmp_path):
    def torn():
        yield from read(A).to_batches()
        raise OSError(28, "No space left on device")

    file = tmp_path / "rows.csv"
    file.write_text("before")
    with pytest.raises(OSError, match="28"):
        write(read(A).schema, torn(), file, overwrite=True)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["rows.csv"]
    assert file.read_text() == "before"


def test_a_version_that_was_vacuumed_is_said_by_an_export_too(lake):
    DeltaTable(str(lake.root / A)).vacuum(0, enforce_retention_duration=False, dry_run=False)
    refused = backfill("export", A, "rows.csv").exception
    assert isinstance(refused, TableUnreadable)
    assert "which release 1 has" in refused.what
    assert values("export", A, "rows.csv", "--partitions", str(day(0)))["rows"] == 1


@pytest.mark.parametrize(
    ("folder", "arguments"),
    [
        ("_releases", ("release", "--reason", "now")),
        ("_channels", ("rollback", "--yes", "--release", "1")),
        ("_channels", ("switch", A, "--to", B, "--allow-breaking")),
    ],
    ids=["a release", "back to a release", "a switch"],
)
def test_nothing_is_released_on_a_read_only_lake(lake, folder, arguments, nobody, capfd):
    lake.releases.add(
        lake.releases.newest(),
        {A: TableVersion(A, 1), B: TableVersion(B, 0)},
        kind="live",
        who="",
        reason="",
    )
    with nobody(lake.root):
        refused = backfill(*arguments).exception
    assert isinstance(refused, ServiceUnavailable)
    assert f"{lake.root}/{folder}" in refused.what
    assert (capfd.readouterr().err, len(lake.releases.all())) == ("", 2)


def test_readers_are_pinned_to_a_release_until_they_follow_again(lake, golden):
    backfill("release", "--reason", "all of it")
    pointed = values("rollback", "--yes", "--release", "1", "--reason", "wrong rows")
    assert pointed == {"channels": {"stable": 1}}
    assert (
        read(A).count_rows() == read(A, release=1).count_rows() != read(A, release=2).count_rows()
    )
    assert values("rollback", "--yes", "--release", "1") == pointed
    change = ChannelHistory(str(lake.root)).now()
    assert (change.number, change.kind, change.reason, change.numbers(2)) == (
        1,
        "channel",
        "wrong rows",
        {"stable": 1},
    )
    lake.build(B, 1)
    assert values("release", "--reason", "due")["released"]
    assert read(A).count_rows() == read(A, release=1).count_rows()
    (line,) = values("status")["not_following"]
    golden(without_now(line), command="status")
    assert line in backfill("status").stdout.replace("\n", " ")
    assert values("release", "--follow") == {"channels": {"stable": 3}}
    assert read(B).count_rows() == 2
    assert values("status")["not_following"] == []
    assert values("release", "--follow") == {"channels": {"stable": 3}}


def test_readers_are_pinned_only_after_a_yes(lake):
    backfill("release", "--reason", "all of it")
    refused = backfill("rollback", "--release", "1").exception
    assert isinstance(refused, RefusedByGuard)
    assert "--yes" in refused.next_step
    assert ChannelHistory(str(lake.root)).now().pinned("stable") == 0
    backfill("rollback", "--release", "1", "--yes")
    # They are pinned to it already: there is nothing to ask.
    assert values("rollback", "--release", "1")["channels"] == {"stable": 1}


def test_a_rollback_gives_no_reader_a_release_that_they_never_had(lake):
    backfill("rollback", "--yes", "--release", "1")
    backfill("release", "--reason", "all of it")
    refused = backfill("rollback", "--yes", "--release", "2").exception
    assert isinstance(refused, RefusedByGuard)
    assert "`backfill release --follow`" in refused.next_step
    assert channel_numbers(str(lake.root)) == {"stable": 1}
    assert values("release", "--follow")["channels"] == {"stable": 2}
    assert values("rollback", "--yes", "--release", "1")["channels"] == {"stable": 1}
    assert values("rollback", "--yes", "--release", "2")["channels"] == {"stable": 2}


@pytest.mark.parametrize(
    "arguments", [(), ("--reason", "due", "--channel", "candidate")], ids=["no reason", "a channel"]
)
def test_live_is_released_to_all_readers_with_a_reason(lake, arguments):
    assert backfill("release", *arguments).exit_code == exit_codes.WRONG_USAGE
    assert len(lake.releases.all()) == 1


def test_a_release_that_is_not_there_is_refused_and_readers_stay(lake, golden):
    done = backfill("rollback", "--yes", "--release", "9")
    assert isinstance(done.exception, UsageError)
    golden(str(done.exception), command="rollback")
    assert backfill("rollback", "a plan", "--release", "1").exit_code == 2
    assert channel_numbers(str(lake.root)) == {"stable": 1}
