"""Read a source's files with Spark: as lines, or as rows with the declared columns.

Files with the same header are read together. Each row has its file and so its day.

Files that Spark cannot read are copied first. Text of another dialect is copied in its canonical
form. A packed file that is cut off is unpacked as far as it can be. Parquet types that Spark lacks
are replaced: nanoseconds, as pandas writes them, become microseconds.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import cache, partial, reduce
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from unicodedata import category
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StringType, TimestampType

from backfill_assets.digest import digest
from backfill_assets.errors import SourceError
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.copies import local_copies
from backfill_assets.sources.files.dialect import Found
from backfill_assets.sources.files.fields import (
    MALFORMED,
    UNKNOWN_FIELDS,
    UNPARSED,
    Field,
    has_zone,
    header_of,
    row_columns,
)
from backfill_assets.sources.files.formats import (
    JSON_LINES,
    PACKED,
    AnyFormat,
    Csv,
    FileContents,
    JsonLines,
    Parquet,
    canonical_pieces,
)
from backfill_assets.sources.files.packing import PIECE
from backfill_assets.sources.filesystem import Entry

_UNQUOTED_BY_JAVA = "/=:@!$&'()*+,;~-._"
_REPLACEMENT = "\ufffd"
# Texts of another form are not times. Spark would read "12:00" as today, and "2020" as a year.
_ISO = dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"), "____-__-__%")
_WHOLE = {"TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG"}
_DECIMAL = re.compile(r"(?:DECIMAL|DEC|NUMERIC)\b(?:.*,\s*(\d+))?")
_FLOATING = {"FLOAT", "REAL", "DOUBLE"}
# Java would read more texts: "12d", and "0x1p3" as 8.
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_NO_NUMBER = r"(?i)^\s*(nan|[+-]?inf(inity)?)\s*$"
_ZERO_FRACTION = r"^\s*([+-]?\d+)\.0+\s*$"
_SCIENTIFIC = r"^\s*[+-]?\d{1,15}(\.\d{1,17})?[eE]\+?\d{1,2}\s*$"
_EXACT = "DECIMAL(38, 18)"
# A double is exact up to 15 digits.
_WHOLE_DOUBLE = r"^(-?\d{1,15})\.0+$"
_SHORT_SCIENTIFIC = r"^\s*[+-]?[0.]*+(?=(\d\.?){0,15}[eE])\d*\.?\d*[eE][+-]?\d{1,3}\s*$"
_LONG_FRACTION = r"^-?(?=\d*[.E])[0.]*+(\d\.?){16,}(E-?\d+)?$"
_TEXT = StringType()
_IN_FOLDERS = "in_folders"
_NO_TYPES: Mapping[str, DataType] = MappingProxyType({})
# By default Spark accepts 'single quotes' and NaN too.
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


class ReadFile(NamedTuple):
    """A file to read: its day, its path for Spark, its name in `source_file`, and its contents.

    The path is the one of a local file, or an address such as s3a://bucket/file.
    """

    day: date
    path: str
    name: str
    contents: FileContents


def read_rows(
    spark: SparkSession, files: Sequence[ReadFile], form: AnyFormat, fields: Sequence[Field]
) -> DataFrame:
    """Read the rows of the files.

    Columns: `arrival_day, source_file`, the declared columns, and three more.

    unparsed        MAP<STRING, STRING>: by declared column, the text that does not fit its type;
                    the column is null
    unknown_fields  MAP<STRING, STRING>: the file's undeclared columns with their values as text
    malformed       STRING: the row's text if it does not fit the header or is not UTF-8, else null
    """
    by_header = attrgetter("contents.header")
    parts = [
        _read_one_header(spark, list(same), form, fields)
        for _, same in groupby(sorted(files, key=by_header), key=by_header)
    ]
    if not parts:
        return spark.createDataFrame([], row_columns(fields))
    return reduce(DataFrame.unionByName, parts)


def read_lines(spark: SparkSession, files: Sequence[ReadFile]) -> DataFrame:
    """Read the lines of the files without blank ones: `arrival_day, source_file, line, is_utf8`.

    If folders have declared columns, these are in `in_folders MAP<STRING, STRING>`.
    """
    if not files:
        return _names(spark, files).selectExpr(
            "arrival_day", "source_file", "path AS line", "utf8 AS is_utf8"
        )
    lines = spark.read.option("recursiveFileLookup", "true").text(_escaped(files))
    rows = _with_file(spark, lines, files, [F.col("value").alias("line")])
    # Checking a line takes a tenth of the time of parsing it, so UTF-8 files are not checked.
    is_utf8 = F.col("utf8") | F.is_valid_utf8("line")
    line = F.when(is_utf8, F.col("line")).otherwise(F.make_valid_utf8("line")).alias("line")
    not_blank = rows.where(F.ltrim("line", F.lit(" \t")) != "")
    in_folders = [name for name in rows.columns if name == _IN_FOLDERS]
    return not_blank.select(
        "arrival_day", "source_file", line, is_utf8.alias("is_utf8"), *in_folders
    )


def read_json(lines: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Read JSON lines as rows with the columns of `read_rows`.

    A line is `malformed` if it is not an object, or lacks a column that is required on its day. A
    required column with a null value is allowed, as an empty value in CSV is.
    """
    names = F.map_keys("fields")
    if _IN_FOLDERS in lines.columns:
        names = F.array_union(names, F.map_keys(_IN_FOLDERS))
    is_malformed = ~F.col("is_utf8") | F.col("fields").isNull() | more_than_one()
    for column in fields:
        if column.required:
            is_missing = ~F.arrays_overlap(names, F.array(*map(F.lit, column.names)))
            is_malformed = is_malformed | (_on_days_of(column) & is_missing)
    rows = with_fields(lines).withColumn(MALFORMED, F.when(is_malformed, F.col("line")))
    well_formed = F.col(MALFORMED).isNull()
    values = {column.name: F.when(well_formed, _text_in_json(column)) for column in fields}
    declared = [F.lit(name) for column in fields for name in column.names]
    unknown = F.map_filter("fields", lambda name, value: ~name.isin(*declared) & value.isNotNull())
    no_fields = F.create_map().cast("MAP<STRING, STRING>")
    unknown_fields = F.coalesce(F.when(well_formed, unknown), no_fields).alias(UNKNOWN_FIELDS)
    return _conformed(rows, values, fields, unknown_fields)


