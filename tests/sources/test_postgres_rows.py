"""The rows of a PostgreSQL table as Spark reads them."""

from datetime import date, datetime
from decimal import Decimal

import pytest

from backfill_assets.errors import NotDelivered
from tests.worlds.deliveries import day, days
from tests.worlds.postgres import AREA, postgres_table

pytestmark = pytest.mark.usefixtures("reader_password")


def test_days_that_the_table_has_no_row_of_are_not_read_in_silence(orders, spark):
    assert orders.read(AREA, spark, days(0, 1)).count() == 4
    with pytest.raises(
        NotDelivered, match=f"no source for {day(2)} in orders at .*: it has no row of the day"
    ):
        orders.read(AREA, spark, days(0, 1, 2))


def test_values_come_as_spark_s_own_or_as_the_text_that_postgresql_writes(postgres, spark):
    columns = {
        "flag boolean": ("true", True), "small smallint": ("7", 7), "whole int": ("-7", -7), "big bigint": ("2^53", 2**53),
        "narrow real": ("0.5", 0.5), "wide float8": ("0.1", 0.1),
        "words text": ("'näh'", "näh"), "short varchar(9)": ("'a'", "a"),
        "price numeric(10,2)": ("3.14", Decimal("3.14")), "exact numeric": ("0.1234567890123456789", "0.1234567890123456789"),
        "raw bytea": (r"'\x00ff'", b"\x00\xff"), "born date": ("'1066-10-14'", date(1066, 10, 14)),
        "seen timestamptz": ("'2019-08-15 12:00:00.123456+02'", datetime(2019, 8, 15, 10, 0, 0, 123456)),
        "local timestamp": ("'2019-08-15 12:00'", datetime(2019, 8, 15, 10)),
        "id uuid": ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        "said json": ("""'{"a":  1}'""", '{"a":  1}'), "kept jsonb": ("""'{"a":  1}'""", '{"a": 1}'),
        "tags text[]": ("ARRAY['a,b', NULL]", ["a,b", None]), "counts int[]": ("'{}'", []),
        "dates date[]": ("ARRAY['2019-08-15'::date]", "{2019-08-15}"), "lasts interval": ("'1 day 2 hours'", "1 day 02:00:00"),
        '"Odd ""Name" int': ("1", 1),
    }  # fmt: skip
    nothing = ", ".join("NULL" for _ in columns)
    postgres.execute(
        "DROP TABLE IF EXISTS kinds", f"CREATE TABLE kinds (on_day date, {', '.join(columns)})",
        f"INSERT INTO kinds VALUES ('{day(0)}', {', '.join(value for value, _ in columns.values())}), ('{day(1)}', {nothing})",
    )  # fmt: skip
    read = (
        postgres_table(postgres, "kinds", "on_day", time_zone="Europe/Berlin")
        .read(AREA, spark, days(0, 1))
        .orderBy("arrival_day")
    )
    full, empty = (
        [bytes(v) if isinstance(v, bytearray) else v for v in row] for row in read.collect()
    )
    assert full == [day(0), day(0), *(value for _, value in columns.values())]
    assert empty == [day(1), day(1)] + [None] * len(columns)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", "'infinity'"),
        ("timestamptz", "'-infinity'"),
        ("numeric(5,2)", "'NaN'"),
        ("int[]", "'{{1,2},{3,4}}'"),
    ],
    ids=["infinite date", "infinite timestamp", "no number", "array of arrays"],
)
def test_a_value_that_spark_has_none_for_is_an_error_that_names_its_column(
    postgres, spark, kind, value
):
    postgres.execute("DROP TABLE IF EXISTS odd", f"CREATE TABLE odd (on_day date, odd_one {kind})")
    postgres.execute(f"INSERT INTO odd VALUES ('{day(0)}', {value}), ('{day(1)}', NULL)")
    table = postgres_table(postgres, "odd", "on_day")
    assert table.read(AREA, spark, days(1)).count() == 1
    with pytest.raises(
        Exception, match="odd_one holds what Spark has no value for; leave it out, or read a view"
    ):
        table.read(AREA, spark, days(0, 1)).collect()
