"""Which files belong to which day."""

import calendar
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets import Landing
from backfill_assets.sources.files import listing
from backfill_assets.sources.files.landing import _DAILY
from backfill_assets.sources.files.listing import Pattern
from backfill_assets.sources.filesystem import DISK, EVERYTHING
from tests.worlds.deliveries import day, days, put

BELONGS = {
    "a folder of a year, a month and a day": "year=2019/month=08/day=15/events.jsonl",
    "a folder within it": "year=2019/month=08/day=15/late/more.json.gz",
    "a folder named for the day": "2019-08-15/events.ndjson",
    "a file named for the day": "2019-08-15.jsonl.gz",
    "a file whose name begins with the day": "2019-08-15T1000-north.jsonl",
}
DOES_NOT = {
    "another day": "year=2019/month=08/day=16/events.jsonl",
    "another month": "year=2019/month=09/day=15/events.jsonl",
    "another year's file": "2018-08-15.jsonl",
    "an upload under way": "year=2019/month=08/day=15/_temporary/events.jsonl",
    "a hidden file": "2019-08-15/.events.jsonl",
    "a folder whose name only begins with the day": "2019-08-15-old/events.jsonl",
    "a day of one digit": "year=2019/month=8/day=15/events.jsonl",
    "a week": "2019-W33-4.jsonl",
    "no day of any month": "2019-08-32.jsonl",
}


def files_by_day(top, days, patterns=_DAILY):
    found = listing.files_by_day(tree(top), days, [Pattern(text) for text in patterns])
    return {day: [Path(file) for file in files] for day, files in found.items()}


def unmatched(top, patterns=_DAILY):
    found = listing.days_of_files(tree(top), [Pattern(text) for text in patterns])
    return [path for path, days in found.items() if days is None]


def tree(top):
    return DISK.tree(str(top), lambda: EVERYTHING)


@pytest.mark.parametrize("name", BELONGS.values(), ids=BELONGS)
def test_a_file_of_the_day_is_found(tmp_path, name):
    file = put(tmp_path, name)
    assert files_by_day(tmp_path, [day(0)]) == {day(0): [file]}


@pytest.mark.parametrize("name", DOES_NOT.values(), ids=DOES_NOT)
def test_other_files_are_not_found(tmp_path, name):
    put(tmp_path, name)
    assert files_by_day(tmp_path, [day(0)]) == {day(0): []}


def test_all_files_of_a_day_are_found_in_order(tmp_path):
    put(tmp_path, BELONGS["a folder named for the day"].replace("08-15", "08-16"))
    expected = sorted(put(tmp_path, name) for name in BELONGS.values())
    files = files_by_day(tmp_path, days(0, 1, 2))
    assert files[day(0)] == expected
    assert [len(of_day) for of_day in files.values()] == [5, 1, 0]


def test_a_link_in_the_folder_of_a_day_is_listed_and_not_followed(tmp_path):
    """It may lead back, or to what is read already; whoever put it there may have meant it to be
    read.
    """
    file = put(tmp_path / "landing", BELONGS["a folder named for the day"])
    links = [file.parent / "again", file.parent / "elsewhere"]
    links[0].symlink_to(file.parent)
    links[1].symlink_to(put(tmp_path / "other", "more.jsonl").parent)
    assert files_by_day(tmp_path / "landing", [day(0)]) == {day(0): sorted([file, *links])}
    assert unmatched(tmp_path / "landing") == []  # the day names them


@pytest.mark.parametrize(
    ("pattern", "unread"),
    [
        (_DAILY, ["extra/"]),
        (("%Y-%m-%d/in/*",), ["extra/"]),
        (("%Y/%m%d/*",), ["2019-08-15/", "extra/"]),
    ],
)
def test_a_linked_folder_is_followed_only_if_a_pattern_matches_it(tmp_path, pattern, unread):
    elsewhere = put(tmp_path / "other", "in/more.jsonl").parent.parent
    (tmp_path / "landing").mkdir()
    for name in ("2019-08-15", "extra"):
        (tmp_path / "landing" / name).symlink_to(elsewhere)
    assert unmatched(tmp_path / "landing", pattern) == unread
    found = files_by_day(tmp_path / "landing", [day(0)], pattern)[day(0)]
    assert found == ([] if len(unread) > 1 else [tmp_path / "landing/2019-08-15/in/more.jsonl"])


def test_a_missing_landing_area_has_no_files(tmp_path):
    assert files_by_day(tmp_path / "nowhere", [day(0)]) == {day(0): []}


def test_a_link_to_itself_is_a_file_of_its_day(tmp_path):
    link = tmp_path / "2019-08-15.jsonl"
    link.symlink_to(link)
    assert files_by_day(tmp_path, days(0, 1)) == {day(0): [link], day(1): []}


