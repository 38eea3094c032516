"""Files of several days in a landing: each day gets its rows, and only changed days are new."""

import csv
import io
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.maintenance import maintain
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import field
from backfill_assets.sources.files.formats import Csv, JsonLines, Parquet
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.protocol import Delivery, require_usable
from backfill_assets.step.inputs import delivered_for
from backfill_assets.step.sources import unread_lines
from backfill_assets.tables.declaration import table
from tests.worlds.deliveries import day, days, delivery_of, put, refusal_of

SALES = Landing(
    "sales",
    format=Csv(),
    day="sold_on",
    overlap="all",
    fields=[field("item STRING"), field("cents BIGINT")],
)


@pytest.fixture
def area(tmp_path: Path) -> LandingArea:
    return LandingArea(tmp_path / "landing", tmp_path / "home", lake=str(tmp_path / "lake"))


def csv_of(*rows: tuple[object, ...], header: Sequence[str] = ("item", "sold_on", "cents")) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


def parts(area: LandingArea) -> set[str]:
    return {path.name for path in Path(area.lake).rglob("day=*/*")}


def test_each_day_gets_its_rows_also_over_a_gap_and_from_several_files(area, spark):
    first = [("a", day(0), 1), ('quoted, "b"', day(3), 2), ("a", day(0), 3)]
    second = [("c", day(3), 4), ("d", day(4), 5)]
    put(area.root, "sales/one.csv", csv_of(*first))
    put(area.root, "sales/below/two.csv.gz", csv_of(*second))
    delivered = SALES.delivered(area, days(*range(6)))
    files = {
        on: delivery.files if isinstance(delivery, Delivery) else type(delivery)
        for on, delivery in delivered.items()
    }
    assert files == {
        day(0): {"sales/one.csv": 2},
        day(1): NotDelivered,
        day(2): NotDelivered,
        day(3): {"sales/below/two.csv.gz": 1, "sales/one.csv": 1},
        day(4): {"sales/below/two.csv.gz": 1},
        day(5): NotDelivered,
    }
    read = SALES.read(area, spark, days(0, 3, 4)).select(
        "arrival_day", "source_file", "item", "cents"
    )
    expected = [(on, "sales/one.csv", item, cents) for item, on, cents in first]
    expected += [(on, "sales/below/two.csv.gz", item, cents) for item, on, cents in second]
    assert sorted(map(tuple, read.collect())) == sorted(expected)
    assert SALES.unmatched(area) == []
    assert delivery_of(SALES, area).undeclared == []


def test_a_day_that_several_files_have_is_refused_by_default(area, golden):
    rolling = replace(SALES, overlap="refuse")
    put(area.root, "sales/1.csv", csv_of(("a", day(0), 1), ("b", day(1), 2)))
    put(area.root, "sales/2.csv", csv_of(("b", day(1), 3), ("c", day(2), 4)))
    delivered = delivered_for(raw(rolling), days(0, 1, 2), area, {})
    assert [isinstance(delivered[on], Delivery) for on in days(0, 1, 2)] == [True, False, True]
    golden(str(delivered[day(1)]))
    accepted = delivered_for(raw(rolling), [day(1)], area, {}, "sales/2.csv")
    assert require_usable(accepted)[day(1)].files == {"sales/1.csv": 1, "sales/2.csv": 1}


def test_a_file_in_utf_8_that_is_declared_otherwise_is_refused(area, golden):
    put(area.root, "sales/1.csv", csv_of(("Zürich", day(0), 1)))
    western = replace(SALES, format=Csv(encoding="cp1252"))
    golden(delivery_of(western, area).doubts["sales/1.csv"])
    assert not delivery_of(SALES, area).doubts