def _text_in_json(column: Field) -> Column:
    """The text of a value. For text and decimals, no digit of a number is lost."""
    texts = {name: F.col("fields")[name] for name in column.names}
    if column.type == "STRING" or _DECIMAL.match(column.type):
        texts = {name: _all_digits(name, text) for name, text in texts.items()}
    return F.coalesce(*texts.values())


def _all_digits(name: str, text: Column) -> Column:
    """The text with all digits of the line, or with `~` before it if they cannot be had."""
    # Spark reads numbers with a fraction as doubles. Most are written as Spark writes them.
    ends = [F.contains("line", F.concat(text, F.lit(end))) for end in ('"', ",", "}", "]", " ")]
    # Most texts are shorter than such a number, or begin with a letter. That is seen at once.
    may_be_long = (F.octet_length(text) > 16) & (text < ":")
    is_rounded = may_be_long & text.rlike(_LONG_FRACTION) & ~reduce(Column.__or__, ends)
    path = f"$['{name}']" if '"' in name else f'$["{name}"]'
    exact = F.try_variant_get(F.try_parse_json("line"), path, "string")
    found = F.when(F.contains("line", exact), exact).otherwise(F.concat(F.lit("~"), text))
    return F.when(is_rounded, found).otherwise(text)


def files_for_spark(
    area: LandingArea,
    files: Sequence[tuple[date, Entry, FileContents]],
    form: AnyFormat = JSON_LINES,
) -> list[ReadFile]:
    """Return the files where Spark can read them, copied to this machine if necessary.

    If Spark's executors are elsewhere, they read objects of S3 where they are. A change meanwhile
    is found before the commit. Copies stay until this process ends. Raises SourceError if a file
    cannot be read.
    """

    def one(day: date, file: Entry, contents: FileContents) -> ReadFile:
        name = area.name_of(file)
        address = area.files.spark_address(file) if area.executors_elsewhere else ""
        if address and not _may_be_rewritten(contents):
            return ReadFile(day, address, name, contents)
        try:
            local = area.files.cached(file, contents.content)
            path = spark_readable(local, contents, area.cache, form)
            return ReadFile(day, str(path), name, contents)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(
                f"the source for {day} cannot be used: {name} cannot be read ({error})"
            ) from None

    with ThreadPoolExecutor(area.files.readers) as readers:
        return list(readers.map(lambda file: one(*file), files))


