"""Commits of days: whole days are replaced, emptied ones too, and rows of other days are refused."""

from datetime import date

import pytest
from deltalake import DeltaTable

from backfill_assets.lake.store import CommitRequest, Lake

FIRST, SECOND, THIRD = (date(2019, 9, n) for n in (1, 2, 3))


def replacing(*days: date) -> CommitRequest:
    return CommitRequest("day", list(days), "overwrite", [], "a run", "{}")


@pytest.fixture
def rows(spark):
    return lambda *found: spark.createDataFrame(list(found), "day DATE, n INT")


def held(lake: Lake) -> list[tuple[date, int]]:
    return sorted((row["day"], row["n"]) for row in DeltaTable(lake.path("raw/a")).to_pyarrow_table().to_pylist())


def test_a_day_without_rows_is_emptied_and_days_not_named_stay(new_lake, rows):
    lake = new_lake()
    lake.commit(rows((FIRST, 1), (SECOND, 2), (THIRD, 3)), "raw/a", replacing(FIRST, SECOND, THIRD))
    assert lake.commit(rows((THIRD, 4)), "raw/a", replacing(FIRST, THIRD)) == 1
    assert held(lake) == [(SECOND, 2), (THIRD, 4)]


def test_rows_of_a_day_that_was_not_named_are_refused_and_nothing_is_written(new_lake, rows):
    lake = new_lake()
    lake.commit(rows((FIRST, 1), (SECOND, 2)), "raw/a", replacing(FIRST, SECOND))
    with pytest.raises(Exception, match="DELTA_REPLACE_WHERE_MISMATCH"):
        lake.commit(rows((FIRST, 5), (SECOND, 6)), "raw/a", replacing(FIRST))
    assert held(lake) == [(FIRST, 1), (SECOND, 2)]
    assert lake.version("raw/a") == 0
