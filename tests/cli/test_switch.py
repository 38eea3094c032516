"""`backfill switch` and `backfill diff TABLE TABLE` on two versions of a feature table. No server,
no Spark.
"""

import json
from pathlib import Path

import pytest

from backfill_assets.cli import exit_codes
from backfill_assets.reading import read
from tests.worlds.command_line import backfill, refused, values_of, without_now
from tests.worlds.small_lake import DAYS, SmallLake

DAILY = "features/region_daily"
V2 = "features/region_daily_v2"
D0, D1, _, _ = DAYS


@pytest.fixture
def home(tmp_path: Path, monkeypatch) -> Path:
    """Two days of both tables, released."""
    monkeypatch.setenv("BACKFILL_HOME", str(tmp_path))
    lake = SmallLake(tmp_path / "lake", "outage_day")
    lake.write({D0: 1, D1: 2}, table=DAILY)
    lake.write({D0: 1, D1: 3}, table=V2)
    assert backfill("release", "--reason", "to begin", home=tmp_path).exit_code == 0
    return tmp_path


def rows(name: str, channel: str = "stable") -> list[int]:
    return sorted(read(name, channel=channel).to_table()["n"].to_pylist())


def test_readers_of_a_channel_get_the_other_table_and_back(home, golden):
    done = backfill(
        "switch", DAILY, "--to", V2, "--channel", "candidate", "--reason", "new logic", home=home
    )
    golden(done.stdout, command="switch")
    assert (rows(DAILY), rows(DAILY, "candidate")) == ([1, 2, 2], [1, 3, 3, 3])
    back = backfill("switch", DAILY, "--to", DAILY, "--channel", "candidate", "--json", home=home)
    assert json.loads(back.stdout) == {
        "table": DAILY,
        "to": DAILY,
        "channel": "candidate",
        "switched": True,
        "exit_code": 0,
    }
    assert rows(DAILY, "candidate") == [1, 2, 2]
    again = backfill("switch", DAILY, "--to", DAILY, "--json", home=home)
    assert json.loads(again.stdout)["switched"] is False


def test_a_release_shows_which_table_readers_get_under_a_name(home, golden):
    backfill("switch", DAILY, "--to", V2, "--reason", "new logic", home=home)
    (change,) = values_of("releases", home=home)["changes"]
    assert (change["kind"], change["reason"]) == ("switch", "new logic")
    SmallLake(home / "lake", "outage_day").write({DAYS[2]: 5}, table=V2)
    backfill("release", "--reason", "a day more", home=home)
    shown = without_now(backfill("releases", "2", home=home).stdout)
    golden(shown, command="releases")
    assert values_of("releases", "2", home=home)["switches"] == {DAILY: V2}


def test_a_switch_that_loses_columns_is_refused_with_exit_code_4_unless_allowed(home):
    SmallLake(home / "lake", "outage_day").write({DAYS[2]: 5}, table=DAILY)
    backfill("release", "--reason", "a day more", home=home)
    code, message = refused("switch", DAILY, "--to", V2, home=home)
    assert code == exit_codes.STOPPED
    assert str(DAYS[2]) in message
    assert backfill("switch", DAILY, "--to", V2, "--allow-breaking", home=home).exit_code == 0


def test_diff_compares_two_tables_of_live_and_of_two_releases(home):
    def figures(*arguments: str) -> tuple[str, str, dict[str, tuple[int, int]]]:
        diff = values_of("diff", *arguments, home=home)
        (table,) = diff["tables"]
        days = {
            day["day"]: (day["removed"], day["added"])
            for day in table["days"]
            if day["removed"] or day["added"]
        }
        return diff["before"], diff["after"], days

    # The rows of the first day are the same; of the second, two were taken away and three others
    # added.
    assert figures(DAILY, V2) == (DAILY, V2, {str(D1): (2, 3)})
    assert figures(DAILY, V2, "--partitions", str(D0))[2] == {}
    backfill("switch", DAILY, "--to", V2, home=home)
    SmallLake(home / "lake", "outage_day").write({DAYS[2]: 5}, table=DAILY)
    backfill("release", "--reason", "with the switch", home=home)
    assert figures("1", "2", "--target", DAILY) == ("release 1", "release 2", {str(D1): (2, 3)})


@pytest.mark.parametrize(
    "arguments",
    [
        (DAILY, "features/region_history"),
        (DAILY, "features/region_daly"),
        (DAILY, V2, "--target", V2),
    ],
    ids=" ".join,
)
def test_tables_that_cannot_be_compared_are_refused(home, arguments, golden):
    code, said = refused("diff", *arguments, home=home)
    assert code == exit_codes.WRONG_USAGE
    golden(said, command="diff")
