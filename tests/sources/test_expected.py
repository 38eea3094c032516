"""Calendars of deliveries, against plain Python, and sessions as the exchange published them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from backfill_assets import (
    Archive,
    Csv,
    Landing,
    TwoFlows,
    expected,
    field,
    itself,
    same_day,
    table,
)
from backfill_assets.calendar import Calendar
from backfill_assets.tables.declaration import SliceDays, Table, Window
from backfill_assets.tables.graph import Graph, is_closed
from tests.worlds.market import MON_FRI, closes_of, quotes_of, week_of

YEAR = [date(2024, 1, 1) + timedelta(n) for n in range(366)]
ANY = Calendar(date(2000, 1, 1), date(2030, 12, 31))


def closed_by(calendar: Callable[[date], bool]) -> list[date]:
    return [day for day in YEAR if not calendar(day)]


@pytest.mark.parametrize(
    ("names", "open_days"),
    [
        pytest.param("mon-fri", "Mon Tue Wed Thu Fri", id="a working week"),
        pytest.param("sat-mon", "Sat Sun Mon", id="over the end of the week"),
        pytest.param("mon, Thu", "Mon Thu", id="a list with a space and a capital"),
        pytest.param("mon-tue,sun", "Mon Tue Sun", id="a range and a day"),
        pytest.param("wed", "Wed", id="one day"),
    ],
)
def test_days_of_the_week_are_expected(names, open_days):
    wanted = [day for day in YEAR if f"{day:%a}" in open_days.split()]
    assert [day for day in YEAR if expected.weekdays(names)(day)] == wanted


@pytest.mark.parametrize("names", ["", "monday", "mon-", "mon..fri", "1-5", "mon;tue"])
def test_other_names_of_weekdays_are_refused(names, refused):
    refused(lambda: expected.weekdays(names))


def test_days_and_a_file_of_holidays_are_closed(tmp_path):
    file = tmp_path / "holidays.txt"
    file.write_text("# national\n2024-05-01 Labour Day\n\n2024-12-25\n", encoding="utf-8-sig")
    days = [date(2024, 5, 1), date(2024, 12, 25)]
    assert closed_by(expected.holidays(file)) == closed_by(expected.but_not(days)) == days
    read_before = expected.holidays(str(file))
    file.write_text("2024-01-01\n")
    assert closed_by(read_before) == days
    assert closed_by(expected.holidays(file)) == [date(2024, 1, 1)]


@pytest.mark.parametrize("line", ["25.12.2024", "2024-02-30", "Christmas 2024-12-25"])
def test_a_file_with_another_line_is_refused(tmp_path, line, refused):
    (tmp_path / "h.txt").write_text(f"2024-01-01\n{line}\n")
    refused(lambda: expected.holidays(tmp_path / "h.txt"))


def test_a_file_that_is_not_there_is_refused(tmp_path, refused):
    refused(lambda: expected.holidays(tmp_path / "none.txt"))


def test_texts_are_no_days(refused):
    refused(lambda: expected.but_not(["2024-12-25"]))  # type: ignore[list-item]


def test_all_of_expects_what_each_expects():
    first_of_month: Any = lambda day: day.day == 1  # noqa: E731
    both = expected.all_of(MON_FRI, first_of_month)
    wanted = [date(2024, month, 1) for month in (1, 2, 3, 4, 5, 7, 8, 10, 11)]
    assert [day for day in YEAR if both(day)] == wanted


def test_an_exchange_expects_its_sessions():
    new_york = expected.exchange("XNYS")
    holidays = ["01-01", "01-15", "02-19", "03-29", "05-27", "06-19", "07-04", "09-02", "11-28"]
    off = [date.fromisoformat(f"2024-{day}") for day in (*holidays, "12-25")]
    assert closed_by(new_york) == sorted([*off, *(d for d in YEAR if d.weekday() >= 5)])
    assert not new_york(date(1995, 7, 4))
    # Before the first known session, and after the last: never closed by a guess.
    assert new_york(date(1980, 7, 5))
    assert new_york(date(2200, 1, 4))
    assert closed_by(expected.exchange("XSHG"))[0] == date(2024, 1, 1)  # known since 1990-12 only


def test_an_unknown_exchange_is_refused(refused):
    refused(lambda: expected.exchange("NYSE_"))


@pytest.mark.parametrize(
    "calendar",
    [
        pytest.param(lambda day: None, id="no answer"),
        pytest.param(lambda day: 1, id="a number"),
        pytest.param(lambda: True, id="no argument"),
        pytest.param([date(2024, 1, 1)], id="a list"),
    ],
)
def test_a_calendar_that_does_not_answer_is_refused_where_it_is_declared(calendar, refused):
    refused(lambda: quotes_of(None, expected=calendar), CALENDAR=repr(calendar))


def test_a_source_takes_only_functions(refused):
    refused(lambda: Landing("quotes", expected="mon-fri"))  # type: ignore[arg-type]


def test_may_be_empty_is_true_or_false(refused):
    refused(lambda: quotes_of(None, may_be_empty="yes"))


def test_a_table_that_reads_itself_has_no_closed_days(refused):
    quotes = quotes_of()

    def totals(**options: Any) -> Table:
        reads = {"before": itself(), "quotes": same_day(quotes)}
        columns = "arrival_day DATE"
        return table(
            "features/t", partition_by="arrival_day", columns=columns, reads=reads, **options
        )(lambda before, quotes: before)

    refused(lambda: totals(expected=MON_FRI, version="1"))
    assert not any(is_closed(totals(version="1"), day, ANY) for day in YEAR)


def test_a_table_has_the_calendar_of_its_source_or_its_own():
    every_day: Any = lambda day: True  # noqa: E731
    assert quotes_of().expected is MON_FRI
    assert quotes_of(expected=every_day).expected is every_day
    flows = TwoFlows(
        Landing("quotes", fields=[field("n INT")], expected=MON_FRI, may_be_empty=True),
        Archive("archive", files="*.csv", format=Csv(), day="day"),
    )
    assert (flows.expected, flows.may_be_empty) == (MON_FRI, True)


def test_calendars_are_no_part_of_the_code_version():
    def declared(**options: Any) -> Table:
        source = Landing("quotes", format=Csv(), fields=[field("symbol STRING")], **options)
        return table(
            "raw/q", partition_by="arrival_day", columns=source.row_columns, reads={"rows": source}
        )(rows_of_quotes)

    plain = declared()
    assert declared(expected=MON_FRI, may_be_empty=True).version == plain.version
    assert declared(expected=MON_FRI).source() == plain.source()


def rows_of_quotes(rows: Any) -> Any:
    return rows


def test_a_reader_is_closed_if_every_day_that_it_reads_is():
    quotes = quotes_of()
    closes = closes_of(quotes)
    week = week_of(closes)
    weekend = [day for day in YEAR if day.weekday() >= 5]
    assert [day for day in YEAR if is_closed(closes, day, ANY)] == weekend
    assert not any(is_closed(week, day, ANY) for day in YEAR)
    shut = closes_of(quotes_of(lambda day: not date(2024, 2, 5) <= day <= date(2024, 2, 16)))
    assert [day for day in YEAR if is_closed(week_of(shut), day, ANY)] == [
        date(2024, 2, n) for n in range(11, 17)
    ]
    # Days outside the calendar are not read.
    saturday = Calendar(date(2024, 6, 1), date(2024, 6, 30))
    assert [day for day in YEAR if is_closed(week, day, saturday) and day in saturday] == [
        date(2024, 6, 1),
        date(2024, 6, 2),
    ]
    other = quotes_of(None)
    assert not is_closed(
        replace(closes, reads={"a": Window(quotes), "b": Window(other)}), weekend[0], ANY
    )
    with_days = replace(closes, reads={"quotes": Window(quotes), "days": SliceDays()})
    assert not is_closed(with_days, weekend[0], ANY)
    assert not is_closed(replace(closes, reads={"days": SliceDays()}), weekend[0], ANY)


def test_nobody_needs_a_closed_day():
    quotes = quotes_of()
    closes = closes_of(quotes)
    own = week_of(closes, expected=MON_FRI)
    calendar = Calendar(date(2024, 6, 1), date(2024, 6, 30))
    graph = Graph([quotes, closes, own], calendar)
    monday = date(2024, 6, 10)
    last_week = [date(2024, 6, n) for n in (4, 5, 6, 7, 10)]
    assert [day for _, day in graph.needs((own.name, monday))] == last_week
    assert len(list(graph.reads((own.name, monday)))) == 7
    saturday = date(2024, 6, 8)
    assert list(graph.needs((own.name, saturday))) == []
    nothing: dict[str, set[date]] = {name: set() for name in (quotes.name, closes.name, own.name)}
    assert graph.lacking_inputs(own.name, [saturday, monday], nothing) == {monday}
    built = nothing | {closes.name: set(last_week)}
    assert graph.lacking_inputs(own.name, [saturday, monday], built) == set()
