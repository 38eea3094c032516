"""Columns of a table are judged when it is declared."""

import re
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest
from dagster import AssetSpec

from backfill_assets.lake.columns import DELTA_TYPES
from backfill_assets.lake.spark.reading import schema_of
from backfill_assets.quality.rules import (
    has_rows,
    no_nulls,
    rejected_at_most,
    unique_key,
    unparsed_at_most,
)
from backfill_assets.sources.files.landing import Landing
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import SliceDays, Table, table

GOOD: dict[str, Any] = {
    "partition_by": "day",
    "columns": "day DATE, n BIGINT, prices MAP<STRING, DECIMAL(9,2)>",
    "reads": {"days": SliceDays()},
    "version": "1",
}


def declared(**changed: Any) -> Table:
    return table("raw/a", **GOOD | changed)(lambda days: days)


def test_protected_days_are_named_when_a_table_is_declared():
    assert declared(protected="2019-08-15..2019-08-16").protects(date(2019, 8, 16))
    assert not declared(protected="2019-08-15").protects(date(2019, 8, 16))
    assert declared(protected=True).protects(date.max)
    for wrong in ("last 7", "august"):
        with pytest.raises(ValueError, match=f"raw/a: protected='{wrong}'"):
            declared(protected=wrong)


def test_columns_are_read_with_their_types():
    text = (
        "day DATE, prices MAP<STRING, DECIMAL(9,2)> COMMENT 'in cents, not euros', s STRUCT<a: INT,"
        " b: INT>"
    )
    assert types_of(text) == {
        "day": "DATE",
        "prices": "MAP<STRING, DECIMAL(9,2)> COMMENT 'IN CENTS, NOT EUROS'",
        "s": "STRUCT<A: INT, B: INT>",
    }
    assert declared().partition_by == "day"


@pytest.mark.parametrize(
    ("columns", "types"),
    [
        pytest.param("day\tDATE,\nn  INT", {"day": "DATE", "n": "INT"}, id="tabs and lines"),
        pytest.param(
            r"a INT COMMENT 'it\'s, so', b INT",
            {"a": r"INT COMMENT 'IT\'S, SO'", "b": "INT"},
            id="a quote in a quote",
        ),
        pytest.param(
            """a INT COMMENT "a, 'b", b INT""",
            {"a": """INT COMMENT "A, 'B\"""", "b": "INT"},
            id="double quotes",
        ),
    ],
)
def test_columns_are_told_apart_however_they_are_written(columns, types):
    assert types_of(columns) == types


NESTED = (
    "ARRAY<STRING>",
    "MAP<STRING, ARRAY<DECIMAL(9, 2)>>",
    "STRUCT<a: INT, b STRING COMMENT 'x, >y', `c d`: MAP<INT,INT>>",
    "array < struct < default : timestamp_ntz > >",
)


KINDS = (*DELTA_TYPES, "decimal(38)", "NUMERIC (9 , 9)", "INT COMMENT 'NOT NULL'", *NESTED)


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_that_a_table_can_hold_is_taken(kind):
    assert types_of(f"n {kind}") == {"n": kind.upper()}


def test_spark_reads_every_type_that_is_taken(spark):
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(KINDS))
    assert schema_of(spark, columns).names == list(types_of(columns))


ONE_OF = (
    "is not the type of a column; write BIGINT, BINARY, .* or ARRAY<>, MAP<,> and STRUCT<> of these"
)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        pytest.param(
            "VARCHAR(3)",
            "Spark computes no columns of that type; write STRING, and a rule for the length",
            id="text",
        ),
        pytest.param(
            "ARRAY<CHAR(3)>",
            "Spark computes no columns of that type; write STRING",
            id="text in a list",
        ),
        pytest.param(
            "INT NOT NULL",
            r"no table is held to NOT NULL; leave it out, and write the rule"
            r" rules\.no_nulls\('n'\)",
            id="not null",
        ),
        pytest.param(
            "STRUCT<a: INT NOT NULL>",
            "no table is held to NOT NULL; leave it out",
            id="not null within",
        ),
        pytest.param(
            "STRING COLLATE UTF8_LCASE",
            "keys and fingerprints compare text letter by letter; leave COLLATE out",
            id="collated",
        ),
        pytest.param(
            "STRUCT<a: STRING collate UTF8_LCASE>", "leave COLLATE out", id="collated within"
        ),
        pytest.param(
            "INT DEFAULT 5",
            "a column holds what the function computes; leave DEFAULT out",
            id="a default",
        ),
        pytest.param("INT GENERATED ALWAYS AS (1)", "leave GENERATED out", id="generated"),
        pytest.param("FOO", ONE_OF, id="an unknown type"),
        pytest.param("VARIANT", ONE_OF, id="variant"),
        pytest.param("{x}", ONE_OF, id="no word"),
        pytest.param("TIME(6)", ONE_OF, id="a time of day"),
        pytest.param("INTERVAL YEAR TO MONTH", ONE_OF, id="an interval"),
        pytest.param("VOID", ONE_OF, id="nulls only"),
        pytest.param("INT INT", ONE_OF, id="a type twice"),
        pytest.param("STRUCT<>", ONE_OF, id="an empty struct"),
        pytest.param("ARRAY", ONE_OF, id="a list of nothing"),
        pytest.param("ARRAY<INT", ONE_OF, id="a bracket that is not closed"),
        pytest.param("MAP<STRING>", ONE_OF, id="a map without values"),
        pytest.param("MAP<STRING, FOO>", ONE_OF, id="an unknown type within"),
        pytest.param(
            "DECIMAL(39, 2)",
            "a decimal has 1 to 38 digits, and no more of them after the point",
            id="too many digits",
        ),
        pytest.param(
            "ARRAY<DEC(2, 3)>",
            "a decimal has 1 to 38 digits",
            id="more digits after the point than there are",
        ),
    ],
)
def test_types_that_no_table_can_hold_are_refused_when_they_are_declared(kind, message):
    with pytest.raises(ValueError, match=f"raw/a: 'n {re.escape(kind)}': .*{message}"):
        declared(columns=f"day DATE, n {kind}")


