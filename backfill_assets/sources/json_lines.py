"""Lines of JSON: one object a line, as RFC 8259 has it."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.sources.fields import MALFORMED, UNKNOWN, Field
from backfill_assets.sources.read_rows import conformed

# By itself Spark takes 'single quotes' and NaN too.
STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


def with_fields(lines: DataFrame) -> DataFrame:
    """Each line's fields as a map of text; null where the line does not begin with a JSON object.

    Of a field named twice the last one counts, as in Python.
    """
    fields = F.from_json("line", "MAP<STRING, STRING>", STRICT)
    # Spark repeats an expression wherever it is used, and would parse each line a dozen times. It does not repeat one with a
    # partition's number in it; that is never negative, so this changes no value. (With rand() it repeats it all the same.)
    return lines.withColumn("fields", F.when(F.spark_partition_id() >= 0, fields))


def more_than_one() -> Column:
    """Whether anything follows the line's object, such as a second object without a line break. Spark would ignore it."""
    # With one closing brace, at the end, nothing follows. Only other lines are parsed again, as the one value of a list and as
    # that of an object. Spark ignores what follows the end of either, and nothing can end both.
    braces = F.octet_length("line") - F.octet_length(F.replace("line", F.lit("}"), F.lit("")))
    ends_with_it = (braces == 1) & F.rtrim("line").endswith("}")
    in_list = F.from_json(F.concat(F.lit("["), "line", F.lit("]")), "ARRAY<MAP<STRING, STRING>>", STRICT)
    in_object = F.from_json(F.concat(F.lit('{"":'), "line", F.lit("}")), "MAP<STRING, STRING>", STRICT)
    return F.when(ends_with_it, False).otherwise((F.coalesce(F.size(in_list), F.lit(0)) != 1) | in_object.isNull())


def read_json(lines: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """The lines as rows, in the columns of `read_rows`. One that is no object, or lacks a column that is required on its day,
    is `malformed`; one that has it without a value is not, as a row of CSV is not."""
    texts = {each.name: F.coalesce(*[F.col("fields")[name] for name in each.names]) for each in fields}
    named = F.map_keys("fields")
    wrong = ~F.col("is_utf8") | F.col("fields").isNull() | more_than_one()
    for each in (each for each in fields if each.required):
        wrong = wrong | (_on_days_of(each) & ~F.arrays_overlap(named, F.array(*map(F.lit, each.names))))
    read = with_fields(lines).withColumn(MALFORMED, F.when(wrong, F.col("line")))
    well_formed = F.col(MALFORMED).isNull()
    values = {name: F.when(well_formed, text) for name, text in texts.items()}
    known = [F.lit(name) for each in fields for name in each.names]
    unknown = F.map_filter("fields", lambda name, value: ~name.isin(*known) & value.isNotNull())
    kept = F.coalesce(F.when(well_formed, unknown), F.create_map().cast("MAP<STRING, STRING>")).alias(UNKNOWN)
    return read.select("arrival_day", "source_file", *conformed(values, fields), kept, MALFORMED)


def _on_days_of(field: Field) -> Column:
    """Whether files of a row's day have the column."""
    day = F.col("arrival_day")
    since = day >= F.lit(field.since) if field.since else F.lit(True)
    return since & (day <= F.lit(field.until)) if field.until else since