def _read_one_header(
    spark: SparkSession, files: Sequence[ReadFile], form: AnyFormat, fields: Sequence[Field]
) -> DataFrame:
    header = header_of(names := form.names(files[0].contents.header), fields)
    if isinstance(form, Parquet):
        read = spark.read.option("recursiveFileLookup", "true").parquet(*_escaped(files))
        cells = {n: F.col(f"`{name.replace('`', '``')}`") for n, name in enumerate(names)}
        kinds = [read.schema[name].dataType for name in names]
        malformed = F.lit(None).cast("string")
    else:
        assert isinstance(form, Csv), "JSON lines with declared columns are read by `read_json`"
        schema = ", ".join([*(f"c{n} STRING" for n in range(len(names))), f"{MALFORMED} STRING"])
        options = {
            "header": "true",
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": MALFORMED,
            "sep": form.delimiter,
            "quote": '"',
            "escape": '"',
            "multiLine": str(form.multiline),
            "columnPruning": "false",
            "recursiveFileLookup": "true",
        }
        read = spark.read.schema(schema).options(**options).csv(_escaped(files))
        cells = {n: F.col(f"c{n}") for n in range(len(names))}
        kinds = [_TEXT] * len(names)
        # The canonical form of a row that cannot be read is its text, and the names of the header.
        names_after = f"{form.delimiter}{files[0].contents.header}"
        text = F.col(MALFORMED)
        inner = F.substring(text, F.lit(2), F.length(text) - len(names_after) - 2)
        is_canonical = text.startswith('"') & text.endswith(f'"{names_after}')
        unquoted = F.replace(inner, F.lit('""'), F.lit('"'))
        malformed = F.when(is_canonical, unquoted).otherwise(text)
    rows = _with_file(
        spark,
        read,
        files,
        [*(cell.alias(f"c{n}") for n, cell in cells.items()), malformed.alias(MALFORMED)],
    )
    if isinstance(form, Csv) and not all(file.contents.utf8 for file in files):
        texts = [F.coalesce(F.col(f"c{n}"), F.lit("")) for n in cells]
        text = F.concat_ws(form.delimiter, *texts)
        rows = rows.withColumn(
            MALFORMED, F.when(text.contains(_REPLACEMENT), text).otherwise(F.col(MALFORMED))
        )
    well_formed = F.col(MALFORMED).isNull()
    values = {name: F.when(well_formed, F.col(f"c{n}")) for name, n in header.places.items()}
    unknown = {name: F.when(well_formed, F.col(f"c{n}")) for name, n in header.unknown.items()}
    types = {name: kinds[n] for name, n in header.places.items()}
    return _conformed(rows, values, fields, _unknown(unknown), types)


def _conformed(
    rows: DataFrame,
    values: Mapping[str, Column],
    fields: Sequence[Field],
    unknown: Column,
    types: Mapping[str, DataType] = _NO_TYPES,
) -> DataFrame:
    """Convert the values of a file to the declared columns with their types, and add `unparsed`.

    `types` are the types that values have in the file. By default they are text.
    """
    if _IN_FOLDERS in rows.columns:
        values = dict(values) | {
            column.name: F.coalesce(values.get(column.name, F.lit(None)), _in_folders(column))
            for column in fields
            if types.get(column.name, _TEXT) == _TEXT
        }
    present = [column for column in fields if column.name in values]
    absent = [column for column in fields if column.name not in values]
    typed = [column for column in present if column.type != "STRING"]
    converted = rows.select(
        "arrival_day",
        "source_file",
        *(
            _value(values[column.name], column, types.get(column.name, _TEXT)).alias(column.name)
            for column in present
        ),
        *(F.lit(None).cast(column.type).alias(column.name) for column in absent),
        *(values[column.name].cast("string").alias(_text_of(column)) for column in typed),
        unknown,
        MALFORMED,
    )
    # In a second step, so that Spark converts each value only once.
    entries = [
        F.when(
            F.col(column.name).isNull() & (F.trim(_text_of(column)) != ""),
            F.struct(F.lit(column.name).alias("key"), F.col(_text_of(column)).alias("value")),
        )
        for column in typed
    ]
    unparsed = map_of(entries) if entries else F.create_map()
    return converted.select(
        "arrival_day",
        "source_file",
        *(column.name for column in fields),
        unparsed.cast("MAP<STRING, STRING>").alias(UNPARSED),
        UNKNOWN_FIELDS,
        MALFORMED,
    )


