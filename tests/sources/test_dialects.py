"""Files in declared dialects, written by pandas and DuckDB, against what is read of them."""

import csv
import gzip
import io
import json
import re
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill_assets import Csv, JsonLines, Landing, Parquet, field
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.formats import AnyFormat
from backfill_assets.sources.files.rows import spark_readable
from tests.worlds.deliveries import day, delivery_of, put, refusal_of
from tests.worlds.depth import tries

NAMES = ["first", "second", "third"]
FIELDS = [field(f"{name} STRING", required=True) for name in NAMES]
SALES = [field("n BIGINT", required=True), field("shop STRING", required=True)]


def source_of(form: AnyFormat, fields: Sequence[Any] = SALES, **options: Any) -> Landing:
    return Landing("sales", format=form, fields=fields, **options)


def area_at(root: Path) -> LandingArea:
    return LandingArea(root, root / "cache")


def rows_of(spark, root: Path, source: Landing, *names: str, at: int = 0) -> list[tuple]:
    read = source.read(area_at(root), spark, [day(at)]).collect()
    return [tuple(row[name] for name in names or ("n", "shop")) for row in read]


def canonical_rows(root: Path, form: Csv, at: int = 0) -> list[list[str]]:
    """The rows of the file that Spark reads, by Python's reader."""
    (path,) = (root / "sales").glob(f"{day(at)}*")
    copy = spark_readable(path, form.contents(path), root / "cache", form)
    text = io.StringIO(copy.read_bytes().decode(), newline="")
    return [row for row in csv.reader(text, delimiter=form.delimiter, strict=True) if row][1:]


def notes_of(source: Landing, root: Path, at: int = 0) -> list[str]:
    """The notes of a day's delivery, without the names of files."""
    delivery = delivery_of(source, area_at(root), day(at))
    return [note.partition(": ")[2] for note in delivery.notes]


# What is written, and in which dialect.


def written_by_pandas(rows: list[list[str]], form: Csv) -> str:
    text = io.StringIO()
    pd.DataFrame(rows, columns=list("abc") if form.header else NAMES).to_csv(
        text,
        sep=form.delimiter,
        index=False,
        header=not form.header,
        quotechar=form.quote,
        escapechar=form.escape or None,
        doublequote=not form.escape,
        lineterminator="\n",
    )
    return text.getvalue()


def written_by_duckdb(rows: list[list[str]], form: Csv, path: Path) -> str:
    table = pd.DataFrame(rows, columns=NAMES)
    with duckdb.connect() as database:
        database.register("written", table)
        database.execute(
            f"COPY written TO '{path}' (FORMAT csv, HEADER {not form.header}, DELIMITER"
            f" '{form.delimiter}', QUOTE '{form.quote.replace(chr(39), chr(39) * 2)}', ESCAPE"
            f" '{(form.escape or form.quote).replace(chr(39), chr(39) * 2)}', FORCE_QUOTE *)"
        )
    return path.read_bytes().decode()


@st.composite
def dialects(draw: st.DrawFn) -> Csv:
    return Csv(
        draw(st.sampled_from(",;\t|")),
        multiline=draw(st.booleans()),
        encoding=draw(st.sampled_from(["utf-8", "cp1252", "utf-16", "utf-8-sig", "latin-1"])),
        quote=draw(st.sampled_from(['"', "'"])),
        escape=draw(st.sampled_from(["", "\\"])),
        skip_rows=draw(st.integers(0, 2)),
        comment=draw(st.sampled_from(["", "#"])),
        footer=draw(st.sampled_from(["", "Total"])),
        header=draw(st.sampled_from([(), tuple(NAMES)])),
        repeated_header="skip",
    )


VALUES = st.text(st.sampled_from("ab #\"'\\,;\t|é0"), max_size=6) | st.sampled_from(
    ["", "Total", "#1", "first", '"', "\\", "NULL", "a\nb"]
)
TABLES = st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=12)


def deliver(root: Path, tables: Sequence[Sequence[Sequence[str]]], form: Csv, by: str) -> None:
    """Write a file for each day, with a title, a note and a total where the dialect has them."""
    for n, rows in enumerate(tables):
        text = (
            written_by_pandas([*map(list, rows)], form)
            if by == "pandas"
            else written_by_duckdb([*map(list, rows)], form, root / "written.csv")
        )
        before = "a title\n" * form.skip_rows + (f"{form.comment} note\n" if form.comment else "")
        after = "Total,5\n" if form.footer else ""
        put(root, f"sales/{day(n)}.csv", f"{before}{text}{after}".encode(form.encoding))


