"""Read a source's files with Spark: as lines, or as rows with the declared columns.

Files with the same header are read together. Each row has its file and so its day.

Files that Spark cannot read are copied first. Text in another dialect is copied in its canonical
form. A truncated packed file is unpacked as far as possible. Parquet types that Spark lacks are
replaced: nanoseconds, as pandas writes them, become microseconds, or text if digits would be lost.
"""

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import cache, partial, reduce
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from unicodedata import category
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType

from backfill_assets.digest import digest
from backfill_assets.errors import SourceError
from backfill_assets.lake.spark.reading import schema_of
from backfill_assets.quality.rules import MALFORMED
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.copies import local_copies
from backfill_assets.sources.files.dialect import Found
from backfill_assets.sources.files.fields import (
    UNKNOWN_FIELDS,
    Field,
    header_of,
    row_columns,
)
from backfill_assets.sources.files.formats import (
    CANONICAL_VERSION,
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
from backfill_assets.sources.files.values import IN_FOLDERS, LINE, TEXT, conformed
from backfill_assets.sources.filesystem import Entry

_UNQUOTED_BY_JAVA = "/=:@!$&'()*+,;~-._"
_REPLACEMENT = "\ufffd"
# A number as Spark writes it, if digits of the file may be lost: a long fraction, or an exponent.
_LONG_FRACTION = r"^-?(?=\d*[.E])[0.]*+(\d\.?){16,}(E-?\d+)?$"
_LARGE = r"|^-?\d\.\d+E\d+$"
# By default Spark accepts 'single quotes' and NaN too.
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


class ReadFile(NamedTuple):
    """A file to read: its day, its path for Spark, its name in `source_file`, and its contents.

    The path is a local path, or an address such as s3a://bucket/file.
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

    if not files:
        return spark.createDataFrame([], schema_of(spark, row_columns(fields)))
    if isinstance(form, JsonLines):
        return _read_json(read_lines(spark, files, fields), fields, _have_folders(files))

    def columns_of(file: ReadFile) -> tuple[str, str]:
        header = file.contents.header
        is_copy = isinstance(form, Parquet) and _UNSUPPORTED.search(header)
        # Types in a copy may depend on its values.
        return header, str(pq.read_schema(file.path)) if is_copy else ""

    parts = groupby(sorted(files, key=columns_of), key=columns_of)
    return reduce(
        DataFrame.unionByName,
        (_read_one_header(spark, list(same), form, fields) for _, same in parts),
    )


def read_lines(
    spark: SparkSession, files: Sequence[ReadFile], fields: Sequence[Field] = ()
) -> DataFrame:
    """Read the lines of the files without blank ones: `arrival_day, source_file, line, is_utf8`.

    If folders have declared columns, these are in `in_folders MAP<STRING, STRING>`. If a field
    depends on the order of lines, `LINE` has the order.
    """
    if not files:
        return _names(spark, files).selectExpr(
            "arrival_day", "source_file", "path AS line", "utf8 AS is_utf8"
        )
    lines = spark.read.option("recursiveFileLookup", "true").text(_escaped(files))
    rows = _with_file(spark, lines, files, [F.col("value").alias("line"), *_places(fields)])
    # Checking a line takes a tenth of the time of parsing it, so UTF-8 files are not checked.
    is_utf8 = F.col("utf8") | F.is_valid_utf8("line")
    line = F.when(is_utf8, F.col("line")).otherwise(F.make_valid_utf8("line")).alias("line")
    not_blank = rows.where(F.ltrim("line", F.lit(" \t")) != "")
    others = ([IN_FOLDERS] if _have_folders(files) else []) + ([LINE] if _places(fields) else [])
    return not_blank.select("arrival_day", "source_file", line, is_utf8.alias("is_utf8"), *others)


def _have_folders(files: Iterable[ReadFile]) -> bool:
    return any(file.contents.in_folders for file in files)


def _places(fields: Sequence[Field]) -> list[Column]:
    """The place of a row in its file, if a field needs it.

    It consists of the place of the row's split, and a number that grows within the split.
    """
    place = F.struct("_metadata.file_block_start", F.monotonically_increasing_id()).alias(LINE)
    return [place] if any(column.ambiguous == "by order" for column in fields) else []


def _read_json(lines: DataFrame, fields: Sequence[Field], in_folders: bool) -> DataFrame:
    """Read JSON lines as rows with the columns of `read_rows`.

    A line is `malformed` if it is not an object, or lacks a column that is required on its day. A
    required column with a null value is allowed, as an empty value in CSV is.
    """
    names = F.map_keys("fields")
    if in_folders:
        names = F.array_union(names, F.map_keys(IN_FOLDERS))
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
    return conformed(rows, values, fields, unknown_fields, in_folders)


def _text_in_json(column: Field) -> Column:
    """The text of a value. For text, decimals and whole numbers, no digit is lost."""
    texts = {name: F.col("fields")[name] for name in column.names}
    is_exact = column.is_number and not column.is_floating
    if is_exact or column.type == "STRING":
        lossy = _LONG_FRACTION + (_LARGE if is_exact else "")
        texts = {name: _all_digits(name, text, lossy) for name, text in texts.items()}
    if column.decimal == ",":
        # The declared sign is for texts. A number without quotes has a point.
        line = F.translate("line", " \t", "")
        for name, text in texts.items():
            is_bare = F.contains(line, F.concat(F.lit(f'"{name.replace(" ", "")}":'), text))
            is_quoted = F.contains("line", F.concat(F.lit('"'), text, F.lit('"')))
            is_bare |= text.rlike(r"^-?\d+(\.\d+)?(E-?\d+)?$") & ~is_quoted
            texts[name] = F.when(is_bare, F.translate(text, ".", ",")).otherwise(text)
    return F.coalesce(*texts.values())


def _all_digits(name: str, text: Column, lossy: str) -> Column:
    """The text with all digits of the line, or with `~` before it if they cannot be found."""
    # Spark reads numbers with a fraction as doubles. Most are written as Spark writes them.
    ends = [F.contains("line", F.concat(text, F.lit(end))) for end in ('"', ",", "}", "]", " ")]
    # Most texts are shorter than such a number, or begin with a letter. This test is fast.
    may_be_lossy = ((F.octet_length(text) > 16) | F.contains(text, F.lit("E"))) & (text < ":")
    is_rounded = may_be_lossy & text.rlike(lossy) & ~reduce(Column.__or__, ends)
    path = f"$['{name}']" if '"' in name else f'$["{name}"]'
    exact = F.try_variant_get(F.try_parse_json("line"), path, "string")
    found = F.when(F.contains("line", exact), exact).otherwise(F.concat(F.lit("~"), text))
    return F.when(is_rounded, found).otherwise(text)


def files_for_spark(
    area: LandingArea,
    files: Sequence[tuple[date, Entry, FileContents]],
    form: AnyFormat = JSON_LINES,
) -> list[ReadFile]:
    """Return the files at paths that Spark can read, copied to this machine if necessary.

    If Spark's executors are elsewhere, they read objects in S3 directly. A change meanwhile is
    found before the commit. Copies stay until this process ends. Raises SourceError if a file
    cannot be read.
    """

    def one(day: date, file: Entry, contents: FileContents) -> ReadFile:
        name = area.name_of(file)
        store, file = area.located(file, contents.part, contents.size)
        address = store.spark_address(file) if area.executors_elsewhere else ""
        if address and not _may_be_rewritten(contents):
            return ReadFile(day, address, name, contents)
        try:
            local = store.cached(file, contents.content)
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
        found = [read.schema[name].dataType for name in names]
        kinds = [TEXT if isinstance(kind, BinaryType) else kind for kind in found]
        cells = {n: cell.cast(kinds[n]) for n, cell in cells.items()}
        malformed = F.lit(None).cast("string")
    else:
        assert isinstance(form, Csv)
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
        kinds = []
        # The canonical form of an unreadable row is its text, and the names of the header.
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
        [
            *(cell.alias(f"c{n}") for n, cell in cells.items()),
            malformed.alias(MALFORMED),
            *_places(fields),
        ],
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
    types = {name: kinds[n] for name, n in header.places.items()} if kinds else {}
    return conformed(rows, values, fields, _unknown(unknown), _have_folders(files), types)


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


def _names(spark: SparkSession, files: Sequence[ReadFile]) -> DataFrame:
    rows = [
        (_as_uri_path(path), name, day, contents.utf8, contents.in_folders)
        for day, path, name, contents in files
    ]
    columns = (
        "path STRING, source_file STRING, arrival_day DATE, utf8 BOOLEAN,"
        f" {IN_FOLDERS} MAP<STRING, STRING>"
    )
    names = spark.createDataFrame(rows, schema_of(spark, columns))
    return names if _have_folders(files) else names.drop(IN_FOLDERS)


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
    # Spark repeats an expression in each place of use, and would parse each line a dozen times. It
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


# Types in a file's header that Spark does not read.
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
        name += f"-{digest(CANONICAL_VERSION, repr(read_as), length=8)}"
        pieces = partial(_as_text, path, contents.content, read_as)
    elif isinstance(form, Parquet) and _UNSUPPORTED.search(contents.header):
        pieces = partial(_with_spark_types, path, contents.content)
    else:
        return path
    copies = local_copies(cache_folder or _folder_of_process())
    return copies.cached(f"{name}{kind}", pieces, "")


@cache
def _folder_of_process() -> Path:
    return Path(tempfile.mkdtemp(prefix="backfill-"))


def _as_text(path: Path, content: str, form: JsonLines | Csv | None) -> Iterator[bytes]:
    """Yield the file as far as possible, in canonical form with `form`."""
    hashed = hashlib.blake2b()
    with path.open("rb") as file:
        yield from canonical_pieces(file, path.suffix, form, Found(), hashed)
    if hashed.hexdigest()[:32] != content:
        raise OSError(_REPLACED)


def _with_spark_types(path: Path, content: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        if hashlib.file_digest(file, hashlib.blake2b).hexdigest()[:32] != content:
            raise OSError(_REPLACED)
    with tempfile.TemporaryFile() as copy:
        rows = pq.ParquetFile(path)
        types = {column.name: _spark_type(column.type) for column in rows.schema_arrow}
        types |= dict.fromkeys(_with_nanoseconds(rows), pa.string())
        schema = pa.schema(types.items())
        with pq.ParquetWriter(copy, schema) as writer:
            for batch in rows.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(schema, safe=False))
        copy.seek(0)
        while piece := copy.read(PIECE):
            yield piece


def _with_nanoseconds(rows: pq.ParquetFile) -> Iterator[str]:
    """Yield the columns of times that have digits after microseconds."""
    for column in rows.schema_arrow:
        if pa.types.is_timestamp(column.type):
            batches = (batch[column.name] for batch in rows.iter_batches(columns=[column.name]))
            rounded = _spark_type(column.type)
            if any(times.cast(rounded, False).cast(column.type) != times for times in batches):
                yield column.name


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
