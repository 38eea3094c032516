"""A PostgreSQL table as a source: a day is its rows, looked at by one query and read by Spark in a
few ranges.
"""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from backfill_assets.errors import IncompleteDelivery, NotDelivered, SourceError
from backfill_assets.servers.child import free_port
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.postgres.source import PostgresTable
from backfill_assets.sources.protocol import Delivery
from tests.worlds.deliveries import day, days
from tests.worlds.services import AREA, postgres_table

pytestmark = pytest.mark.usefixtures("reader_password")


NO_DATABASE = (
    "mysql://localhost/shop",
    "postgresql:///shop",
    "postgresql://localhost",
    "postgresql://[::1/shop",
    "postgresql://reader@db:54x/shop",
    "postgresql://reader@db:0/shop",
    "postgresql://reader@db:70000/shop",
)


def looked_at(table: PostgresTable, *numbers: int) -> dict[date, Delivery]:
    return {
        at: each
        for at, each in table.delivered(AREA, days(*numbers)).items()
        if isinstance(each, Delivery)
    }


def fingerprints(delivered: dict[date, Delivery]) -> dict[date, str]:
    return {at: each.fingerprint for at, each in delivered.items()}


def differing(before: dict[date, Delivery], after: dict[date, Delivery]) -> set[date]:
    return {at for at in {*before, *after} if before.get(at) != after.get(at)}


def test_a_day_with_rows_is_delivered_and_one_without_is_not(orders):
    delivered = orders.delivered(AREA, days(0, 1, 2))
    assert [isinstance(each, Delivery) and dict(each.files) for each in delivered.values()] == [
        {"orders": 3},
        {"orders": 1},
        False,
    ]
    assert isinstance(delivered[day(2)], NotDelivered)
    (sentence,) = orders.described(AREA, day(0))
    assert sentence.startswith(f"orders at 127.0.0.1:{orders._server.url.split(':')[-1]}, 3 rows, ")


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        pytest.param("UPDATE orders SET cents = 101 WHERE id = 1", {day(0)}, id="a value"),
        pytest.param(
            "UPDATE orders SET cents = 0 WHERE id = 3", {day(0)}, id="a value in place of null"
        ),
        pytest.param(
            "UPDATE orders SET id = 5 - id WHERE id IN (2, 3)",
            {day(0)},
            id="values that two rows exchange",
        ),
        pytest.param("DELETE FROM orders WHERE id = 4", {day(1)}, id="the last row of a day goes"),
        pytest.param(
            f"INSERT INTO orders VALUES ('{day(2)}', 5, 5)",
            {day(2)},
            id="the first row of a day comes",
        ),
        pytest.param(
            f"UPDATE orders SET ordered_on = '{day(1)}' WHERE id = 1",
            {day(0), day(1)},
            id="a row changes its day",
        ),
        pytest.param(
            f"INSERT INTO orders VALUES ('{day(9)}', 5, 5)",
            set(),
            id="a row of a day that was not asked for",
        ),
        pytest.param("ALTER TABLE orders ADD note text", {day(0), day(1)}, id="a column comes"),
    ],
)
def test_a_change_changes_only_its_days(orders, postgres, change, changed):
    before = looked_at(orders, 0, 1, 2)
    postgres.execute(change)
    assert differing(before, looked_at(orders, 0, 1, 2)) == changed


def test_rewritten_equal_rows_are_the_same_delivery_but_another_state(orders, postgres):
    before = looked_at(orders, 0, 1)
    postgres.execute(
        "UPDATE orders SET cents = 7 WHERE id = 1", "UPDATE orders SET cents = 100 WHERE id = 1"
    )
    after = looked_at(orders, 0, 1)
    assert fingerprints(after) == fingerprints(before)
    assert differing(before, after) == {day(0)}
    postgres.execute("CREATE VIEW seen AS SELECT * FROM orders")
    view = postgres_table(postgres, "orders", "ordered_on", table="seen")
    assert fingerprints(looked_at(view, 0, 1)) == fingerprints(before)


def test_with_changed_at_only_that_column_is_compared(orders, postgres):
    by_change = postgres_table(postgres, "orders", "ordered_on", changed_at="changed_at")
    before = looked_at(by_change, 0, 1)
    postgres.execute("UPDATE orders SET cents = 7 WHERE id = 4")
    assert differing(before, looked_at(by_change, 0, 1)) == set()
    postgres.execute("UPDATE orders SET changed_at = changed_at + interval '1 us' WHERE id = 1")
    assert differing(before, looked_at(by_change, 0, 1)) == {day(0)}


def test_columns_that_are_not_read_are_not_compared(orders, postgres):
    some = postgres_table(postgres, "orders", "ordered_on", columns=["id"])
    before = looked_at(some, 0, 1)
    postgres.execute("UPDATE orders SET cents = 7", "ALTER TABLE orders ADD note text")
    assert fingerprints(looked_at(some, 0, 1)) == fingerprints(before)