def test_a_folder_that_cannot_be_listed_is_a_file_of_all_its_possible_days(tmp_path, nobody):
    closed = [
        tmp_path / "2019-08-15",
        tmp_path / "year=2019/month=08/day=16",
        tmp_path / "year=2019/month=09",
    ]
    for folder in closed:
        folder.mkdir(parents=True)
        folder.chmod(0)
    with nobody(tmp_path):
        found = files_by_day(tmp_path, days(0, 1, 2, 17, 18))
    assert found == {
        day(0): closed[:1],
        day(1): closed[1:2],
        day(2): [],
        day(17): closed[2:],
        day(18): closed[2:],
    }


OTHER_PATTERNS = {
    "folders of a year, a month and a day": (
        "{year}/{month}/{day}/*.jsonl.gz",
        "2019/08/15/a.jsonl.gz",
        "2019/08/15/a.csv",
    ),
    "months before years": ("%m-%d-%Y.csv", "08-15-2019.csv", "08-15-2019.csv.gz"),
    "a day within a name": (
        "shop-*-{year}{month}{day}.csv",
        "shop-north-20190815.csv",
        "shop-20190815.csv",
    ),
    "the day twice": ("%Y/%Y-%m-%d.csv", "2019/2019-08-15.csv", "2018/2019-08-15.csv"),
    "all files below": ("%Y-%m-%d/in/**", "2019-08-15/in/a/b.csv", "2019-08-15/out/b.csv"),
    "a year of two digits and months by name": (
        "%d-%b-%y*.csv",
        "15-AUG-19 (final).csv",
        "15-Sept-19.csv",
    ),
    "a whole name of a month and no leading zeros": (
        "%Y/%-d %B.csv",
        "2019/15 August.csv",
        "2019/15 Aug.csv",
    ),
    "months without a leading zero": ("%Y-%-m/%-d.csv", "2019-8/15.csv", "2019-08/15.csv"),
    "the day of the year": ("%Y%j.csv", "2019227.csv", "201922.csv"),
    "the month twice": ("%Y/%m/%-d %B.csv", "2019/08/15 August.csv", "2019/08/15 July.csv"),
    "signs that mean something elsewhere": (
        "day (%Y+%m+%d).csv",
        "day (2019+08+15).csv",
        "day 2019+08+15.csv",
    ),
}


@pytest.mark.parametrize(("pattern", "name", "other"), OTHER_PATTERNS.values(), ids=OTHER_PATTERNS)
def test_a_pattern_finds_files_and_other_files_are_listed(tmp_path, pattern, name, other):
    file = put(tmp_path, name)
    put(tmp_path, other)
    assert files_by_day(tmp_path, days(0, 1), [pattern]) == {day(0): [file], day(1): []}
    assert unmatched(tmp_path, [pattern]) == [other]


def test_a_file_that_matches_two_patterns_is_found_once(tmp_path):
    file = put(tmp_path, "2019-08-15.jsonl")
    assert files_by_day(tmp_path, [day(0)], ["%Y-%m-%d*", "%Y-%m-%d.jsonl"]) == {day(0): [file]}


CODES = {
    "{year}": lambda on: f"{on.year:04}",
    "{month}": lambda on: f"{on.month:02}",
    "{day}": lambda on: f"{on.day:02}",
    "%Y": lambda on: f"{on.year:04}",
    "%y": lambda on: f"{on.year % 100:02}",
    "%m": lambda on: f"{on.month:02}",
    "%d": lambda on: f"{on.day:02}",
    "%-m": lambda on: str(on.month),
    "%-d": lambda on: str(on.day),
    "%b": lambda on: calendar.month_abbr[on.month].upper(),
    "%B": lambda on: calendar.month_name[on.month].lower(),
    "%j": lambda on: f"{(on - date(on.year, 1, 1)).days + 1:03}",
}


@given(st.dates(), st.sampled_from([pattern for pattern, _, _ in OTHER_PATTERNS.values()]))
def test_the_day_in_a_name_is_found_by_its_pattern(day, pattern):
    if "%y" in pattern and not 1969 <= day.year <= 2068:
        day = day.replace(year=1969 + day.year % 100, day=min(day.day, 28))
    name = pattern.replace("**", "x/y").replace("*", "z")
    for code, text in CODES.items():
        name = name.replace(code, text(day))
    assert Pattern(pattern).day_of(name) == day


FRENCH = (
    "janvier",
    "février",
    "mars",
    "avril",
    "mai",
    "juin",
    "juillet",
    "août",
    "septembre",
    "octobre",
    "novembre",
    "décembre",
)


def test_months_have_the_declared_names():
    pattern = Pattern("%-d %B %Y.csv", FRENCH)
    names = ("1 février 2024.csv", "29 FÉVRIER 2024.csv", "15 août 2019.csv", "1 May 2024.csv")
    assert [pattern.day_of(name) for name in names] == [
        date(2024, 2, 1),
        date(2024, 2, 29),
        date(2019, 8, 15),
        None,
    ]


