"""A home that is not there: nothing that only reads makes one, and what reads the lake says that
there is none. No servers.
"""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from backfill_assets.cli import exit_codes
from backfill_assets.cli.app import app
from backfill_assets.cli.doctor import home as home_found
from backfill_assets.cli.doctor import lake as lake_found
from backfill_assets.errors import SettingsError
from backfill_assets.settings import read_settings
from tests.worlds.command_line import DAY, REJECTED, backfill, refused

pytestmark = pytest.mark.lake

READING = [
    ("status",),
    ("status", "--json"),
    ("status", "--why", REJECTED, str(DAY)),
    ("log",),
    ("reconcile",),
    ("list",),
    ("releases",),
    ("doctor",),
    ("down",),
]
REFUSED = [
    ("show",),
    ("watch",),
    ("export", REJECTED, "rows.csv"),
    ("sql", "SELECT 1"),
    ("plan", "--partitions", str(DAY), "--target", "raw/nosuch"),
]


@pytest.mark.parametrize("arguments", [*READING, *REFUSED], ids=" ".join)
def test_what_only_reads_makes_no_home_and_no_lake(tmp_path, arguments):
    done = backfill(*arguments, home=tmp_path / "at" / "home")
    assert isinstance(done.exception, SystemExit | None) or arguments in REFUSED, done.exception
    assert list(tmp_path.iterdir()) == []


def test_status_says_first_that_there_is_no_lake_and_where_it_looked(tmp_path, golden):
    first, *_ = backfill("status", home=tmp_path / "home").stdout.splitlines()
    golden(first, command="status")


def test_reconcile_without_servers_says_how_to_start_them(tmp_path, golden):
    env = {"BACKFILL_HOME": str(tmp_path), "BACKFILL_DAGSTER_URL": ""}
    said = CliRunner().invoke(app, ["reconcile"], env=env).stdout
    golden(said, command="reconcile")


def test_a_plan_that_is_kept_makes_a_home_that_others_cannot_read(tmp_path):
    home = tmp_path / "home"
    assert (
        backfill("plan", "--partitions", str(DAY), "--target", REJECTED, home=home).exit_code
        == exit_codes.DONE
    )
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "inside", ["", "folder"], ids=["the home is a file", "it would be in a file"]
)
def test_a_home_that_is_a_file_is_refused_by_every_verb_with_a_remedy_that_works(tmp_path, inside):
    (file := tmp_path / "file").write_text("mine")
    for verb in ("status", "list", "cancel"):
        code, said = refused(verb, home=file / inside)
        assert (code, said.startswith(f"The home {file / inside} ")) == (
            exit_codes.WRONG_USAGE,
            True,
        )
        assert f"Move {file} away" in said
    file.rename(tmp_path / "away")
    assert backfill("status", home=file / inside).exit_code == exit_codes.DONE


def test_the_doctor_says_of_a_home_that_is_not_there_whether_it_can_be_made(tmp_path, golden):
    settings = read_settings(home=tmp_path / "home")
    found = [
        home_found(settings),
        lake_found(settings),
        home_found(read_settings(home="/proc/home")),
    ]
    assert [each.level for each in found] == ["ok", "ok", "FAIL"]
    golden("\n".join(each.message for each in found), command="doctor")
    with pytest.raises(SettingsError, match="a file"):
        read_settings(home=_file(tmp_path))


def _file(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file"