def in_lines(table: list[list[str]], form: Csv) -> list[tuple[str, ...]]:
    """The rows as they can be written: values have line feeds with `multiline` only."""
    end = "\n" if form.multiline else " "
    return [tuple(value.replace("\n", end) for value in row) for row in table]


def check(
    written: Sequence[tuple[str, ...]],
    read: Sequence[tuple[str, ...]],
    notes: Sequence[str],
    form: Csv,
):
    """What was read was written. Each other row is counted, or is blank as a line."""
    missing = Counter(written) - Counter(read)
    assert not Counter(read) - Counter(written)
    counted = sum(
        int(found[1].replace(",", ""))
        for note in notes
        if (found := re.search(r"left out.*?: ([\d,]+) \(", note))
    )
    blank = sum(not "".join(row).strip() for row in missing.elements())
    # The note before a file without a header is counted, because it could be a row.
    lost = missing.total() - (counted - bool(form.footer) - bool(form.comment and form.header))
    assert 0 <= lost <= blank
    assert not lost or form.delimiter == "\t"


@settings(max_examples=tries(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(TABLES, dialects(), st.sampled_from(["pandas", "duckdb"]))
def test_what_is_accepted_was_written_and_the_rest_is_counted(tmp_path_factory, table, form, by):
    root = tmp_path_factory.mktemp("dialect")
    rows = in_lines(table, form)
    deliver(root, [rows], form, by)
    delivery = delivery_of(source_of(form, FIELDS), area_at(root))
    assert not delivery.doubts
    read = canonical_rows(root, form)
    check(rows, [*map(tuple, read)], delivery.notes, form)


@settings(max_examples=tries(5), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(TABLES, min_size=3, max_size=3), dialects(), st.sampled_from(["pandas", "duckdb"]))
def test_spark_reads_three_days_of_a_dialect(tmp_path_factory, spark, tables, form, by):
    root = tmp_path_factory.mktemp("dialect")
    source = source_of(form, FIELDS)
    days = [in_lines(table, form) for table in tables]
    deliver(root, days, form, by)
    rows = source.read(area_at(root), spark, [day(n) for n in range(3)]).collect()
    assert {row["malformed"] for row in rows} <= {None}
    for n, written in enumerate(days):
        read = [
            tuple(row[name] or "" for name in NAMES) for row in rows if row.arrival_day == day(n)
        ]
        check(written, read, delivery_of(source, area_at(root), day(n)).notes, form)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "cp932", "gb18030"])
def test_text_of_any_encoding_is_read(tmp_path, encoding, packed):
    shops = ["東京", "大阪"] if encoding in ("cp932", "gb18030") else ["Zürich", "Genève"]
    text = "n,shop\n" + "".join(f"{n},{shop}\n" for n, shop in enumerate(shops))
    data = text.encode(encoding)
    put(tmp_path, f"sales/{day(0)}.csv{'.gz' * packed}", gzip.compress(data) if packed else data)
    form = Csv(encoding=encoding)
    source = source_of(form)
    assert canonical_rows(tmp_path, form) == [["0", shops[0]], ["1", shops[1]]]
    assert notes_of(source, tmp_path) == []


def test_rows_that_are_not_in_the_declared_encoding_are_malformed_and_counted(
    tmp_path, spark, golden
):
    data = "n,shop\n1,Zürich\n".encode("cp1252") + b"2,\x81\n3,Bern\n"
    put(tmp_path, f"sales/{day(0)}.csv", data)
    source = source_of(Csv(encoding="cp1252"))
    read = rows_of(spark, tmp_path, source, "n", "shop", "malformed")
    assert read == [(1, "Zürich", None), (None, None, "2,\ufffd"), (3, "Bern", None)]
    (note,) = notes_of(source, tmp_path)
    golden(note)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_file_of_utf_8_that_is_declared_otherwise_is_refused_until_accepted(
    tmp_path, mark, golden
):
    put(tmp_path, f"sales/{day(0)}.csv", f"{mark}n,shop\n1,Zürich\n".encode())
    source = source_of(Csv(encoding="cp1252"))
    (why,) = delivery_of(source, area_at(tmp_path), day(0)).doubts.values()
    golden(why)
    for encoding in ("utf-8", "utf-8-sig"):
        source = source_of(Csv(encoding=encoding))
        assert delivery_of(source, area_at(tmp_path), day(0)).doubts == {}