@pytest.mark.parametrize("names", [FRENCH[:11], (*FRENCH[:11], "Mai")])
def test_months_without_twelve_different_names_are_refused(names, refused):
    refused(lambda: Landing("sales", "%-d %B %Y.csv", month_names=names))


SPANS = {
    "days in ISO 8601": ("report_{first}_{last}.csv", "report_2024-06-01_2024-06-07.csv"),
    "days in other codes": ("{first:%d.%m.%Y}-{last:%-d %B %y}*", "01.06.2024-7 June 24.csv"),
    "numbers next to each other": ("{first:%Y%m%d}{last:%Y%m%d}.csv", "2024060120240607.csv"),
    "in folders": ("{first}/{last}/*", "2024-06-01/2024-06-07/a.csv"),
}


@pytest.mark.parametrize(("pattern", "name"), SPANS.values(), ids=SPANS)
def test_a_name_has_the_first_and_the_last_day_of_a_file(pattern, name):
    span = Pattern(pattern)
    assert span.is_of_several_days
    assert span.days_of(name) == (date(2024, 6, 1), date(2024, 6, 7))
    assert span.days_of(name.replace("7", "8").replace("01", "31")) is None  # of no month


def test_a_span_that_is_reversed_is_none_and_a_day_is_a_span():
    span = Pattern("{first}_{last}.csv")
    assert span.days_of("2024-06-07_2024-06-01.csv") is None
    assert span.days_of("2024-06-07_2024-06-07.csv") == (date(2024, 6, 7), date(2024, 6, 7))
    assert Pattern("%Y-%m-%d*").days_of("2024-06-07.csv") == (date(2024, 6, 7), date(2024, 6, 7))


def test_a_landing_does_not_guess_the_days_of_rows(refused):
    refused(lambda: Landing("reports", "report_{first}_{last}.csv"))


TWO_READINGS = [
    ("%m-%d-%Y.csv", "%d-%m-%Y.csv"),
    ("%y%m%d*", "%d%m%y*"),
    ("%Y/%Y%m%d*", "%Y/%Y%d%m*"),
    ("%Y%m%d*", "%Y%j*"),
]


@pytest.mark.parametrize("patterns", TWO_READINGS)
def test_patterns_that_read_different_days_from_one_name_are_refused(patterns, refused):
    refused(lambda: Landing("sales", patterns))


def test_patterns_that_read_the_same_day_are_not():
    Landing(
        "sales", ("%Y-%m-%d*", "{year}-{month}-{day}.csv", "%Y%m%d.csv", "%m%d%Y.csv", "%Y/%j*")
    )


NO_PATTERNS = (
    "%Y-%m.csv",
    "/data/%Y-%m-%d.csv",
    "../%Y-%m-%d.csv",
    "**/%Y-%m-%d.csv",
    "%Y-%m-%d/a**",
    "{year}-{month}-{hour}.csv",
    "%Y-%m-%d-%H.csv",
    "%Y-%j-%U.csv",
    "%m%d.csv",
    "%Y-%B.csv",
    "{first}.csv",
    "{first}_{last:%Y-%m}.csv",
    "%Y%-m%-d.csv",
    "%Y-%-m-%-d*",
    "%Y-%m-2%-d.csv",
)


@pytest.mark.parametrize("text", NO_PATTERNS)
def test_an_invalid_pattern_is_refused(refused, text):
    refused(lambda: Pattern(text))


IN_AUGUST = [day(0), day(16)]


@pytest.mark.parametrize(
    ("patterns", "of", "parts"),
    [
        (
            _DAILY,
            [day(0)],
            [("", False), ("2019-08-15/", True), ("year=2019/month=08/day=15/", True)],
        ),
        (
            _DAILY[:1],
            IN_AUGUST,
            [("year=2019/month=08/day=15/", True), ("year=2019/month=08/day=31/", True)],
        ),
        (_DAILY[1:2], [day(138), day(139)], [("2019-12-31/", True), ("2020-01-01/", True)]),
        (
            _DAILY[:1],
            days(*range(17, 53)),
            [("year=2019/month=09/", True), ("year=2019/month=10/", True)],
        ),
        (
            _DAILY[:1],
            days(*range(0, 1500, 9)),
            [(f"year={year}/", True) for year in range(2019, 2024)],
        ),
        (_DAILY[:1], days(*range(0, 15_000, 9)), [("", True)]),
        (_DAILY, days(*range(40)), [("", True)]),
        (_DAILY, [], []),
        (("%m-%d-%Y.csv",), IN_AUGUST, [("", False)]),
        (("%Y/%m-%d.csv",), IN_AUGUST, [("2019/", False)]),
        (("all/*/%Y-%m-%d.csv", "all/%Y-%m-%d/*"), IN_AUGUST, [("all/", True)]),
        (("%Y}/%m%d/a",), [day(0)], [("2019}/0815/", False)]),
    ],
)
def test_only_folders_that_may_have_the_days_are_listed(patterns, of, parts):
    assert listing.folders_to_list([Pattern(text) for text in patterns], of) == parts