def map_of(entries: Sequence[Column]) -> Column:
    """A map of the entries that are not null. Most rows have none, and making one takes long."""
    made = F.map_from_entries(F.array_compact(F.array(*entries)))
    empty = F.create_map().cast("MAP<STRING, STRING>")
    return F.when(F.coalesce(*entries).isNotNull(), made).otherwise(empty)


def _in_folders(column: Field) -> Column:
    """The text of a column in the names of the folders of a well-formed row's file."""
    texts = (F.col(_IN_FOLDERS)[name] for name in column.names)
    return F.when(F.col(MALFORMED).isNull(), F.coalesce(*texts))


def _text_of(column: Field) -> str:
    # No declared column has such a name.
    return f"__{column.name}"


def _value(cell: Column, column: Field, kind: DataType) -> Column:
    """The value of the declared type, or null. `kind` is the type that the cell has."""
    text = cell.cast("string")
    if column.type == "STRING":
        return text
    # A timestamp of Parquet is a moment already.
    zone = "" if isinstance(kind, TimestampType) else column.zone
    if column.formats:
        times = [
            _moment(F.try_to_timestamp(text, F.lit(pattern)), "" if has_zone(pattern) else zone)
            for pattern in column.formats
        ]
        return F.coalesce(*times).cast(column.type)
    value = cell.try_cast(column.type)
    if column.type in _ISO:
        return F.when(text.like(_ISO[column.type]), _time(cell, column.type, zone))
    is_decimal = _DECIMAL.match(column.type)
    if not isinstance(kind, StringType):
        is_exact = is_decimal or column.type in (*_WHOLE, "BOOLEAN")
        # Spark would cut off the fraction, or round it.
        return F.when(value.try_cast(kind) == cell, value) if is_exact else value
    if column.type in _WHOLE:
        return _whole(cell, value, column.type)
    if is_decimal:
        return _decimal(cell, value, column.type)
    if column.type in _FLOATING:
        is_number = cell.rlike(_NUMBER) & (F.abs(value) < F.lit(float("inf")))
        return F.when(is_number | cell.rlike(_NO_NUMBER), value)
    return value


def _time(cell: Column, declared: str, zone: str) -> Column:
    """The day or moment of a cell in ISO 8601. A text must have a time after its day, if any."""
    moment = cell.try_cast("TIMESTAMP")
    if zone:
        # After the date, only a zone has letters or signs.
        is_local = ~F.substring(cell.cast("string"), 12, 64).rlike("[A-Za-z+-]")
        moment = F.when(is_local, _moment(moment, zone)).otherwise(moment)
    # Spark would ignore what follows a day, and the zone of a time.
    value = cell.try_cast("DATE") if declared == "DATE" else moment.cast(declared)
    return F.when(moment.isNotNull(), value)


def _moment(local: Column, zone: str) -> Column:
    """The moment of a local time, read as UTC; null if the clock skips it.

    Of a local time that the clock repeats, the first is meant.
    """
    if not zone:
        return local
    moment = F.to_utc_timestamp(local, zone)
    return F.when(F.from_utc_timestamp(moment, zone) == local, moment)


def _whole(text: Column, value: Column, declared: str) -> Column:
    """The whole number of a text, also with a zero fraction: "106.0" and "1.06E2" are 106."""
    # Spark writes numbers of JSON from ten millions on with an exponent.
    exact = F.regexp_extract(text, _SCIENTIFIC, 0).try_cast(_EXACT).cast("string")
    return F.coalesce(
        value,
        F.regexp_extract(text, _ZERO_FRACTION, 1).try_cast(declared),
        F.regexp_extract(exact, _WHOLE_DOUBLE, 1).try_cast(declared),
    )