def test_a_file_that_is_not_utf_8_names_the_likely_encoding_and_its_option(tmp_path, golden):
    put(tmp_path, f"sales/{day(0)}.csv", "n,shop\n1,Zürich\n2,Genève\n".encode("cp1252"))
    (note,) = notes_of(source_of(Csv()), tmp_path)
    # Which others look like it depends on the library that guesses.
    golden(re.sub(r" or \w+", "", note))


def test_a_file_with_the_header_that_is_declared_for_files_without_one_says_so(tmp_path, golden):
    put(tmp_path, f"sales/{day(0)}.csv", "n,shop\n1,north\n")
    (doubt,) = delivery_of(source_of(Csv(header=["n", "shop"])), area_at(tmp_path)).doubts.values()
    golden(doubt)
    assert delivery_of(source_of(Csv()), area_at(tmp_path)).doubts == {}


def test_the_header_within_a_file_is_refused_until_it_is_accepted_or_declared(
    tmp_path, spark, golden
):
    """Joined files, also with a byte order mark, and with the columns in another order."""
    text = "n,shop\n1,north\n\ufeffn,shop\n2,south\nshop,n\neast,3\n"
    put(tmp_path, f"sales/{day(0)}.csv", text)
    put(tmp_path, f"sales/{day(1)}.csv", "n,shop\n4,west\n")
    source = source_of(Csv())
    golden(delivery_of(source, area_at(tmp_path)).doubts[f"sales/{day(0)}.csv"], "refused")
    assert not delivery_of(source, area_at(tmp_path), day(1)).doubts
    skipping = source_of(Csv(repeated_header="skip"))
    assert rows_of(spark, tmp_path, source) == [(1, "north"), (2, "south"), (3, "east")]
    for either in (source, skipping):
        (note,) = notes_of(either, tmp_path)
        golden(note, "read")
    delivery = delivery_of(skipping, area_at(tmp_path))
    assert (delivery.doubts, delivery.files) == ({}, {f"sales/{day(0)}.csv": 3})


def test_a_row_with_some_of_the_names_is_a_row(tmp_path):
    put(tmp_path, f"sales/{day(0)}.csv", 'n,shop\n1,shop\n2,"n,shop"\n3,n\n')
    rows = [["1", "shop"], ["2", "n,shop"], ["3", "n"]]
    assert canonical_rows(tmp_path, Csv()) == rows
    assert not delivery_of(source_of(Csv()), area_at(tmp_path)).doubts


def test_columns_without_a_name_are_left_out_or_reported(tmp_path, spark, golden):
    put(tmp_path, f"sales/{day(0)}.csv", "n,shop,,\n1,north,,\n2,south,,\n")
    put(tmp_path, f"sales/{day(1)}.csv", "n,shop,,\n1,north,,\n2,south,,late\n")
    source = source_of(Csv())
    empty, filled = (delivery_of(source, area_at(tmp_path), day(at)) for at in (0, 1))
    assert (empty.notes, empty.undeclared) == ([], [])
    golden("\n".join(filled.notes))
    assert filled.undeclared == []
    assert rows_of(spark, tmp_path, source, "n", "unknown_fields", at=1) == [
        (1, {}),
        (2, {"column 4": "late"}),
    ]
    by_position = source_of(Csv(), [*SALES, field("when STRING", "column 4")])
    assert rows_of(spark, tmp_path, by_position, "when", at=1) == [(None,), ("late",)]
    assert notes_of(by_position, tmp_path, 1) == []


def test_rows_without_a_value_are_left_out_at_the_end_only(tmp_path, spark, golden):
    put(tmp_path, f"sales/{day(0)}.csv", "n,shop\n1,north\n,\n2,south\n,\n,\n\n")
    put(tmp_path, f"sales/{day(1)}.csv", "n,shop\n,\n,\n")
    source = source_of(Csv())
    assert rows_of(spark, tmp_path, source) == [(1, "north"), (None, None), (2, "south")]
    (note,) = notes_of(source, tmp_path)
    golden(note)
    assert delivery_of(source, area_at(tmp_path), day(1)).files == {f"sales/{day(1)}.csv": 0}


@pytest.mark.parametrize("delimiter", ["\\", "]", "^", "-", "%", "¦"])
def test_any_delimiter_ends_rows_without_a_value(tmp_path, delimiter):
    text = "n,shop\n1,north\n,\n".replace(",", delimiter)
    put(tmp_path, f"sales/{day(0)}.csv", text)
    source = source_of(Csv(delimiter))
    assert delivery_of(source, area_at(tmp_path)).files == {f"sales/{day(0)}.csv": 1}
    assert len(notes_of(source, tmp_path)) == 1


