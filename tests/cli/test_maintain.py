"""`backfill maintain` without servers: what it prints, exits with and does, and that the dry run does nothing."""

import json

import pytest

from backfill_assets.cli import exit_codes
from backfill_assets.errors import UsageError
from tests.cli.test_run import REJECTED, backfill
from tests.deliveries import day
from tests.lake.maintained import age, contents, on_disk
from tests.publish.site import Site


@pytest.fixture
def site(tmp_path) -> Site:
    """A day of a bundled table, written three times, forty days ago."""
    site = Site(tmp_path / "lake", "arrival_day")
    for value in range(1, 4):
        site.write({day(0): value}, table=REJECTED)
    age(site, 40)
    return site


def test_without_apply_it_says_what_would_be_done_and_changes_nothing(site, tmp_path):
    before = contents(site.root)
    done = backfill("maintain", home=tmp_path)
    assert (done.exit_code, contents(site.root)) == (exit_codes.DONE, before)
    assert f"│ {REJECTED} " in done.stdout
    assert "2 file(s), 0.0 MB to be removed" in " ".join(done.stdout.split())
    assert done.stdout.endswith("Nothing was changed. `backfill maintain --apply` does it.\n")


def test_with_apply_the_files_are_gone_and_json_names_them(site, tmp_path):
    before, newest = on_disk(site, REJECTED), site.files(REJECTED)[day(0)]
    done = backfill("maintain", "--apply", "--json", home=tmp_path)
    values = json.loads(done.stdout)
    table = values["tables"][REJECTED]
    assert (done.exit_code, values["exit_code"], values["applied"], values["problems"]) == (0, 0, True, [])
    assert (set(table["removed_files"]), table["kept_files"]) == (before - newest, {"newest": 1})
    assert (on_disk(site, REJECTED), site.values(REJECTED)) == (newest, {day(0): 3})
    said = backfill("maintain", "--apply", "--table", REJECTED, home=tmp_path).stdout
    assert "0 release(s) retired, 0 day(s) compacted, 0 file(s), 0.0 MB removed." in " ".join(said.split())


def test_the_window_is_a_setting(site, tmp_path, monkeypatch):
    monkeypatch.setenv("BACKFILL_ROLLBACK_DAYS", "41")
    values = json.loads(backfill("maintain", "--json", home=tmp_path).stdout)
    assert (values["rollback_days"], values["tables"][REJECTED]["kept_files"]) == (41, {"newest": 1, "window": 2})
    assert backfill("maintain", home=tmp_path).stdout.endswith("Nothing was changed. There is nothing to do.\n")


def test_a_table_that_cannot_be_read_makes_it_partial_and_an_unknown_one_is_a_wrong_request(site, tmp_path):
    (site.root / REJECTED / "_delta_log" / f"{1:020}.json").write_text("{")
    done = backfill("maintain", home=tmp_path)
    assert done.exit_code == exit_codes.PARTIAL
    assert f"Not done: {REJECTED}: The Delta table " in " ".join(done.stdout.split())
    unknown = backfill("maintain", "--table", "raw/x", home=tmp_path).exception
    assert isinstance(unknown, UsageError)
    assert str(unknown).startswith("There is no table raw/x in this lake. Nothing was done.")
