"""Days of a Delta table that its partitions do not say: by a column, an expression, or a file.

Each is compared with the rows that were written, in plain Python.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.delta import open_table
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.delta import DeltaSource
from backfill_assets.sources.protocol import Delivery
from backfill_assets.tables.declaration import settings_of
from tests.worlds.deliveries import day, days, refusal_of
from tests.worlds.services import area_at

pytestmark = [pytest.mark.long, pytest.mark.lake]

BY_DATE = DeltaSource("sales", day="sold_on")
BY_TIME = DeltaSource("sales", day="CAST(sold_at AS DATE)")
IN_MADRID = replace(BY_TIME, time_zone="Europe/Madrid")
SCHEMA = pa.schema(
    [
        ("sold_at", pa.timestamp("us", "UTC")),
        ("sold_on", pa.date32()),
        ("store", pa.string()),
        ("hour", pa.int32()),
        ("text", pa.string()),
        ("cents", pa.int64()),
    ]
)


def sale(at: datetime, cents: int) -> dict:
    return {
        "sold_at": at,
        "sold_on": at.date(),
        "store": "a b/ç" if cents % 2 else None,
        "hour": at.hour,
        "text": f"{at.date()}T{at:%H:%M}",
        "cents": cents,
    }


def at(number: int, hour: int, minute: int = 0) -> datetime:
    return datetime.combine(day(number), time(hour, minute), UTC)


# Three days with a gap, in and near the hours that belong to another day in Madrid.
SALES = [
    sale(moment, cents)
    for cents, moment in enumerate(
        [
            at(0, 0),
            at(0, 21, 59),
            at(0, 22),
            at(0, 23, 59),
            at(1, 0),
            at(1, 12),
            at(3, 1),
            at(3, 22),
        ]
    )
]


def write(
    root: Path, rows: Iterable[dict] = SALES, by: Iterable[str] = (), **options
) -> DeltaTable:
    place = str(root / "sales")
    table = pa.Table.from_pylist([*rows], SCHEMA)
    write_deltalake(place, table, mode="append", partition_by=[*by] or None, **options)
    return DeltaTable(place)


def without_statistics(root: Path, *, every: int = 1) -> None:
    """Take the statistics of each file of `every` from the log. Other writers leave them out."""
    files = 0
    for log in sorted((root / "sales" / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                files += 1
                if files % every == 0:
                    action["add"].pop("stats", None)
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def by_day(rows: Iterable[dict], zone: str = "UTC") -> dict[date, list[int]]:
    cents = defaultdict(list)
    for row in rows:
        cents[row["sold_at"].astimezone(ZoneInfo(zone)).date()].append(row["cents"])
    return {of: sorted(values) for of, values in cents.items()}


def delivered(source: DeltaSource, area: LandingArea, *numbers: int) -> dict[date, Delivery]:
    answers = source.delivered(area, days(*(numbers or range(5))))
    refused = [answer for answer in answers.values() if not isinstance(answer, Delivery)]
    assert {type(answer) for answer in refused} <= {NotDelivered}, refused
    return {of: answer for of, answer in answers.items() if isinstance(answer, Delivery)}


def counts(source: DeltaSource, area: LandingArea) -> dict[date, int]:
    return {of: answer.files["sales"] for of, answer in delivered(source, area).items()}


def numbers(cents: dict[date, list[int]]) -> dict[date, int]:
    return {of: len(values) for of, values in cents.items()}


def read(source: DeltaSource, area: LandingArea, spark, *numbers: int) -> dict[date, list[int]]:
    cents = defaultdict(list)
    for row in source.read(area, spark, days(*numbers)).collect():
        cents[row.arrival_day].append(row.cents)
    return {of: sorted(values) for of, values in cents.items()}


WAYS = [
    pytest.param(BY_DATE, (), id="a DATE, no partitions"),
    pytest.param(BY_DATE, ("sold_on", "store"), id="a DATE and a store as partitions"),
    pytest.param(BY_DATE, ("hour", "sold_on"), id="an hour and a DATE as partitions"),
    pytest.param(BY_DATE, ("store",), id="a DATE, partitions of a store"),
    pytest.param(BY_TIME, (), id="a cast"),
    pytest.param(BY_TIME, ("store",), id="a cast, partitions of a store"),
    pytest.param(replace(BY_TIME, day="cast(`sold_at` as date)"), (), id="a cast with backticks"),
    pytest.param(replace(BY_TIME, day="CAST(Sold_At AS DATE)"), ("store",), id="other capitals"),
    pytest.param(DeltaSource("sales", "substring(text, 1, 10)"), (), id="a part of a text"),
    pytest.param(
        DeltaSource("sales", "make_date(2019, 8, CAST(substring(text, 9, 2) AS INT))"),
        ("text",),
        id="a date from partitions",
    ),
    pytest.param(
        DeltaSource("sales", "CASE WHEN hour >= 0 THEN sold_on END"),
        ("hour",),
        id="an expression of a partition and a column",
    ),
]


@pytest.mark.parametrize("has_statistics", [True, False], ids=["statistics", "none"])
@pytest.mark.parametrize(("source", "by"), WAYS)
def test_rows_have_the_days_that_they_say(tmp_path, spark, source, by, has_statistics):
    write(tmp_path, SALES[:5], by)
    write(tmp_path, SALES[5:], by)
    if not has_statistics:
        without_statistics(tmp_path)
    area = LandingArea(tmp_path)
    wanted = by_day(SALES)
    assert counts(source, area) == numbers(wanted)
    assert read(source, area, spark, 0, 3) == {of: wanted[of] for of in days(0, 3)}
    assert source.unmatched(area) == []
    rows = source.read(area, spark, days(1))
    assert rows.columns == ["arrival_day", *SCHEMA.names]
    assert source.size(area, days(0, 1, 3)) == sum(
        file.stat().st_size for file in (tmp_path / "sales").rglob("*.parquet")
    )


@pytest.mark.parametrize("zone", ["UTC", "Europe/Madrid", "America/St_Johns", "Asia/Kolkata"])
def test_days_begin_at_midnight_of_the_time_zone(tmp_path, spark, zone):
    # Clocks change on the night before March 31 and October 27 in Madrid.
    moments = [
        datetime(2024, month, of, tzinfo=UTC) + timedelta(minutes=30 * half)
        for month, of in ((3, 30), (3, 31), (10, 26), (10, 27))
        for half in range(48)
    ]
    sales = [sale(moment, cents) for cents, moment in enumerate(moments)]
    write(tmp_path, sales)
    source = replace(BY_TIME, time_zone=zone)
    area = LandingArea(tmp_path)
    wanted = by_day(sales, zone)
    found = {
        of: answer.files["sales"] if isinstance(answer, Delivery) else 0
        for of, answer in source.delivered(area, [*wanted]).items()
    }
    assert found == numbers(wanted)
    rows = source.read(area, spark, [*wanted]).collect()
    assert {of: sorted(r.cents for r in rows if r.arrival_day == of) for of in wanted} == wanted


def test_a_commit_changes_only_the_days_of_which_it_adds_or_removes_files(tmp_path):
    area = LandingArea(tmp_path)
    for of in (0, 1, 3):
        write(tmp_path, [row for row in SALES if row["sold_on"] == day(of)])
    before = delivered(BY_TIME, area)
    write(tmp_path, [sale(at(1, 5), 9), sale(at(2, 5), 10)])
    after = delivered(BY_TIME, area)
    changed = {of for of in after if of not in before or after[of] != before[of]}
    assert changed == {*days(1, 2)}
    DeltaTable(str(tmp_path / "sales")).delete("cents = 10")
    assert delivered(BY_TIME, area).keys() == before.keys()


def test_deletion_vectors_change_only_the_days_of_deleted_rows(tmp_path, spark):
    """All rows are in one file, whose path and size stay."""
    place = tmp_path / "sales"
    write(tmp_path)
    spark.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    area = LandingArea(tmp_path)
    before = delivered(BY_TIME, area)
    spark.sql(f"DELETE FROM delta.`{place}` WHERE cents = 4")
    after = delivered(BY_TIME, area)
    assert len(DeltaTable(str(place)).file_uris()) == 1
    assert {of for of in before if before[of].fingerprint != after[of].fingerprint} == {day(1)}
    wanted = by_day(row for row in SALES if row["cents"] != 4)
    assert counts(BY_TIME, area) == numbers(wanted)
    assert read(BY_TIME, area, spark, 0, 1, 3) == wanted
    # Another row of the day: as many rows, and other ones.
    spark.sql(f"RESTORE TABLE delta.`{place}` TO VERSION AS OF 1")
    assert delivered(BY_TIME, area) == before
    spark.sql(f"DELETE FROM delta.`{place}` WHERE cents = 5")
    assert delivered(BY_TIME, area)[day(1)].fingerprint != after[day(1)].fingerprint


def test_a_day_whose_rows_are_all_marked_has_no_lines(tmp_path, spark):
    place = tmp_path / "sales"
    write(tmp_path)
    spark.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    spark.sql(f"DELETE FROM delta.`{place}` WHERE sold_on = DATE'{day(1)}'")
    area = LandingArea(tmp_path)
    assert counts(BY_TIME, area) == {day(0): 4, day(1): 0, day(3): 2}
    assert read(BY_TIME, area, spark, 0, 1, 3) == by_day(
        row for row in SALES if row["sold_on"] != day(1)
    )


@pytest.mark.parametrize("name", ["event-day", "day%", "order", "date", "é"])
@pytest.mark.parametrize("by", [True, False], ids=["a partition", "no partition"])
def test_a_column_has_any_name(tmp_path, spark, name, by):
    rows = pa.table({name: [day(0), day(0), day(1)], "day": [None, None, 1], "cents": [1, 2, 3]})
    write_deltalake(str(tmp_path / "sales"), rows, partition_by=[name] if by else None)
    area = LandingArea(tmp_path)
    source = DeltaSource("sales", name)
    assert counts(source, area) == {day(0): 2, day(1): 1}
    assert read(source, area, spark, 0, 1) == {day(0): [1, 2], day(1): [3]}


def test_a_function_may_have_the_name_of_a_column(tmp_path, spark):
    rows = [{"year": 2018, "month": 8, "of": 15, "cents": 1}]
    table = pa.Table.from_pylist(rows)
    write_deltalake(str(tmp_path / "sales"), table, partition_by=["year", "month", "of"])
    source = DeltaSource("sales", "make_date(year(make_date(year + 1, 1, 1)), month, of)")
    area = LandingArea(tmp_path)
    assert counts(source, area) == {day(0): 1}
    assert read(source, area, spark, 0) == {day(0): [1]}


def test_rows_without_a_day_are_listed_and_not_read(tmp_path, spark):
    none = sale(at(0, 1), 100) | {"sold_on": None, "text": "no day"}
    write(tmp_path, [*SALES, none])
    area = LandingArea(tmp_path)
    assert counts(BY_DATE, area) == numbers(by_day(SALES))
    assert BY_DATE.unmatched(area) == ["sales/sold_on=None"]
    by_text = DeltaSource("sales", "substring(text, 1, 10)")
    assert by_text.unmatched(area) == ["sales/substring(text, 1, 10)=no day"]
    assert read(BY_DATE, area, spark, 0, 1, 3) == by_day(SALES)
    assert read(by_text, area, spark, 0, 1, 3) == by_day(SALES)


@pytest.mark.parametrize("every", [1, 2], ids=["no file has counts", "every second file has"])
@pytest.mark.parametrize("by", [(), ("sold_on",)], ids=["no partitions", "by day"])
def test_a_file_without_counts_is_read_once(tmp_path, by, every):
    for row in SALES:
        write(tmp_path, [row], by)
    without_statistics(tmp_path, every=every)
    area = LandingArea(tmp_path, tmp_path / "landed")
    before = delivered(BY_DATE, area)
    assert counts(BY_DATE, area) == numbers(by_day(SALES))
    for file in (tmp_path / "sales").rglob("*.parquet"):
        file.unlink()
    # What a new process finds.
    assert delivered(BY_DATE, area) == before
    row = sale(at(2, 5), 10)
    write(tmp_path, [row], by)
    without_statistics(tmp_path, every=every)
    assert counts(BY_DATE, area) == numbers(by_day([*SALES, row]))
    refused = refusal_of(BY_DATE, LandingArea(tmp_path))
    assert type(refused) is SourceError


def test_damaged_saved_counts_are_counted_again(tmp_path):
    write(tmp_path)
    without_statistics(tmp_path)
    area = LandingArea(tmp_path, tmp_path / "landed")
    wanted = counts(BY_DATE, area)
    (saved,) = (tmp_path / "landed").iterdir()
    saved.write_text('{"a')
    assert counts(BY_DATE, area) == wanted == numbers(by_day(SALES))


def test_statistics_that_a_checkpoint_lacks_change_no_fingerprint(tmp_path):
    names = ("writeStatsAsJson", "writeStatsAsStruct")
    configuration = {f"delta.checkpoint.{name}": "false" for name in names}
    table = write(tmp_path, by=["sold_on"], configuration=configuration)
    area = LandingArea(tmp_path)
    before = delivered(BY_DATE, area)
    table.create_checkpoint()
    (tmp_path / "sales" / "_delta_log" / f"{0:020}.json").unlink()
    opened = open_table(str(tmp_path / "sales"))
    assert opened
    assert {*pa.table(opened.get_add_actions(flatten=True))["num_records"].to_pylist()} == {None}
    assert delivered(BY_DATE, area) == before
    assert counts(BY_DATE, area) == numbers(by_day(SALES))


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"no parquet")])
@pytest.mark.parametrize("by", [(), ("sold_on",)], ids=["no partitions", "by day"])
def test_a_file_that_cannot_be_counted_is_named(tmp_path, by, damage):
    write(tmp_path, SALES[:1], by)
    without_statistics(tmp_path)
    (file,) = (tmp_path / "sales").rglob("*.parquet")
    damage(file)
    refused = refusal_of(BY_DATE, LandingArea(tmp_path))
    assert type(refused) is SourceError
    assert f"{file} cannot be read: " in str(refused)


def test_columns_that_older_files_lack_are_null(tmp_path):
    place = str(tmp_path / "sales")
    write_deltalake(place, pa.table({"cents": [1]}))
    row = pa.Table.from_pylist(SALES[:1], SCHEMA)
    write_deltalake(place, row, mode="append", schema_mode="merge")
    area = LandingArea(tmp_path)
    assert counts(BY_DATE, area) == {day(0): 1}
    assert BY_DATE.unmatched(area) == ["sales/sold_on=None"]


def test_texts_of_several_forms_are_not_in_the_order_of_their_days(tmp_path):
    texts = ["2024-06-01", "2024-10-01", "2024-6-1"]
    write(tmp_path, [SALES[0] | {"text": text} for text in texts])
    source = DeltaSource("sales", "CAST(text AS DATE)")
    wanted = [date(2024, 6, 1), date(2024, 10, 1)]
    found = source.delivered(LandingArea(tmp_path), wanted).values()
    assert [answer.files["sales"] for answer in found if isinstance(answer, Delivery)] == [2, 1]


def test_timestamps_of_older_spark_are_the_same(tmp_path):
    write(tmp_path)
    (file,) = (tmp_path / "sales").rglob("*.parquet")
    pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
    without_statistics(tmp_path)
    assert counts(IN_MADRID, LandingArea(tmp_path)) == numbers(by_day(SALES, "Europe/Madrid"))


@pytest.mark.parametrize("of", ["sold_at", "cents", "cents + 1", "gone", "CAST(store AS DATE)"])
def test_a_day_of_another_type_fails_the_days(golden, tmp_path, of):
    write(tmp_path)
    refused = refusal_of(DeltaSource("sales", of), LandingArea(tmp_path))
    assert type(refused) is SourceError
    # DuckDB says the rest of its errors.
    golden(re.sub(r"(?<=computed: )(\w+ Error).*", r"\1", str(refused)))


def test_an_expression_that_spark_knows_otherwise_is_not_read(tmp_path, spark, refused):
    """Texts begin at 1. At 0, DuckDB finds nothing, and Spark the first letter."""
    write(tmp_path)
    source = DeltaSource("sales", "substring(text, 0, 11)")
    area = LandingArea(tmp_path)
    assert counts(source, area) == numbers(by_day(SALES))
    refused(lambda: source.read(area, spark, days(0)), kind=SourceError)


def test_renamed_columns_are_refused_unless_the_day_is_a_partition(tmp_path, spark):
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    for name, by in (("plain", ""), ("sales", "PARTITIONED BY (sold_on)")):
        place = f"delta.`{tmp_path}/{name}`"
        spark.sql(f"CREATE TABLE {place} (sold_on DATE, n BIGINT) USING delta {by} {mapped}")
        spark.sql(f"INSERT INTO {place} VALUES (DATE'{day(0)}', 1), (DATE'{day(1)}', 2)")
        spark.sql(f"ALTER TABLE {place} RENAME COLUMN n TO cents")
    area = LandingArea(tmp_path)
    refused = refusal_of(replace(BY_DATE, path="plain"), area)
    assert type(refused) is SourceError
    assert "delta.columnMapping.mode" in str(refused)
    assert counts(BY_DATE, area) == {day(0): 1, day(1): 1}
    assert read(BY_DATE, area, spark, 0, 1) == {day(0): [1], day(1): [2]}


def test_only_a_time_zone_that_is_given_is_in_the_version():
    assert settings_of(BY_TIME) == {"name": "'sales'", "day": "'CAST(sold_at AS DATE)'"}
    assert settings_of(IN_MADRID)["time_zone"] == "'Europe/Madrid'"


def test_an_empty_table_delivers_nothing(tmp_path):
    DeltaTable.create(str(tmp_path / "sales"), SCHEMA)
    for source in (BY_DATE, IN_MADRID):
        assert counts(source, LandingArea(tmp_path)) == {}
        assert source.unmatched(LandingArea(tmp_path)) == []


WRONG = (
    {"day": "CAST(sold_at AS"},
    {"day": "sold_on); DROP TABLE (x"},
    {"day": "(order)"},
    {"day": 1},
    {"time_zone": "Mars"},
    {"fewest": 2},
    {"fewest": 2.0},
)


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_a_wrong_declaration_is_refused_where_it_is_made(refused, given):
    refused(lambda: DeltaSource(**{"name": "sales", "day": "sold_on"} | given))


def test_a_table_in_an_object_store_is_counted_as_on_a_disk(bucket, tmp_path):
    write(tmp_path / "disk")
    write(tmp_path / "disk", [sale(at(2, 3), 9)])
    without_statistics(tmp_path / "disk")
    bucket.put_all(tmp_path / "disk")
    area = area_at(bucket.place, tmp_path)
    on_disk = delivered(BY_TIME, LandingArea(tmp_path / "disk"))
    assert delivered(BY_TIME, area) == on_disk
    with bucket.counting() as requests:
        assert delivered(BY_TIME, area) == on_disk
    assert not any(".parquet" in str(request) for request in requests)
