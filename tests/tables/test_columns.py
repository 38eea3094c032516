"""What may be declared of a table's columns: judged when it is declared, not when its first day is committed."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from backfill_assets.quality.rules import has_rows, no_nulls, rejected_at_most, unique_key, unparsed_at_most
from backfill_assets.sources.landing import Landing
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table, table
from backfill_assets.tables.windows import SliceDays

GOOD: dict[str, Any] = {
    "partition_by": "day", "columns": "day DATE, n BIGINT, prices MAP<STRING, DECIMAL(9,2)>", "reads": {"days": SliceDays()},
    "version": "1",
}  # fmt: skip


def declared(**changed: Any) -> Table:
    return table("raw/a", **GOOD | changed)(lambda days: days)


def test_columns_are_read_with_their_types():
    text = "day DATE, prices MAP<STRING, DECIMAL(9,2)> COMMENT 'in cents, not euros', s STRUCT<a: INT, b: INT>"
    assert types_of(text) == {
        "day": "DATE", "prices": "MAP<STRING, DECIMAL(9,2)> COMMENT 'IN CENTS, NOT EUROS'", "s": "STRUCT<A: INT, B: INT>",
    }  # fmt: skip
    assert declared().partition_by == "day"


declared_once = declared()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param({"columns": "day STRING, n INT"}, "partition_by='day' must be a column of type DATE", id="a day as text"),
        pytest.param({"columns": "day TIMESTAMP, n INT"}, "partition_by='day' must be a column of type DATE", id="a time"),
        pytest.param({"partition_by": "date"}, "partition_by='date' must be a column of type DATE", id="no such day"),
        pytest.param({"fingerprint_by": "n"}, "fingerprint_by='n' must be a column of type DATE", id="about a number"),
        pytest.param({"key": ["n", "m"]}, "the key names m, which is no column", id="a key that is no column"),
        pytest.param({"rules": [unique_key()]}, "the rule unique_key needs a key", id="unique without a key"),
        pytest.param({"rules": [no_nulls("m")]}, "no_nulls looks at m, which is no column", id="a rule of no column"),
        pytest.param(
            {"rules": [unparsed_at_most(0.1, ["n"])]},
            "unparsed_at_most looks at unparsed, which is no column",
            id="unparsed",
        ),
        pytest.param(
            {"rules": [rejected_at_most(0.1, "raw/b")]},
            "looks at raw/b, which is no table in compared_with",
            id="no table",
        ),
        pytest.param({"columns": "day DATE, `a b` INT"}, "'`a b` INT' is not a column", id="a name with a space"),
        pytest.param({"columns": "day DATE, a.b INT"}, "'a.b INT' is not a column", id="a name with a dot"),
        pytest.param({"columns": "day DATE, __hash INT"}, "'__hash INT' is not a column", id="a name of ours"),
        pytest.param({"columns": "day DATE, n"}, "'n' is not a column", id="no type"),
        pytest.param({"columns": "day DATE, n INT, N INT"}, "two columns are named N", id="a name twice"),
        pytest.param({"rules": [has_rows]}, r"is no rule; a rule is called, as in rules\.has_rows\(\)", id="a rule not called"),
        pytest.param({"reads": {"days": declared_once}}, r"write same_day\(days\) or window\(days", id="a table itself"),
        pytest.param({"reads": {"days": Landing("a"), "more": Landing("b")}}, "reads two sources", id="two sources"),
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

    assert version(Folder("a")) == version(Folder("a", "utf-8"))
    assert len({version(s) for s in (Folder("a"), Folder("b"), Folder("a", "latin-1"), Folder("a", limits={"rows": 1}))}) == 4
    with pytest.raises(ValueError, match=r"encoding of Folder.* is no plain data; give its tables a version by hand"):
        version(Folder("a", object()))


def written(days):
    return days