def test_quotes_of_another_convention_are_malformed_and_the_option_is_named(
    tmp_path, spark, golden
):
    put(tmp_path, f"sales/{day(0)}.csv", 'n,shop\n1,"the \\"old\\", shop"\n2,6" pipe\n')
    read = rows_of(spark, tmp_path, source_of(Csv()), "n", "shop")
    assert read == [(None, None), (2, '6" pipe')]
    (note,) = notes_of(source_of(Csv()), tmp_path)
    golden(note)
    declared = source_of(Csv(escape="\\"))
    assert rows_of(spark, tmp_path, declared) == [(1, 'the "old", shop'), (2, '6" pipe')]


def test_footers_and_comments_are_counted_with_an_example(tmp_path, spark, golden):
    text = '# by hand\n\nn;shop\n1;north\n# checked\nTotal;1\n2;Total\n"Total";3'
    put(tmp_path, f"sales/{day(0)}.csv", f"\ufeff{text}")
    source = source_of(Csv(";", comment="#", footer="Total"))
    assert rows_of(spark, tmp_path, source) == [(1, "north"), (2, "Total")]
    golden("\n".join(notes_of(source, tmp_path)))
    assert not delivery_of(source, area_at(tmp_path)).doubts


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Csv(), "n;shop\n1;north\n"),
        (Csv(), "Sales\n\nn,shop\n1,north\n"),
        (Csv(), "Sales\nn;shop\n1;north\n"),
        (Csv(skip_rows=9), "Sales\n\nn,shop\n1,north\n"),
        (Csv(), "n,shop\n1,north\n".encode("utf-16-le")),
        (JsonLines(), json.dumps({"page": 1, "data": {"items": [{"n": 1, "shop": "north"}]}})),
        (JsonLines(), json.dumps({"rows": [{"n": 1, "shop": "north"}]}, indent=2)),
    ],
)
def test_a_refused_file_names_the_option_that_reads_it(tmp_path, form, text, golden):
    ending = "json" if isinstance(form, JsonLines) else "csv"
    put(tmp_path, f"sales/{day(0)}.{ending}", text)
    (doubt,) = delivery_of(source_of(form), area_at(tmp_path)).doubts.values()
    golden(doubt)
    code = doubt.rpartition("write ")[2]
    declared = source_of(eval(code, {"Csv": Csv, "JsonLines": JsonLines}))
    delivery = delivery_of(declared, area_at(tmp_path))
    assert (delivery.doubts, [*delivery.files.values()]) == ({}, [1])


@pytest.mark.parametrize(
    ("encoding", "data"), [("utf-16", b"n,shop\n1,a\n"), ("utf-16-le", b"n\x00\x00\xd8,\x00")]
)
def test_a_file_that_cannot_be_decoded_is_refused(tmp_path, encoding, data, golden):
    put(tmp_path, f"sales/{day(0)}.csv", data)
    refused = refusal_of(source_of(Csv(encoding=encoding)), area_at(tmp_path))
    golden(refused.what)


def test_text_in_utf_16_names_its_option(tmp_path, golden):
    put(tmp_path, f"sales/{day(0)}.csv", "n,shop\n1,north\n".encode("utf-16"))
    refused = refusal_of(source_of(Csv()), area_at(tmp_path))
    golden(refused.what)


ROWS = [
    {"n": 1, "shop": "a\nb"},
    {"shop": 'c"]}', "n": 2, "more": [{"x": []}]},
    {"n": 3, "shop": ""},
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("path", ["", "data.items"])
def test_arrays_of_json_are_rows(tmp_path, spark, path, indent):
    document: Any = ROWS
    for name in reversed(path.split(".") if path else []):
        document = {"before": {"items": [0]}, name: document, "after": "]}"}
    put(tmp_path, f"sales/{day(0)}.json", json.dumps(document, indent=indent))
    source = source_of(JsonLines(rows=path))
    assert not delivery_of(source, area_at(tmp_path)).doubts
    assert rows_of(spark, tmp_path, source) == [(1, "a\nb"), (2, 'c"]}'), (3, "")]


@pytest.mark.parametrize("text", ["[]", "\ufeff[ ]\n", "\n[\n]\n\n"])
def test_an_empty_array_has_no_rows(tmp_path, spark, text):
    put(tmp_path, f"sales/{day(0)}.json", text)
    put(tmp_path, f"sales/{day(1)}.json", text)
    source = source_of(JsonLines())
    second = delivery_of(source, area_at(tmp_path), day(1))
    assert (second.files, second.doubts) == ({f"sales/{day(1)}.json": 0}, {})
    assert rows_of(spark, tmp_path, source) == []


def test_digits_of_numbers_in_an_array_are_kept(tmp_path):
    path = put(tmp_path, "a.json", '[{"n": 1.10000000000000000001}]')
    form = JsonLines()
    copy = spark_readable(path, form.contents(path), tmp_path / "cache", form)
    assert copy.read_text() == '{"n": 1.10000000000000000001}\n'


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (JsonLines(), '[{"n": 1}, {"n": '),
        (JsonLines(), '[{"n": 1}'),
        (JsonLines(), '[{"n": 1}] [{"n": 2}]'),
        (JsonLines(rows="data"), '{"data": [{"n": 1}], "z": 1'),
        (JsonLines(rows="data"), '{"rows": [{"n": 1}]}'),
        (JsonLines(rows="data"), '{"data": {"n": 1}}'),
    ],
)
def test_an_array_that_is_not_whole_is_refused(tmp_path, form, text, golden):
    path = put(tmp_path, "a.json", text)
    contents = form.contents(path)
    golden(contents.cut or contents.fault)