def test_settings_of_the_role_do_not_change_fingerprints(orders, postgres):
    before = looked_at(orders, 0, 1)
    settings = {
        "TimeZone": "Asia/Tokyo",
        "DateStyle": "SQL, DMY",
        "IntervalStyle": "iso_8601",
        "extra_float_digits": "0",
    }
    postgres.execute(
        *(f"ALTER ROLE reader SET {name} = '{value}'" for name, value in settings.items())
    )
    try:
        assert differing(before, looked_at(orders, 0, 1)) == set()
    finally:
        postgres.execute("ALTER ROLE reader RESET ALL")


@pytest.mark.parametrize(
    ("kind", "zone"),
    [("timestamptz", z) for z in ("UTC", "Europe/Berlin", "America/Havana")]
    + [("timestamp", "Europe/Berlin")],
)
def test_a_day_of_timestamps_begins_at_midnight_in_the_declared_time_zone(postgres, kind, zone):
    # Clocks went back at 1:00 in Havana on 2019-11-03, to 0:00, and at 3:00 in Berlin on
    # 2019-10-27.
    first = date(2019, 10, 26)
    last = date(2019, 11, 4)
    at = [
        datetime(2019, 10, 25, tzinfo=ZoneInfo("UTC")) + timedelta(minutes=30 * n)
        for n in range(12 * 48)
    ]
    postgres.execute(
        "DROP TABLE IF EXISTS seen",
        f"CREATE TABLE seen (at {kind})",
        "SET TimeZone = 'UTC'",
        f"INSERT INTO seen VALUES {', '.join(f'''('{each:%Y-%m-%d %H:%M}')''' for each in at)},"
        " (NULL), ('infinity')",
    )
    asked = [first + timedelta(days=n) for n in range((last - first).days + 1) if n != 4]
    counted = Counter(
        each.astimezone(ZoneInfo(zone)).date() if kind == "timestamptz" else each.date()
        for each in at
    )
    delivered = postgres_table(postgres, "seen", "at", time_zone=zone).delivered(AREA, asked)
    rows = {
        on: sum(each.files.values()) for on, each in delivered.items() if isinstance(each, Delivery)
    }
    assert rows == {on: counted[on] for on in asked}


def test_a_hundred_days_need_one_query(postgres):
    postgres.execute(
        "DROP TABLE IF EXISTS hundred",
        f"CREATE TABLE hundred AS SELECT date '{day(0)}' + n % 100 AS on_day, n FROM"
        " generate_series(1, 300) n",
    )
    table = postgres_table(postgres, "hundred", "on_day")
    assert len(looked_at(table, *range(100))) == 100
    assert len(postgres.statements("FROM public.hundred")) == 1


ERRORS = {
    "wrong password": ({"password_env": "WRONG_PASSWORD"}, IncompleteDelivery),
    "a password that is not there": ({"password_env": "NO_PASSWORD"}, IncompleteDelivery),
    "no server": ({"url": "postgresql://reader@127.0.0.1:{free}/postgres"}, IncompleteDelivery),
    "no database": ({"url": "postgresql://reader@127.0.0.1:{port}/shop"}, IncompleteDelivery),
    "no table": ({"table": "sales.orders"}, SourceError),
    "no column": ({"columns": ["id", "note"]}, SourceError),
    "no day": ({"day": "sold_on"}, SourceError),
    "a number for a day": ({"day": "id"}, SourceError),
    "no right to read": ({"table": "secret"}, SourceError),
}


@pytest.mark.parametrize(("wrong", "kind"), ERRORS.values(), ids=list(ERRORS))
def test_an_error_of_the_database_fails_every_day(
    orders, postgres, monkeypatch, golden, wrong, kind
):
    monkeypatch.setenv("WRONG_PASSWORD", "tell-nobody")
    postgres.execute(
        "CREATE TABLE IF NOT EXISTS secret (ordered_on date)", "REVOKE ALL ON secret FROM reader"
    )
    ports = {"port": postgres.port, "free": free_port()}
    wrong = {k: v.format(**ports) if k == "url" else v for k, v in wrong.items()}
    given = {
        "name": "orders",
        "day": "ordered_on",
        "url": postgres.url,
        "password_env": "READER_PASSWORD",
    } | wrong
    delivered = PostgresTable(**given).delivered(AREA, days(0, 1))
    assert {type(each) for each in delivered.values()} == {kind}
    for at, each in delivered.items():
        golden(str(each), DAY=at, **ports)
        assert "tell-nobody" not in str(each)
        assert postgres.password not in str(each)