def _decimal(text: Column, value: Column, declared: str) -> Column:
    """The decimal of a text that has no more digits after the point than the type."""
    found = _DECIMAL.match(declared)
    scale = (found and found[1]) or 0
    fits = text.rlike(rf"^\s*[+-]?\d*\.?\d{{0,{scale}}}0*\s*$")
    is_same = value.cast("DOUBLE") == text.try_cast("DOUBLE")
    return F.when(fits | (text.rlike(_SHORT_SCIENTIFIC) & is_same), value)


def _unknown(unknown: Mapping[str, Column]) -> Column:
    pairs = [
        part for name, value in unknown.items() for part in (F.lit(name), value.cast("string"))
    ]
    filled = (
        F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())
        if pairs
        else F.create_map()
    )
    return filled.cast("MAP<STRING, STRING>").alias(UNKNOWN_FIELDS)


def _with_file(
    spark: SparkSession, rows: DataFrame, files: Sequence[ReadFile], columns: Sequence[Column]
) -> DataFrame:
    """Add `arrival_day`, `source_file` and `utf8` of each row's file to the `columns`.

    If folders have declared columns, `in_folders` has them.
    """
    path = F.regexp_replace("_metadata.file_path", "^file:/+", "/").alias("path")
    rows = rows.select(*columns, path).join(F.broadcast(_names(spark, files)), "path", "left")
    # A path that Spark spells differently must stop the step. Otherwise the rows of that file would
    # be lost without an error.
    day = F.coalesce(
        "arrival_day", F.raise_error(F.concat(F.lit("no day known for "), "path")).cast("date")
    )
    return rows.withColumn("arrival_day", day)


def _names(spark: SparkSession, files: Iterable[ReadFile]) -> DataFrame:
    rows = [
        (_as_uri_path(path), name, day, contents.utf8, contents.in_folders)
        for day, path, name, contents in files
    ]
    schema = "path STRING, source_file STRING, arrival_day DATE, utf8 BOOLEAN"
    names = spark.createDataFrame(rows, f"{schema}, {_IN_FOLDERS} MAP<STRING, STRING>")
    return names if any(file.contents.in_folders for file in files) else names.drop(_IN_FOLDERS)


def _escaped(files: Iterable[ReadFile]) -> list[str]:
    """Escape paths for `spark.read`, which would take some characters as a pattern."""
    return [
        ("" if "://" in f.path else "file://")
        + "".join(f"\\{letter}" if letter in "{}[]*?\\" else letter for letter in f.path)
        for f in files
    ]


def _as_uri_path(path: str) -> str:
    """Quote a path as Spark does in `_metadata.file_path`.

    Java quotes blanks and control characters, but no other characters beyond ASCII.
    """
    return "".join(
        (
            quote(letter, safe=_UNQUOTED_BY_JAVA)
            if letter.isascii() or category(letter) in ("Zs", "Zl", "Zp", "Cc")
            else letter
        )
        for letter in path
    )


def with_fields(lines: DataFrame) -> DataFrame:
    """Add each line's fields as a map of text, null if it does not begin with a JSON object.

    If a field occurs twice, the last one counts, as in Python.
    """
    fields = F.from_json("line", "MAP<STRING, STRING>", _STRICT)
    # Spark repeats an expression wherever it is used, and would parse each line a dozen times. It
    # does not repeat one that contains the partition's number. That is never negative, so no value
    # changes. (An expression with rand() is repeated all the same.)
    return lines.withColumn("fields", F.when(F.spark_partition_id() >= 0, fields))