@pytest.mark.scale
@pytest.mark.lake
def test_a_large_array_is_read_in_little_memory(tmp_path):
    path = tmp_path / "a.json"
    with path.open("w") as file:
        file.write("[" + ",\n".join(f'{{"n": {n}, "text": "{"x" * 100}"}}' for n in range(200_000)))
        file.write("]")
    tracemalloc.start()
    contents = JsonLines().contents(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (contents.lines, contents.cut, contents.fault) == (200_000, "", "")
    assert most < 16 * 2**20


@pytest.mark.parametrize(
    "options",
    [
        {"encoding": "utf-99"},
        {"encoding": "rot13"},
        {"delimiter": ",,"},
        {"escape": ","},
        {"escape": '"'},
        {"quote": "''"},
        {"skip_rows": -1},
        {"comment": None},
        {"footer": "("},
        {"header": "n"},
        {"repeated_header": "keep"},
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_where_it_is_declared(options, refused):
    refused(lambda: Csv(**options))


def test_wrong_options_of_other_formats_are_refused(refused):
    refused(lambda: JsonLines(encoding="x"), "encoding")
    refused(lambda: JsonLines(rows=5), "rows")  # type: ignore[arg-type]
    refused(lambda: Landing("sales", format=Parquet()), "fields")
    refused(lambda: source_of(Csv(), undeclared="drop"), "undeclared")


def test_undeclared_columns_are_kept_ignored_or_refused(tmp_path, spark, golden):
    put(tmp_path, f"sales/{day(0)}.csv", "n,shop,note\n1,north,new\n")
    put(tmp_path, f"sales/{day(1)}.csv", "n,shop\n2,south\n")
    found = {
        undeclared: source_of(Csv(), undeclared=undeclared)
        for undeclared in ("keep", "ignore", "refuse")
    }
    deliveries = {name: delivery_of(source, area_at(tmp_path)) for name, source in found.items()}
    assert {name: delivery.undeclared for name, delivery in deliveries.items()} == {
        "keep": ["note"],
        "ignore": [],
        "refuse": ["note"],
    }
    assert [name for name, delivery in deliveries.items() if delivery.doubts] == ["refuse"]
    golden("\n".join(deliveries["refuse"].doubts.values()))
    assert not delivery_of(found["refuse"], area_at(tmp_path), day(1)).doubts
    columns = ("n", "unknown_fields")
    assert rows_of(spark, tmp_path, found["keep"], *columns) == [(1, {"note": "new"})]
    assert rows_of(spark, tmp_path, found["ignore"], *columns) == [(1, {})]


def test_a_plain_file_is_not_copied_and_options_without_effect_change_no_version(tmp_path):
    from backfill_assets.tables.declaration import settings_of

    path = put(tmp_path, "a.csv", 'n,shop\n1,"a ""b"", c"\n,\n2,d\n')
    assert not Csv().contents(path).is_rewritten
    plain = settings_of(source_of(Csv()))
    assert plain["format"] == "Csvtuple(',', False, False)"
    assert "undeclared" not in plain
    assert settings_of(source_of(Csv(repeated_header="skip"))) == plain
    for form in (Csv(comment="#"), Csv(footer="#"), Csv(header=["#"])):
        assert settings_of(source_of(form))["format"] != plain["format"]
    assert settings_of(source_of(Csv(), undeclared="ignore")) != plain