def test_the_last_of_several_files_may_have_the_day(area, spark):
    rolling = replace(SALES, overlap="last")
    put(area.root, "sales/1.csv", csv_of(("a", day(0), 1), ("b", day(1), 2)))
    put(area.root, "sales/2.csv", csv_of(("b", day(1), 3), ("c", day(2), 4)))
    delivery = delivery_of(rolling, area, day(1))
    assert (delivery.files, delivery.set_aside, delivery.doubts) == (
        {"sales/2.csv": 1},
        ["sales/1.csv"],
        {},
    )
    read = rolling.read(area, spark, days(0, 1, 2)).select("arrival_day", "item", "cents")
    expected = [(day(0), "a", 1), (day(1), "b", 3), (day(2), "c", 4)]
    assert sorted(map(tuple, read.collect())) == expected


def test_a_new_version_changes_exactly_the_days_whose_rows_changed(area, seed):
    chance = random.Random(seed)
    rows = {on: [(f"i{n}", on, n) for n in range(3)] for on in days(*range(6))}

    def write() -> None:
        in_file = [row for on in rows for row in rows[on]]
        # Days lie between each other, and the rows of a day stay in order.
        in_file.sort(key=lambda row: row[2])
        put(area.root, "sales/all.csv", csv_of(*in_file))

    write()
    before = require_usable(SALES.delivered(area, list(rows)))
    for _ in range(8):
        changed = {on for on in rows if chance.random() < 0.4}
        for on in changed:
            rows[on] = [*rows[on], (f"n{chance.random()}", on, len(rows[on]))]
        write()
        now = require_usable(SALES.delivered(area, list(rows)))
        assert {on for on in rows if now[on].fingerprint != before[on].fingerprint} == changed
        before = now


@pytest.mark.parametrize("form", [Csv(), Csv(";"), JsonLines(), Parquet()], ids=repr)
def test_any_format_is_split_as_duckdb_groups_it(area, spark, form):
    source = replace(SALES, format=form, day_formats=["%d/%m/%Y", "%Y-%m-%d"])
    rows = [
        (f"item {n}", f"{day(n % 5):%d/%m/%Y}" if n % 2 else str(day(n % 5)), n) for n in range(50)
    ]
    path = put(area.root, f"sales/all{form.endings[0]}", "")
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t (item VARCHAR, sold_on VARCHAR, cents BIGINT)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        how = {JsonLines: "FORMAT json", Parquet: "FORMAT parquet"}.get(
            type(form), f"FORMAT csv, DELIMITER '{getattr(form, 'delimiter', ',')}'"
        )
        database.execute(f"COPY t TO '{path}' ({how})")
        on = "coalesce(try_strptime(sold_on, '%d/%m/%Y'), try_strptime(sold_on, '%Y-%m-%d'))::DATE"
        expected = database.execute(
            f"SELECT {on} AS day, item, cents FROM t ORDER BY ALL"
        ).fetchall()
    read = source.read(area, spark, days(*range(5))).select("arrival_day", "item", "cents")
    assert sorted(map(tuple, read.collect())) == expected


DIALECTS = {
    "another encoding, escapes and lines before the header": (
        Csv(";", encoding="cp1252", escape="\\", skip_rows=1, comment="#"),
        "sold by hand\nitem;sold_on;cents\nZürich;{0};1\n# a remark\n"
        '6\\" pipe;{2};2\n"a;b";{0};3\n'.encode("cp1252"),
        {0: [("Zürich", 1), ("a;b", 3)], 2: [('6" pipe', 2)]},
    ),
    "no header, and a total": (
        Csv(header=["item", "sold_on", "cents"], footer="Total", quote="'"),
        b"'a, b',{0},1\nc,{2},2\nTotal,,3\n",
        {0: [("a, b", 1)], 2: [("c", 2)]},
    ),
    "line breaks in values": (
        Csv(multiline=True),
        b'item,sold_on,cents\n"a\nb",{0},1\n"c""",{2},2\n',
        {0: [("a\nb", 1)], 2: [('c"', 2)]},
    ),
    "a header again, in another order": (
        Csv(repeated_header="skip"),
        b"item,sold_on,cents\na,{0},1\ncents,item,sold_on\n2,b,{2}\n",
        {0: [("a", 1)], 2: [("b", 2)]},
    ),
    "an array": (
        JsonLines(),
        b'[{{"item": "a", "sold_on": "{0}", "cents": 1}},\n'
        b'{{"item": "b", "sold_on": "{2}", "cents": 2}}]',
        {0: [("a", 1)], 2: [("b", 2)]},
    ),
    "rows within an object": (
        JsonLines(rows="data.items", encoding="utf-16"),
        '{{"data": {{"items": [{{"item": "Zürich", "sold_on": "{0}", "cents": 1}}]}}}}'.encode(
            "utf-16"
        ),
        {0: [("Zürich", 1)]},
    ),
}


