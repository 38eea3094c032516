"""The days that an edit makes outdated, and what a canary of it changes."""

from dataclasses import replace
from datetime import date

import duckdb
import pytest

from backfill_assets.errors import TableUnreadable
from backfill_assets.impact.canary import build_canary
from backfill_assets.tables.declaration import Table
from backfill_assets.verbs.impact import ImpactReport, read_impact
from tests.worlds.keyed_lake import KeyedLake
from tests.worlds.newer_lake import contents_of, mark_newer
from tests.worlds.shop import BUILT, CORRECTION, Shop
from tests.worlds.small_lake import DAYS
from tests.worlds.suite import connect
from tests.worlds.weather import area_of, service

# The shop's days are built by Spark.
pytestmark = pytest.mark.long
LAST = date(2024, 6, 5)


def impact(shop: Shop, base: str = "HEAD", canary: int = 0) -> ImpactReport:
    workspace = shop.workspace(spark_remote=connect())
    return read_impact(workspace, base, shop.folder, canary)


def test_a_corrected_helper_makes_the_built_days_of_its_tables_outdated(shop):
    shop.edit("prices.py", CORRECTION)
    report = impact(shop)
    assert report.impact.days == {"staging/sales": BUILT, "features/two_days": BUILT}
    assert report.impact.changes["staging/sales"]["code"] == "prices:as_cents"
    assert report.impact.changes.keys() == {"staging/sales"}
    assert report.impact.expected
    assert report.impact.expected.unknown == ()
    assert (report.is_dirty, report.impact.earlier) == (True, 0)


def test_days_that_were_outdated_before_are_not_of_the_edit(shop):
    shop.edit("prices.py", CORRECTION)
    shop.commit("round")
    shop.edit("prices.py", ("as_cents(lines):", "as_cents(lines):\n    lines = lines.distinct()"))
    report = impact(shop)
    assert (report.impact.days, report.impact.earlier) == ({}, 8)
    assert impact(shop, "HEAD~1").impact.days.keys() == {"staging/sales", "features/two_days"}


ROUNDED = """
    SELECT count(*) FILTER (WHERE floor(euros * 100) <> round(euros * 100)), count(*)
    FROM read_json('{}/*.jsonl', filename = true, columns = {{shop: 'VARCHAR', euros: 'DOUBLE'}})
    WHERE filename LIKE '%-03.jsonl' OR filename LIKE '%-04.jsonl'
"""


def test_a_canary_shows_what_changes_and_leaves_the_lake_as_it_is(shop):
    shop.edit("prices.py", CORRECTION)
    before = contents_of(shop.root / "home" / "lake")
    report = impact(shop, canary=2)
    with duckdb.connect() as database:
        folder = shop.root / "landing" / "sales"
        found = database.execute(ROUNDED.format(folder)).fetchone()
    assert found == (2, 4)
    assert report.compared == [
        ("staging/sales", "1: 2024-06-03", "4", "4", "0", "0", "2", "cents (2)")
    ]
    assert report.failed == []
    assert contents_of(shop.root / "home" / "lake") == before


def test_a_canary_names_the_days_that_edited_rules_would_refuse(shop):
    shop.edit(
        "tables.py",
        ("from backfill_assets import", "from backfill_assets import rules,"),
        (
            '"shop"], reads={"lines"',
            '"shop"], rules=[rules.rows_between(at_least=3)], reads={"lines"',
        ),
    )
    report = impact(shop, canary=2)
    assert report.impact.days == {}
    assert [row[:2] for row in report.failed] == [
        ("staging/sales", "2024-06-03"),
        ("staging/sales", "2024-06-04"),
    ]
    assert "rows_between" in report.failed[0][2]
    assert report.compared == []


def test_a_canary_names_the_error_of_edited_code_that_cannot_run(shop):
    shop.edit("prices.py", ('lines.select("day", shop', 'lines.select("gone", shop'))
    report = impact(shop, canary=1)
    assert [row[:2] for row in report.failed] == [("staging/sales", "2024-06-04")]
    assert "gone" in report.failed[0][2]


def test_first_days_of_a_new_table_and_days_that_read_them_need_a_build(shop):
    """The table of two days reads the new table, which is delivered for all five days."""
    shop.edit(
        "tables.py",
        (
            '@table(\n    "features/two_days"',
            "@table(\n"
            '    "staging/copies", partition_by="day", key=["day", "shop"],\n'
            '    columns="day DATE, shop STRING, cents BIGINT", reads={"sales": same_day(sales)},\n'
            ")\ndef copies(sales):\n    return sales\n\n"
            '@table(\n    "features/two_days"',
        ),
        ('"sales": window(sales, first=-1', '"sales": window(copies, first=-1'),
        ("tables=[lines, sales,", "tables=[lines, sales, copies,"),
    )
    found = impact(shop).impact
    # The last day of the other tables is not built, and the edit does not change that.
    assert found.days == {"staging/copies": [*BUILT, LAST], "features/two_days": BUILT}
    assert found.changes["staging/copies"] == {"table": "new"}
    assert found.expected
    assert found.expected.unknown == ("staging/copies",)


def test_a_lake_of_a_newer_version_is_refused_and_left_as_it_is(shop):
    shop.edit("prices.py", CORRECTION)
    lake = shop.root / "home" / "lake"
    mark_newer(lake)
    before = contents_of(lake)
    with pytest.raises(TableUnreadable):
        impact(shop, canary=1)
    assert contents_of(lake) == before


def test_a_longer_window_makes_all_days_of_its_table_outdated(shop):
    shop.edit("tables.py", ("first=-1, last=0", "first=-2, last=0"))
    report = impact(shop)
    assert report.impact.days == {"features/two_days": BUILT}
    assert report.impact.changes["features/two_days"]["inputs"] == (
        "-staging/sales S-1..S+0, +staging/sales S-2..S+0"
    )


def test_a_canary_asks_no_service(tmp_path):
    columns = "day DATE, n BIGINT"
    source = service(((100, 60.0),))
    weather = Table("raw/w", lambda: None, "day", columns, {"source": source}, (), "2")
    lake = KeyedLake(tmp_path / "lake", (weather,))
    lake.write(weather, DAYS[0], [{"n": 1}])
    area = replace(area_of(tmp_path, "http://127.0.0.1:9"), lake=str(lake.root))
    workspace = replace(lake.workspace, area=area)
    before = contents_of(lake.root)
    diff, failed = build_canary(workspace, [weather.name], 1, lambda: pytest.fail("no Spark"))
    assert diff.tables == ()
    assert failed.keys() == {(weather.name, DAYS[0])}
    assert contents_of(lake.root) == before