def test_an_invalid_declaration_is_refused_and_no_password_is_shown(refused):
    for url in (
        "postgresql://reader:hunter2@localhost/shop",
        "postgresql://localhost/shop?password=hunter2",
    ):
        text = refused(lambda url=url: PostgresTable("orders", "at", url=url), "a password")
        assert "hunter2" not in text
    for url in NO_DATABASE:
        refused(lambda url=url: PostgresTable("orders", "at", url=url), url)
    for option in ({"time_zone": "Moon"}, {"connections": 3}):
        refused(
            lambda option=option: PostgresTable(
                "orders", "at", url="postgresql://localhost/shop", **option
            ),
            f"{option}",
        )


def test_processes_take_turns_only_if_there_is_a_home(tmp_path):
    home = tmp_path / "home"
    nobody = PostgresTable("o", "at", url=f"postgresql://127.0.0.1:{free_port()}/shop")
    area = LandingArea(tmp_path, home / "landed")
    nobody.delivered(area, [day(0)])
    assert not home.exists()
    home.mkdir()
    nobody.delivered(area, [day(0)])
    assert (home / "landed" / "o.look.lock").exists()


def test_a_full_server_is_tried_again(orders, postgres):
    refusals = 'FATAL:  too many connections for role "reader"'
    before = (postgres.folder / "log").read_text().count(refusals)
    postgres.execute("ALTER ROLE reader CONNECTION LIMIT 0")
    with ThreadPoolExecutor() as threads:
        look = threads.submit(looked_at, orders, 0)
        try:
            while (postgres.folder / "log").read_text().count(refusals) == before:
                assert not look.done()
        finally:
            postgres.execute("ALTER ROLE reader CONNECTION LIMIT -1")
        assert look.result()[day(0)].files == {"orders": 3}


def test_a_pgpass_file_is_used_if_no_variable_is_declared(orders, postgres, tmp_path, monkeypatch):
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"127.0.0.1:{postgres.port}:*:reader:{postgres.password}\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    table = postgres_table(postgres, "orders", "ordered_on", password_env="")
    assert len(looked_at(table, 0, 1)) == 2


def test_reading_a_day_without_rows_is_an_error(orders, spark, postgres, golden):
    assert orders.read(AREA, spark, days(0, 1)).count() == 4
    with pytest.raises(NotDelivered) as raised:
        orders.read(AREA, spark, days(0, 1, 2))
    golden(str(raised.value), PORT=postgres.port)


def test_values_get_spark_types_or_the_text_of_postgresql(postgres, spark):
    columns = {
        "flag boolean": ("true", True),
        "small smallint": ("7", 7),
        "whole int": ("-7", -7),
        "big bigint": ("2^53", 2**53),
        "narrow real": ("0.5", 0.5),
        "wide float8": ("0.1", 0.1),
        "words text": ("'näh'", "näh"),
        "short varchar(9)": ("'a'", "a"),
        "price numeric(10,2)": ("3.14", Decimal("3.14")),
        "exact numeric": ("0.1234567890123456789", "0.1234567890123456789"),
        "raw bytea": (r"'\x00ff'", b"\x00\xff"),
        "born date": ("'1066-10-14'", date(1066, 10, 14)),
        "seen timestamptz": (
            "'2019-08-15 12:00:00.123456+02'",
            datetime(2019, 8, 15, 10, 0, 0, 123456),
        ),
        "local timestamp": ("'2019-08-15 12:00'", datetime(2019, 8, 15, 10)),
        "id uuid": (
            "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        "said json": ("""'{"a":  1}'""", '{"a":  1}'),
        "kept jsonb": ("""'{"a":  1}'""", '{"a": 1}'),
        "tags text[]": ("ARRAY['a,b', NULL]", ["a,b", None]),
        "counts int[]": ("'{}'", []),
        "dates date[]": ("ARRAY['2019-08-15'::date]", "{2019-08-15}"),
        "lasts interval": ("'1 day 2 hours'", "1 day 02:00:00"),
        '"Odd ""Name" int': ("1", 1),
    }
    nothing = ", ".join("NULL" for _ in columns)
    postgres.execute(
        "DROP TABLE IF EXISTS kinds",
        f"CREATE TABLE kinds (on_day date, {', '.join(columns)})",
        f"INSERT INTO kinds VALUES ('{day(0)}',"
        f" {', '.join(value for value, _ in columns.values())}), ('{day(1)}', {nothing})",
    )
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
def test_a_value_that_spark_cannot_hold_is_an_error(postgres, spark, kind, value, golden):
    postgres.execute("DROP TABLE IF EXISTS odd", f"CREATE TABLE odd (on_day date, odd_one {kind})")
    postgres.execute(f"INSERT INTO odd VALUES ('{day(0)}', {value}), ('{day(1)}', NULL)")
    table = postgres_table(postgres, "odd", "on_day")
    assert table.read(AREA, spark, days(1)).count() == 1
    with pytest.raises(Exception, match="odd_one") as raised:
        table.read(AREA, spark, days(0, 1)).collect()
    (text,) = {*re.findall(r'\bodd_one [^"\n]*', str(raised.value))}
    golden(text)