declared_once = declared()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param(
            {"columns": "day STRING, n INT"},
            "partition_by='day' must be a column of type DATE",
            id="a day as text",
        ),
        pytest.param(
            {"columns": "day TIMESTAMP, n INT"},
            "partition_by='day' must be a column of type DATE",
            id="a time",
        ),
        pytest.param(
            {"partition_by": "date"},
            "partition_by='date' must be a column of type DATE",
            id="no such day",
        ),
        pytest.param(
            {"fingerprint_by": "n"},
            "fingerprint_by='n' must be a column of type DATE",
            id="about a number",
        ),
        pytest.param(
            {"key": ["n", "m"]},
            "the key names m, which is not a column",
            id="a key that is no column",
        ),
        pytest.param(
            {"key": ["n"], "columns": "day DATE, n ARRAY<MAP <STRING, INT>>"},
            "the key names n, which holds a map",
            id="a map",
        ),
        pytest.param(
            {"rules": [unique_key()]}, "the rule unique_key needs a key", id="unique without a key"
        ),
        pytest.param(
            {"rules": [no_nulls("m")]},
            "no_nulls looks at m, which is not a column",
            id="a rule of no column",
        ),
        pytest.param(
            {"rules": [unparsed_at_most(0.1, ["n"])]},
            "unparsed_at_most looks at unparsed, which is not a column",
            id="unparsed",
        ),
        pytest.param(
            {"rules": [rejected_at_most(0.1, "raw/b")]},
            "looks at raw/b, which is not a table in compared_with",
            id="no table",
        ),
        pytest.param(
            {"columns": "day DATE, `a b` INT"},
            "'`a b` INT' is not a column",
            id="a name with a space",
        ),
        pytest.param(
            {"columns": "day DATE, a.b INT"}, "'a.b INT' is not a column", id="a name with a dot"
        ),
        pytest.param(
            {"columns": "day DATE, __hash INT"}, "'__hash INT' is not a column", id="a name of ours"
        ),
        pytest.param({"columns": "day DATE, n"}, "'n' is not a column", id="no type"),
        pytest.param(
            {"columns": "day DATE, n INT, N INT"}, "two columns are named N", id="a name twice"
        ),
        pytest.param(
            {"rules": [has_rows]},
            r"is not a rule\. Call the function, as in rules\.has_rows\(\)",
            id="a rule not called",
        ),
        pytest.param(
            {"reads": {"days": declared_once}},
            r"write same_day\(days\) or window\(days",
            id="a table itself",
        ),
        pytest.param(
            {"reads": {"days": Landing("a"), "more": Landing("b")}},
            "reads two sources",
            id="two sources",
        ),
        pytest.param(
            {"reads": {"days": Landing("a"), "more": "raw/b"}},
            r"reads 'raw/b', which is not a valid source: .* read by same_day\(TABLE\)",
            id="a source and the name of a table",
        ),
        pytest.param(
            {"reads": {"days": Landing("a"), "more": AssetSpec("b")}},
            r"reads AssetSpec\(.*'b'.*, which is not a valid source: .* by DeltaSource",
            id="a source and an asset",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(changed, message):
    with pytest.raises(ValueError, match=message):
        declared(**changed)


@dataclass(frozen=True)
class Folder(Landing):
    encoding: Any = "utf-8"
    limits: Any = field(default_factory=dict)


def test_what_a_source_was_made_with_is_part_of_the_version():
    def version(source: Landing) -> str:
        return table("raw/a", **GOOD | {"reads": {"days": source}, "version": ""})(written).version

    assert version(Folder("a")) == version(Folder("a", encoding="utf-8"))
    assert (
        len(
            {
                version(s)
                for s in (
                    Folder("a"),
                    Folder("b"),
                    Folder("a", encoding="latin-1"),
                    Folder("a", limits={"rows": 1}),
                )
            }
        )
        == 4
    )
    with pytest.raises(
        ValueError,
        match=r"encoding of Folder.* is not plain data; give its tables a version by hand",
    ):
        version(Folder("a", encoding=object()))


def written(days):
    return days