@pytest.mark.parametrize(("form", "text", "expected"), DIALECTS.values(), ids=DIALECTS)
def test_a_file_in_any_dialect_is_split(area, spark, form, text, expected):
    encoding = form.encoding
    written = text.decode(encoding).format(*map(str, days(0, 1, 2))).encode(encoding)
    source = replace(SALES, format=form)
    put(area.root, f"sales/all{form.endings[0]}", written)
    read = source.read(area, spark, days(*expected)).collect()
    assert [row for row in read if row["malformed"] or row["unparsed"]] == []
    found: dict[int, list[tuple[object, ...]]] = {}
    for row in read:
        at = (row["arrival_day"] - day(0)).days
        found[at] = sorted([*found.get(at, []), (row["item"], row["cents"])])
    assert found == expected


def test_values_are_parsed_as_in_other_files(area, spark):
    form = Csv(";", decimal=",", nulls=["-"])
    fields = [field("item STRING"), field("price DECIMAL(9, 2)"), field("n BIGINT")]
    text = (
        "item;sold_on;price;n\n"
        "a;{0};1,50;1\nb;{0};1.50; 2\nc;{2};-;1e2\n"
        'too;{2};many;1;values\n"{2}";{2};2,5;106,0\n'
    )
    source = replace(SALES, format=form, fields=fields)
    put(area.root, "sales/all.csv", text.format(*map(str, days(0, 1, 2))))
    rows = source.read(area, spark, days(0, 2)).collect()
    values = {row["item"]: (row["price"], row["n"], row["unparsed"]) for row in rows}
    assert values == {
        "a": (Decimal("1.50"), 1, {}),
        "b": (None, None, {"price": "1.50", "n": " 2"}),
        "c": (None, None, {"n": "1e2"}),
        None: (None, None, {}),
        str(day(2)): (Decimal("2.50"), 106, {}),
    }
    assert [row["malformed"] for row in rows if row["item"] is None] == [
        f"too;{day(2)};many;1;values"
    ]
    lines = {on: require_usable(source.delivered(area, [on]))[on].files for on in days(0, 2)}
    assert lines == {day(0): {"sales/all.csv": 2}, day(2): {"sales/all.csv": 3}}


def test_rows_of_days_outside_the_calendar_are_counted_and_named(area, golden):
    calendar = Calendar(day(0), day(2))
    put(area.root, "sales/good.csv", csv_of(("a", day(0), 1), ("b", day(2), 2)))
    put(area.root, "sales/far.csv", csv_of(("a", day(1), 1), *[("b", day(9), 2)] * 3))
    (far,) = SALES.outside(area, calendar)
    (line,) = unread_lines([raw(SALES)], area, calendar).values()
    assert line.endswith(far)
    golden(line)
    named = replace(SALES, files="{first}_{last}.csv")
    put(area.root, f"sales/{day(7)}_{day(8)}.csv", csv_of(("a", day(7), 1)))
    assert named.outside(area, calendar) == [f"sales/{day(7)}_{day(8)}.csv"]
    assert SALES.outside(area, Calendar(day(0), day(9))) == []


