"""The days that an edit makes outdated, and what a canary of it changes."""

import shutil
from datetime import date
from pathlib import Path

import duckdb
import pytest

from backfill_assets.verbs.impact import ImpactReport, read_impact
from tests.worlds.shop import BUILT, CORRECTION, Shop
from tests.worlds.suite import connect

LAST = date(2024, 6, 5)


@pytest.fixture(scope="module")
def built(tmp_path_factory, spark) -> Shop:
    shop = Shop.at(tmp_path_factory.mktemp("shop"))
    shop.deliver()
    shop.build(spark)
    return shop


@pytest.fixture
def shop(built: Shop, tmp_path: Path) -> Shop:
    shutil.copytree(built.root, tmp_path / "shop")
    return Shop(tmp_path / "shop")


def impact(shop: Shop, base: str = "HEAD", canary: int = 0) -> ImpactReport:
    workspace = shop.workspace(spark_remote=connect())
    return read_impact(workspace, base, shop.folder, canary)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_corrected_helper_makes_the_built_days_of_its_tables_outdated(shop):
    shop.edit("prices.py", CORRECTION)
    report = impact(shop)
    assert report.impact.days == {"staging/sales": BUILT, "features/two_days": BUILT}
    assert report.impact.changes["staging/sales"]["code"] == "prices:as_cents"
    assert report.impact.changes.keys() == {"staging/sales"}
    assert report.impact.expected
    assert report.impact.expected.unknown == ()
    assert (report.edit.is_dirty, report.impact.earlier) == (True, 1)


def test_days_that_were_outdated_before_are_not_of_the_edit(shop):
    shop.edit("prices.py", CORRECTION)
    shop.commit("round")
    shop.edit("prices.py", ("as_cents(lines):", "as_cents(lines):\n    lines = lines.distinct()"))
    report = impact(shop)
    assert (report.impact.days, report.impact.earlier) == ({}, 9)
    assert impact(shop, "HEAD~1").impact.days.keys() == {"staging/sales", "features/two_days"}


ROUNDED = """
    SELECT count(*) FILTER (WHERE floor(euros * 100) <> round(euros * 100)), count(*)
    FROM read_json('{}/*.jsonl', filename = true, columns = {{shop: 'VARCHAR', euros: 'DOUBLE'}})
    WHERE filename LIKE '%-03.jsonl' OR filename LIKE '%-04.jsonl'
"""


def test_a_canary_shows_what_changes_and_leaves_the_lake_as_it_is(shop):
    shop.edit("prices.py", CORRECTION)
    before = files(shop.root / "home" / "lake")
    report = impact(shop, canary=2)
    with duckdb.connect() as database:
        folder = shop.root / "landing" / "sales"
        found = database.execute(ROUNDED.format(folder)).fetchone()
    assert found == (2, 4)
    assert report.compared == [
        ("staging/sales", "1: 2024-06-03", "4", "4", "0", "0", "2", "cents (2)")
    ]
    assert report.failed == []
    assert files(shop.root / "home" / "lake") == before
