"""Refuse functions of Spark whose values depend on more than the inputs of a table.

A clock, chance, a file's name or the order of rows gives other rows each time. The plan of a
DataFrame shows such functions: as classes in a session of this process, and by name or in an SQL
text in a plan for Spark Connect. The code of a UDF is not in the plan.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame

from backfill_assets.errors import NOTHING_COMPUTED, UsageError
from backfill_assets.quality.profile import row_hash
from backfill_assets.tables.declaration import Table

# Classes have the names of functions, without underscores.
IMPURE = {
    name.replace("_", ""): name
    for name in re.findall(
        r"\w+",
        "current_timestamp now localtimestamp current_date curdate current_time current_user rand"
        " randn random randstr uniform shuffle uuid sample monotonically_increasing_id"
        " input_file_name",
    )
}
_CLASS = re.compile(r'"class":"[\w.]+\.(\w+)"')
_FUNCTION = re.compile(r'(?:unresolved|call)_function {\s+function_name: "(\w+)"')
_RELATION = re.compile(r"^ *(sample) {", re.MULTILINE)
_SQL = re.compile(r'(?:expression|query): "((?:[^"\\]|\\.)*)"')
# Texts and quoted names, with escaped quotes.
_QUOTED = re.compile(r"""(\\['"]).*?\1|`[^`]*`""")
# Some functions are called without parentheses.
_CALL = re.compile(r"\b(?:\w+(?=\s*\()|current_\w+|localtimestamp)\b", re.IGNORECASE)


def refuse_impure(table: str, rows: DataFrame, inputs: Iterable[DataFrame]) -> None:
    """Raise UsageError if an impure function, which is in no input, makes the `rows`."""
    found = _impure(rows)
    if found and (own := found.difference(*map(_impure, inputs))):
        raise UsageError(
            f"{table} calls {', '.join(sorted(own))}, so its rows differ each time.",
            unchanged=NOTHING_COMPUTED,
            next_step=(
                "Use columns of its inputs instead: a time of the source, the day, or xxhash64 of"
                " a key for chance."
            ),
        )


def _impure(frame: DataFrame) -> set[str]:
    if isinstance(frame, ConnectFrame):
        plan = str(frame._plan.to_proto(frame.sparkSession.client))
        sql = _QUOTED.sub("", "\n".join(_SQL.findall(plan)))
        called = _FUNCTION.findall(plan) + _RELATION.findall(plan) + _CALL.findall(sql)
    else:
        called = _CLASS.findall(frame._jdf.queryExecution().analyzed().toJSON())
    names = {name.lower().replace("_", "") for name in called}
    return {IMPURE[name] for name in names & IMPURE.keys()}


def shuffled(table: Table) -> list[Table]:
    """The table twice, with its inputs in opposite orders: of two rows, each is first once."""

    def ordered(order: Callable[[Column], Column]) -> Table:
        def compute(**inputs: DataFrame) -> DataFrame:
            rows = {
                # Spark removes a sort below a join, but not below this condition.
                name: frame.orderBy(order(row_hash(frame.schema))).where(
                    F.spark_partition_id() >= 0
                )
                for name, frame in inputs.items()
            }
            return table.compute(**rows)

        return replace(table, compute=compute)

    return [ordered(F.asc), ordered(F.desc)]