def test_times_are_of_their_day_in_utc(area):
    at = datetime(2019, 8, 15, 23, 30, tzinfo=UTC)
    (area.root / "sales").mkdir(parents=True)
    table = pa.table(
        {"item": ["a", "b"], "cents": [1, 2], "sold_on": [at, at + timedelta(hours=1)]}
    )
    pq.write_table(table, area.root / "sales/a.parquet")
    source = replace(SALES, format=Parquet())
    delivered = require_usable(source.delivered(area, days(0, 1)))
    assert [delivered[on].files["sales/a.parquet"] for on in days(0, 1)] == [1, 1]


def raw(source: Landing):
    return table(
        "raw/a",
        partition_by="arrival_day",
        columns=source.row_columns,
        reads={"rows": source},
        version="1",
    )(lambda rows: rows)


def test_rows_without_a_day_refuse_all_days_until_the_file_is_accepted(area, spark, golden):
    put(
        area.root,
        "sales/a.csv",
        csv_of(("a", day(0), 1), ("b", "soon", 2), ("c", "", 3), ("d", day(1), 4)),
    )
    refused = delivered_for(raw(SALES), days(0, 1), area, {})
    for on in days(0, 1):
        golden(str(refused[on]), ON=on)
    accepted = require_usable(delivered_for(raw(SALES), days(0, 1), area, {}, "sales/a.csv"))
    assert [accepted[on].files for on in days(0, 1)] == [{"sales/a.csv": 1}] * 2
    assert SALES.read(area, spark, days(0, 1)).count() == 2


def test_names_may_have_the_first_and_the_last_day(area, golden):
    source = replace(SALES, files="weeks/{first}_{last}*.csv")
    rows = [("a", day(0), 1), ("b", day(2), 2)]
    put(area.root, f"sales/weeks/{day(0)}_{day(2)}.csv", csv_of(*rows))
    put(area.root, f"sales/weeks/{day(2)}_{day(4)} again.csv", csv_of(*rows[1:], ("c", day(4), 3)))
    put(area.root, "sales/weeks/2019-08-15_later.csv", csv_of(*rows))
    delivered = source.delivered(area, days(*range(6)))
    first = f"sales/weeks/{day(0)}_{day(2)}.csv"
    second = f"sales/weeks/{day(2)}_{day(4)} again.csv"
    files = {
        on: delivery.files if isinstance(delivery, Delivery) else {}
        for on, delivery in delivered.items()
    }
    assert files == {
        day(0): {first: 1},
        day(1): {first: 0},
        day(2): {first: 1, second: 1},
        day(3): {second: 0},
        day(4): {second: 1},
        day(5): {},
    }
    doubts = {
        on: dict(delivery.doubts)
        for on, delivery in delivered.items()
        if isinstance(delivery, Delivery) and delivery.doubts
    }
    assert {on: {*names} for on, names in doubts.items()} == {day(2): {first, second}}
    golden("\n".join(map(" ".join, sorted(doubts[day(2)].items()))), "doubts")
    allowed = replace(source, duplicates="allow").delivered(area, [day(2)])
    assert not require_usable(allowed)[day(2)].doubts
    assert source.unmatched(area) == ["sales/weeks/2019-08-15_later.csv"]
    # A day of the file without rows.
    golden(str(delivered_for(raw(source), [day(1)], area, {})[day(1)]), "no row")


def test_rows_outside_the_days_of_the_name_are_counted_and_refused(area, spark, golden):
    source = replace(SALES, files="{first}_{last}.csv")
    name = f"sales/{day(0)}_{day(1)}.csv"
    rows = [("a", day(0), 1), ("b", day(1), 2), ("c", day(2), 3), ("d", day(3), 4)]
    put(area.root, name, csv_of(*rows))
    refused = delivered_for(raw(source), days(0, 1), area, {})
    for on in days(0, 1):
        golden(str(refused[on]), f"{on}")
    assert type(source.delivered(area, [day(2)])[day(2)]) is NotDelivered
    accepted = require_usable(delivered_for(raw(source), days(0, 1), area, {}, name))
    assert [accepted[on].files for on in days(0, 1)] == [{name: 1}] * 2
    read = source.read(area, spark, days(0, 1)).select("arrival_day", "item")
    assert sorted(map(tuple, read.collect())) == [(day(0), "a"), (day(1), "b")]


