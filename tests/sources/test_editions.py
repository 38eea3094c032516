"""What each edition of a source reads: if other rows are read, the edition must be raised."""

import pytest

from backfill_assets.datasets.case_reports import sample as case_reports
from backfill_assets.datasets.case_reports.tables import COUNTIES, PLACES, REPORTS
from backfill_assets.datasets.outages import sample as outages
from backfill_assets.datasets.outages.raw import LANDED
from backfill_assets.digest import digest
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.landing import Landing
from backfill_assets.tables.declaration import Table, table


def digest_of(source: Landing, landing, spark, days) -> str:
    rows = source.read(LandingArea(landing), spark, days).toArrow()
    columns = sorted(rows.column_names)
    return digest(*columns, *sorted(map(repr, rows.select(columns).to_pylist())))


@pytest.mark.scale
def test_landing_reads_the_rows_of_its_edition(spark, tmp_path, golden):
    """If this fails, rows of deliveries are read in another way: raise `Landing.edition`."""
    case_reports.deliver(tmp_path)
    outages.deliver(tmp_path, outages.FIRST_DAY)
    read = {
        "CSV files of two headers": digest_of(REPORTS, tmp_path, spark, [PLACES, COUNTIES]),
        "JSON lines": digest_of(LANDED, tmp_path, spark, [outages.FIRST_DAY]),
    }
    golden([f"{name}: {found}" for name, found in read.items()], f"edition {Landing.edition}")


class OwnLanding(Landing):
    """A source of a project."""


def version_of(source: Landing) -> str:
    read: Table = table(
        "raw/t", partition_by="day", columns="day DATE, n INT", reads={"rows": source}
    )(_as_read)
    return read.version


def _as_read(rows):
    return rows


def test_a_source_of_the_package_counts_by_its_edition(monkeypatch):
    """The edition of a source counts for the classes that extend it too."""
    before = [version_of(kind("folder")) for kind in (Landing, OwnLanding)]
    # As the next release would: a class of its own would have another name.
    monkeypatch.setattr(Landing, "edition", 2)
    after = [version_of(kind("folder")) for kind in (Landing, OwnLanding)]
    assert len({*before, *after}) == 4
