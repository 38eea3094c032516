"""A file with the contents of another one: of its day, or of an earlier day of the source."""

import gzip
import os
from dataclasses import replace
from datetime import date, timedelta

import pytest

from backfill_assets import Csv, Landing, field
from backfill_assets.lake.ledger import Build
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.filesystem import LocalDisk
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import delivered_for
from backfill_assets.tables.declaration import table
from tests.worlds.deliveries import day, days, delivery_of, put

HEADER = "store,cents\n"
SALES = Landing("sales", format=Csv())


def name_of(number: int, ending: str = ".csv") -> str:
    return f"sales/{day(number)}{ending}"


@pytest.fixture
def area(tmp_path) -> LandingArea:
    """An area with other rows on each of four days, and a home that has read none of them."""
    for number in range(4):
        put(tmp_path / "landing", name_of(number), f"{HEADER}a,{number}\n")
    return LandingArea(tmp_path / "landing", tmp_path / "home")


def doubts(area: LandingArea, *numbers: int, source: Landing = SALES) -> dict[str, str]:
    found = source.delivered(area, days(*numbers))
    assert all(isinstance(each, Delivery) for each in found.values())
    return {
        name: why
        for each in found.values()
        if isinstance(each, Delivery)
        for name, why in each.doubts.items()
    }


def repeats(number: int, ending: str = ".csv") -> str:
    return f"has the same contents as {name_of(number, ending)}"


def test_files_with_other_contents_are_no_duplicates(area):
    assert doubts(area, 0, 1, 2, 3) == {}


def test_two_files_of_a_day_with_the_same_contents_name_each_other(area):
    put(area.root, name_of(2, " (1).csv"), f"{HEADER}a,2\n")
    assert doubts(area, 0, 1, 2, 3) == {
        name_of(2): repeats(2, " (1).csv"),
        name_of(2, " (1).csv"): repeats(2),
    }


@pytest.mark.parametrize("asked", [(3,), (1, 3), (3, 1), (0, 1, 2, 3)])
def test_the_later_of_two_days_with_the_same_contents_is_doubtful(area, asked):
    put(area.root, name_of(3), f"{HEADER}a,1\n")
    assert doubts(area, *asked) == {name_of(3): repeats(1)}
    assert doubts(area, 0, 1, 2) == {}


def test_a_repeated_file_is_found_in_another_packing(area):
    put(area.root, name_of(3, ".csv.gz"), gzip.compress(f"{HEADER}a,1\n".encode(), 1))
    (area.root / name_of(3)).unlink()
    assert doubts(area, 0, 1, 2, 3) == {name_of(3, ".csv.gz"): repeats(1)}


def test_days_long_before_are_compared_once_they_were_read(area):
    put(area.root, name_of(300), f"{HEADER}a,1\n")
    assert doubts(area, 300) == {}
    doubts(area, 0, 1, 2, 3)
    assert doubts(area, 300) == {name_of(300): repeats(1)}
    next_process = replace(area, cache=area.cache)
    assert doubts(next_process, 300) == {name_of(300): repeats(1)}


def test_only_files_of_the_same_size_are_read_for_a_comparison(area, tmp_path):
    put(area.root, name_of(2), f"{HEADER}a,22\n")
    read = []

    class Counting(LocalDisk):
        def open_local(self, entry):
            read.append(os.path.basename(entry))  # noqa: PTH119
            return super().open_local(entry)

    doubts(LandingArea(area.root, tmp_path / "other", files=Counting()), 3)
    assert sorted(read) == [f"{day(number)}.csv" for number in (0, 1, 3)]


def test_a_file_that_replaces_another_is_no_duplicate(area):
    doubts(area, 0, 1, 2, 3)
    (area.root / name_of(1)).rename(area.root / name_of(1, "-final.csv"))
    assert doubts(area, 0, 1, 2, 3) == {}
    (area.root / name_of(1, "-final.csv")).rename(area.root / name_of(3))
    assert doubts(area, 3) == {}, "it was sent for another day first, and is there no more"


def test_an_earlier_file_that_was_corrected_is_no_longer_repeated(area):
    put(area.root, name_of(3), f"{HEADER}a,1\n")
    assert doubts(area, 3)
    put(area.root, name_of(1), f"{HEADER}a,1\nb,1\n")
    assert doubts(area, 3) == {}


def test_files_without_rows_may_be_equal_on_all_days(area):
    for number in range(4):
        put(area.root, name_of(number), HEADER)
    assert doubts(area, 0, 1, 2, 3) == {}


def test_the_same_contents_in_folders_of_other_values_are_other_rows(area):
    by_store = replace(
        SALES,
        files="store=*/%Y-%m-%d.csv",
        fields=(field("store STRING"), field("cents BIGINT", "cents")),
    )
    for store in ("north", "south"):
        put(area.root, f"sales/store={store}/{day(0)}.csv", "cents\n1\n")
    assert doubts(area, 0, source=by_store) == {}
    without = replace(by_store, fields=by_store.fields[1:])
    assert len(doubts(area, 0, source=without)) == 2


def test_a_warning_says_it_and_allowed_duplicates_say_nothing(area):
    put(area.root, name_of(3), f"{HEADER}a,1\n")
    said = f"{name_of(3)} {repeats(1)}"
    refused, warned, allowed = (
        delivery_of(replace(SALES, duplicates=answer), area, day(3))
        for answer in ("refuse", "warn", "allow")
    )
    assert (refused.notes, dict(refused.doubts)) == ([said], {name_of(3): repeats(1)})
    assert (warned.notes, dict(warned.doubts)) == ([said], {})
    assert (allowed.notes, dict(allowed.doubts)) == ([], {})


def test_other_answers_are_not_accepted(refused):
    refused(lambda: Landing("sales", duplicates="skip"))  # type: ignore[arg-type]


def reading(source: Landing):
    return table(
        "raw/sales",
        partition_by="arrival_day",
        columns="arrival_day DATE",
        reads={"a": source},
        version="1",
    )(lambda a: a)


def built_from(delivery: Delivery, on: date) -> Build:
    return Build(
        "raw/sales",
        on,
        "accepted",
        "r",
        reading(SALES).version,
        delivered=delivery.fingerprint,
        files=delivery.files,
        hashes=delivery.hashes,
    )


def refusals(area: LandingArea, accepted=(), accept: str = "") -> dict[date, str]:
    sales = reading(SALES)
    builds = {(sales.name, build.day): build for build in accepted}
    asked = [day(0) + timedelta(days=number) for number in range(4)]
    found = delivered_for(sales, asked, area, builds, accept)
    return {on: str(each) for on, each in found.items() if not isinstance(each, Delivery)}


def test_a_duplicate_is_refused_with_both_names_until_it_is_accepted_by_name(area, golden):
    put(area.root, name_of(3), f"{HEADER}a,1\n")
    (why,) = refusals(area).values()
    golden(why)
    assert refusals(area, accept=name_of(3)) == {}


def test_a_day_that_was_accepted_stays_so_whatever_comes_later(area):
    accepted = built_from(delivery_of(SALES, area, day(3)), day(3))
    put(area.root, name_of(1), f"{HEADER}a,3\n")
    assert refusals(area, [accepted]) == {}
    assert refusals(area).keys() == {day(3)}
    put(area.root, name_of(3, "-again.csv"), f"{HEADER}a,3\n")
    assert f"{name_of(3, '-again.csv')} has the same" in refusals(area, [accepted])[day(3)]