def more_than_one() -> Column:
    """Tell whether anything follows the line's object, such as a second object.

    Spark would ignore it.
    """
    # If the only closing brace is at the end, nothing follows. Other lines are parsed again, as the
    # only value of a list and of an object. Spark ignores text after the end of either, but no text
    # can end both.
    braces = F.octet_length("line") - F.octet_length(F.replace("line", F.lit("}"), F.lit("")))
    ends_with_it = (braces == 1) & F.rtrim("line").endswith("}")
    in_list = F.from_json(
        F.concat(F.lit("["), "line", F.lit("]")), "ARRAY<MAP<STRING, STRING>>", _STRICT
    )
    in_object = F.from_json(
        F.concat(F.lit('{"":'), "line", F.lit("}")), "MAP<STRING, STRING>", _STRICT
    )
    return F.when(ends_with_it, False).otherwise(
        (F.coalesce(F.size(in_list), F.lit(0)) != 1) | in_object.isNull()
    )


def _on_days_of(field: Field) -> Column:
    """Tell whether files of a row's day have the column."""
    day = F.col("arrival_day")
    since = day >= F.lit(field.since) if field.since else F.lit(True)
    return since & (day <= F.lit(field.until)) if field.until else since


# Types in a file's header that Spark may not read. It reads some files with these times.
_UNSUPPORTED = re.compile(r"\[ns|\btime(32|64)\b|decimal256|halffloat")
_REPLACED = "it changed after it was first read"


def _may_be_rewritten(contents: FileContents) -> bool:
    """True if Spark may need a copy of the file in another form."""
    has_unsupported_type = bool(_UNSUPPORTED.search(contents.header))
    return bool(contents.cut) or contents.is_rewritten or has_unsupported_type


def spark_readable(
    path: Path,
    contents: FileContents,
    cache_folder: Path | None,
    form: AnyFormat = JSON_LINES,
) -> Path:
    """Return the file, or a copy that Spark can read. Raises OSError.

    The copy stays until this process ends.
    """
    kind = Path(path.stem).suffix if path.suffix in PACKED[1:] else path.suffix
    name = contents.content
    if not isinstance(form, Parquet) and (
        contents.is_rewritten or (contents.cut and kind != path.suffix)
    ):
        read_as = form if contents.is_rewritten else None
        name += f"-{digest(repr(read_as), length=8)}"
        pieces = partial(_as_text, path, contents.content, read_as)
    elif (
        kind == ".parquet" and _UNSUPPORTED.search(contents.header) and _has_unsupported_type(path)
    ):
        pieces = partial(_with_spark_types, path, contents.content)
    else:
        return path
    copies = local_copies(cache_folder or _folder_of_process())
    return copies.cached(f"{name}{kind}", pieces, "")


@cache
def _folder_of_process() -> Path:
    return Path(tempfile.mkdtemp(prefix="backfill-"))


def _as_text(path: Path, content: str, form: JsonLines | Csv | None) -> Iterator[bytes]:
    """Yield the file as far as it can be unpacked, in canonical form with `form`."""
    hashed = hashlib.blake2b()
    with path.open("rb") as file:
        yield from canonical_pieces(file, path.suffix, form, Found(), hashed)
    if hashed.hexdigest()[:32] != content:
        raise OSError(_REPLACED)


def _has_unsupported_type(path: Path) -> bool:
    schema = pq.read_metadata(path).schema
    kinds = [schema.column(n).logical_type for n in range(len(schema))]
    return any(
        kind.type in ("TIME", "FLOAT16") or "nanoseconds" in str(kind) or _is_wide(kind)
        for kind in kinds
    )


def _is_wide(kind: object) -> bool:
    precision = re.match(r"Decimal\(precision=(\d+)", str(kind))
    return precision is not None and int(precision[1]) > 38


def _with_spark_types(path: Path, content: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        if hashlib.file_digest(file, hashlib.blake2b).hexdigest()[:32] != content:
            raise OSError(_REPLACED)
    with tempfile.TemporaryFile() as copy:
        rows = pq.ParquetFile(path)
        schema = pa.schema(
            [pa.field(column.name, _spark_type(column.type)) for column in rows.schema_arrow]
        )
        with pq.ParquetWriter(copy, schema) as writer:
            for batch in rows.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(schema, safe=False))
        copy.seek(0)
        while piece := copy.read(PIECE):
            yield piece


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark reads. Times of day and decimals over 38 digits become text."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind) or pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_map(kind):
        return pa.map_(_spark_type(kind.key_type), _spark_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(inner.name, _spark_type(inner.type)) for inner in kind])
    return kind