def test_a_file_that_cannot_be_split_fails_only_the_days_of_its_name(area):
    source = replace(SALES, files="{first}_{last}.csv")
    put(area.root, f"sales/{day(0)}_{day(1)}.csv", "item,on\n")
    put(area.root, f"sales/{day(2)}_{day(2)}.csv", csv_of(("a", day(2), 1)))
    delivered = source.delivered(area, days(0, 1, 2))
    assert [isinstance(delivered[on], SourceError) for on in days(0, 1, 2)] == [True, True, False]


def test_a_file_that_is_cut_off_or_short_is_doubted_on_all_its_days(area):
    put(area.root, "sales/a.csv", csv_of(("a", day(0), 1)) + f"b,{day(1)}")
    assert {*delivery_of(SALES, area).doubts.values()} == {"is cut off"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "item,on\na,2019-08-15\n"),
        ("a.csv", "sold_on,cents,cents\n2019-08-15,1,1\n"),
        ("a.csv", "item,sold_on,cents\na,soon,1\n"),
        ("a.csv", "item,sold_on,cents\n"),
        ("a.csv.gz", b"no gzip"),
        ("a.csv", "item,sold_on\n" + "x" * (2**24 + 1) + "\n"),
    ],
    ids=["no such column", "twice", "no day", "no row", "not packed", "a long line"],
)
def test_a_file_that_cannot_be_split_fails_every_day(area, name, text, golden):
    put(area.root, "sales/good.csv", csv_of(("a", day(0), 1)))
    put(area.root, f"sales/{name}", text)
    for on, refused in SALES.delivered(area, days(0, 7)).items():
        assert isinstance(refused, SourceError)
        golden(str(refused), DAY=on)
    (area.root / f"sales/{name}").unlink()
    delivery_of(SALES, area)


def test_a_file_is_split_once_per_content(area):
    path = put(area.root, "sales/a.csv", csv_of(("a", day(0), 1), ("b", day(1), 2)))
    delivery_of(SALES, area)
    (document,) = Path(area.lake).rglob("*.json")
    before = document.stat().st_mtime_ns
    path.touch()
    again = LandingArea(area.root, None, lake=area.lake)
    delivery_of(SALES, again)
    assert document.stat().st_mtime_ns == before
    put(area.root, "sales/a.csv", csv_of(("a", day(0), 1), ("b", day(1), 3)))
    delivery_of(SALES, again)
    assert document.stat().st_mtime_ns > before
    assert [*Path(area.lake).rglob("*.json")] == [document]


def test_maintenance_removes_parts_of_earlier_versions(area):
    for cents in (1, 2):
        put(area.root, "sales/a.csv", csv_of(("a", day(0), 1), ("b", day(1), cents)))
        delivery_of(SALES, area)
    assert len(parts(area)) == 3
    maintain(Lake(area.lake), 30, datetime.now(UTC) + timedelta(days=8), "ada")
    assert len(parts(area)) == 2
    assert delivery_of(SALES, area, day(1)).files == {"sales/a.csv": 1}


def test_settled_files_are_waited_for(area, golden):
    written = put(area.root, "sales/a.csv", csv_of(("a", day(0), 1))).stat().st_mtime
    later = replace(area, clock=lambda: written + 5.2)
    golden(str(refusal_of(replace(SALES, settled=60), later)))


@pytest.mark.parametrize(
    "given",
    [
        {"files": "%Y-%m-%d.csv"},
        {"files": "{year}/{month}/*.csv"},
        {"files": "{first}.csv"},
        {"day": "", "files": "{first}_{last}.csv", "overlap": "refuse"},
        {"day": "", "files": "%Y-%m-%d.csv"},
        {"overlap": "newest"},
        {"day": 3},
        {"day_formats": [1]},
    ],
    ids=str,
)
def test_invalid_declarations_are_refused(given, refused):
    refused(lambda: replace(SALES, **given))
