"""`backfill blame` as people and programs get it, on a lake of hand-written rows. No Spark."""

from pathlib import Path

import pytest

from backfill_assets.datasets.outages.staging import outages
from backfill_assets.errors import UsageError
from tests.worlds.command_line import backfill, values_of
from tests.worlds.keyed_lake import KeyedLake
from tests.worlds.small_lake import DAYS, timeless

DAY = DAYS[1]
TABLE = outages.name


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A day that was built, corrected by a plan, and changed by another program."""
    lake = KeyedLake(tmp_path / "lake", (outages,))
    code = {"code_version": "3f2a"}

    def rows(customers: int, *numbers: str) -> list[dict[str, object]]:
        return [{"outage_number": n, "customers": customers, "region": "Kern"} for n in numbers]

    lake.write(outages, DAY, rows(12, "1", "2"), run="run-1", **code)
    asked = {"plan": "ebb0d924512e", "who": "ada", "reason": "meters [sic] mended"}
    lake.write(outages, DAY, rows(13, "1"), run="run-2", **code, **asked)
    lake.write_as_others(outages, DAY, rows(14, "1"))
    return tmp_path


@pytest.mark.parametrize(
    "asked",
    [[], ["--key", "outage_number=1"], ["--key", "outage_number=2"]],
    ids=["a day", "a row", "a removed row"],
)
def test_the_commits_are_printed_newest_first(home, asked, golden):
    done = backfill("blame", TABLE, str(DAY), *asked, home=home)
    assert done.exit_code == 0
    golden(timeless(done.stdout), command="blame")


def test_programs_get_the_builds_and_the_rows(home):
    (row,) = values_of("blame", TABLE, str(DAY), "--key", "outage_number=1", home=home)["rows"]
    assert row["key"] == {"outage_day": str(DAY), "outage_number": "1"}
    of_others, corrected, first = row["versions"]
    assert isinstance(of_others["by"], str)
    assert (corrected["by"]["plan"], corrected["by"]["who"]) == ("ebb0d924512e", "ada")
    assert [row["customers"] for version in row["versions"] for row in version["rows"]] == [
        14,
        13,
        12,
    ]
    assert first["release"] is None


def test_options_may_be_repeated(home):
    typed = ["--key", f"outage_day={DAY}", "--key", "outage_number=1", "--column", "customers"]
    (row,) = values_of("blame", TABLE, str(DAY), *typed, home=home)["rows"]
    assert row["versions"][0]["rows"] == [
        {"outage_day": str(DAY), "outage_number": "1", "customers": 14}
    ]


@pytest.mark.parametrize("named", [["staging/outage", str(DAY)], [TABLE, "2019-08-15..2019-08-16"]])
def test_one_day_of_one_table_is_needed(home, named):
    assert isinstance(backfill("blame", *named, home=home).exception, UsageError)


def test_nothing_in_the_lake_changes(home):
    before = {path: path.stat().st_mtime_ns for path in (home / "lake").rglob("*")}
    backfill("blame", TABLE, str(DAY), "--key", "outage_number=1", home=home)
    assert {path: path.stat().st_mtime_ns for path in (home / "lake").rglob("*")} == before
