"""Columns of a table are judged when it is declared."""

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


@pytest.mark.parametrize("column", ["day", "seen", "phone"])
def test_the_mask_names_columns_that_do_not_hold_the_day(column):
    more = {"columns": f"{GOOD['columns']}, seen DATE", "fingerprint_by": "seen"}
    assert declared(**more, mask=["n"]).masked_columns == ["n", "unparsed", "malformed"]
    with pytest.raises(ValueError, match=f"raw/a: mask names {column};"):
        declared(**more, mask=["n", column])


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


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("VARCHAR(3)", id="text"),
        pytest.param("ARRAY<CHAR(3)>", id="text in a list"),
        pytest.param("INT NOT NULL", id="not null"),
        pytest.param("STRUCT<a: INT NOT NULL>", id="not null within"),
        pytest.param("STRING COLLATE UTF8_LCASE", id="collated"),
        pytest.param("STRUCT<a: STRING collate UTF8_LCASE>", id="collated within"),
        pytest.param("INT DEFAULT 5", id="a default"),
        pytest.param("INT GENERATED ALWAYS AS (1)", id="generated"),
        pytest.param("FOO", id="an unknown type"),
        pytest.param("VARIANT", id="variant"),
        pytest.param("{x}", id="no word"),
        pytest.param("TIME(6)", id="a time of day"),
        pytest.param("INTERVAL YEAR TO MONTH", id="an interval"),
        pytest.param("VOID", id="nulls only"),
        pytest.param("INT INT", id="a type twice"),
        pytest.param("STRUCT<>", id="an empty struct"),
        pytest.param("ARRAY", id="a list of nothing"),
        pytest.param("ARRAY<INT", id="a bracket that is not closed"),
        pytest.param("MAP<STRING>", id="a map without values"),
        pytest.param("MAP<STRING, FOO>", id="an unknown type within"),
        pytest.param("DECIMAL(39, 2)", id="too many digits"),
        pytest.param("ARRAY<DEC(2, 3)>", id="more digits after the point than there are"),
    ],
)
def test_types_that_no_table_can_hold_are_refused_when_they_are_declared(kind, golden):
    with golden.raises(ValueError):
        declared(columns=f"day DATE, n {kind}")


declared_once = declared()
ASSET = AssetSpec("b")


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"columns": "day STRING, n INT"}, id="a day as text"),
        pytest.param({"columns": "day TIMESTAMP, n INT"}, id="a time"),
        pytest.param({"partition_by": "date"}, id="no such day"),
        pytest.param({"fingerprint_by": "n"}, id="about a number"),
        pytest.param({"key": ["n", "m"]}, id="a key that is no column"),
        pytest.param({"key": ["n"], "columns": "day DATE, n ARRAY<MAP <STRING, INT>>"}, id="a map"),
        pytest.param({"rules": [unique_key()]}, id="unique without a key"),
        pytest.param({"rules": [no_nulls("m")]}, id="a rule of no column"),
        pytest.param({"rules": [unparsed_at_most(0.1, ["n"])]}, id="unparsed"),
        pytest.param({"rules": [rejected_at_most(0.1, "raw/b")]}, id="no table"),
        pytest.param({"columns": "day DATE, `a b` INT"}, id="a name with a space"),
        pytest.param({"columns": "day DATE, a.b INT"}, id="a name with a dot"),
        pytest.param({"columns": "day DATE, __hash INT"}, id="a name of ours"),
        pytest.param({"columns": "day DATE, n"}, id="no type"),
        pytest.param({"columns": "day DATE, n INT, N INT"}, id="a name twice"),
        pytest.param({"rules": [has_rows]}, id="a rule not called"),
        pytest.param({"reads": {"days": declared_once}}, id="a table itself"),
        pytest.param({"reads": {"days": Landing("a"), "more": Landing("b")}}, id="two sources"),
        pytest.param(
            {"reads": {"days": Landing("a"), "more": "raw/b"}},
            id="a source and the name of a table",
        ),
        pytest.param({"reads": {"days": Landing("a"), "more": ASSET}}, id="a source and an asset"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(changed, golden):
    with golden.raises(ValueError, ASSET=ASSET):
        declared(**changed)


@dataclass(frozen=True)
class Folder(Landing):
    encoding: Any = "utf-8"
    limits: Any = field(default_factory=dict)


def test_what_a_source_was_made_with_is_part_of_the_version(golden):
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
    unplain = Folder("a", encoding=object())
    with golden.raises(ValueError, FOLDER=unplain):
        version(unplain)


def written(days):
    return days
