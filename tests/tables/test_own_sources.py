"""Sources of one's own: what they do not say is as `Source` has it, and all that they are made of
counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.errors import SourceError
from backfill_assets.plan.source_changes import source_changes
from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.archives.two_flows import TwoFlows
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.protocol import HORIZON, Delivery, Source
from backfill_assets.step.sources import archives_of, era_lines, unread_lines
from backfill_assets.tables.declaration import Table, table
from tests.worlds.deliveries import day
from tests.worlds.tables import workspace_of


@dataclass(frozen=True)
class Filtered(Source):
    """A landing that leaves out rows, with own fields that bundled sources have as well."""

    name: str
    landing: Landing
    archive: str
    least: int = 1

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> Mapping[date, Delivery | SourceError]:
        return self.landing.delivered(area, days)

    def described(self, area: LandingArea, day: date) -> list[str]:
        return self.landing.described(area, day)

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        return self.landing.size(area, days)

    def read(self, area: LandingArea, spark: Any, days: Sequence[date]) -> Any:
        return self.landing.read(area, spark, days).where("length(line) > 1")


class FilteredOtherwise(Filtered):
    def read(self, area: LandingArea, spark: Any, days: Sequence[date]) -> Any:
        return self.landing.read(area, spark, days).where("length(line) > 500")


@dataclass(frozen=True)
class Saying(Filtered):
    horizon: Any = 3
    packages: Any = ("org.example:reader:1.0",)
    archives: Any = (Archive("past", day="at"),)


ORDERS = Filtered("orders", Landing("orders"), "ftp://old")


def orders(rows): ...


def reading(source: Any, name: str = "raw/orders") -> Table:
    return table(name, partition_by="day", columns="day DATE", reads={"rows": source})(orders)


def test_what_a_source_does_not_say_is_as_it_is_by_itself(tmp_path):
    own = reading(ORDERS)
    area = LandingArea(tmp_path)
    assert (
        ORDERS.horizon,
        workspace_of([own], Calendar(day(0), day(1))).packages,
        archives_of([own]),
    ) == (HORIZON, (), {})
    assert (
        unread_lines([own], area, Calendar(day(0))),
        [*era_lines([own], {own.name: [day(0)]})],
    ) == ({}, [])


def test_what_it_says_comes_before():
    own = Saying("orders", Landing("orders"), "ftp://old")
    declared = table(
        "raw/orders", partition_by="day", columns="day DATE", reads={"rows": own}, version="1"
    )(orders)
    assert workspace_of([declared], Calendar(day(0), day(1))).packages == (
        "org.example:reader:1.0",
    )
    assert archives_of([declared]) == {"past": Archive("past", day="at")}


def test_code_settings_and_parts_of_a_source_are_in_the_code_version():
    others = [
        replace(ORDERS, least=500),
        replace(ORDERS, landing=Landing("orders", files="%Y/%m-%d.jsonl")),
        FilteredOtherwise(ORDERS.name, ORDERS.landing, ORDERS.archive),
    ]
    assert len({reading(source).version for source in (ORDERS, *others)}) == 4
    waited_for = replace(ORDERS, landing=Landing("orders", settled=60))
    # How a delivery is waited for decides on no row.
    assert reading(waited_for).version == reading(ORDERS).version


def test_what_archives_are_added_to_a_landing_is_no_part_of_it():
    landing = Landing("orders")
    assert reading(TwoFlows(landing, Archive("past", day="at"))).version == reading(landing).version


class Ducks:
    """It has what a source has, and does not extend it."""

    name = "ducks"

    def delivered(self, *given):
        return None

    described = delivered
    size = delivered
    read = delivered


@pytest.mark.parametrize(
    "source",
    [
        Ducks(),
        Saying("a", Landing("a"), "", horizon="a week"),
        Saying("a", Landing("a"), "", packages="g:a:1"),
        Saying("a", Landing("a"), "", archives="ftp://old"),
        Saying(b"a", Landing("a"), ""),  # type: ignore[arg-type]
    ],
    ids=["no source", "horizon", "packages", "archives", "name"],
)
def test_what_is_no_source_is_refused_where_its_table_is_declared(source, golden):
    with golden.raises(ValueError):
        reading(source)


def test_a_source_lacks_no_method():
    class Half(Source):
        name = "half"

    with pytest.raises(TypeError, match=r"abstract.*delivered, described, read, size"):
        Half()  # type: ignore[abstract]


def test_tables_whose_sources_share_a_name_are_looked_at_within_their_own_horizons(tmp_path):
    calendar = Calendar(date(2019, 1, 1), date(2019, 12, 31))
    a, b = (
        reading(Landing("orders", horizon=horizon), f"raw/{name}")
        for name, horizon in (("a", 2), ("b", 60))
    )
    for tables in ([a, b], [b, a]):
        found = source_changes(workspace_of(tables, calendar, str(tmp_path)))
        assert {each.since for each in found} == {
            calendar.last - timedelta(days=n) for n in (2, 60)
        }
