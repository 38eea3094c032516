"""The sources of a table without days: a file, or the rows of a function.

They deliver all their rows for each day that they are asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.digest import digest
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.files.listing import Pattern
from backfill_assets.sources.protocol import Delivery, Source


class _AnyDay(Pattern):
    """A path that is the same for every day."""

    def __post_init__(self) -> None:
        """Allow a path without a day."""


class WholeFile(Landing):
    """The file `files` in the folder `name`. Other files there are of other tables."""

    @cached_property
    def _patterns(self) -> dict[str, Pattern | None]:
        return {text: _AnyDay(text) for text in self.files}

    def unmatched(self, area: LandingArea) -> list[str]:
        return []


@dataclass(frozen=True)
class WholeFunction(Source):
    """The rows that a function returns.

    `code` is a hash of its code. `columns` are the names of the columns that are read. The function
    is called for each look, and a step reads the rows of its last look.
    """

    name: str
    code: str
    function: Callable[[], Any] = field(compare=False)
    columns: Sequence[str] = field(compare=False)

    def delivered(self, area: LandingArea, days: Sequence[date]) -> dict[date, Delivery]:
        """Call the function, and return a hash of its rows, in any order of rows and columns.

        Raises KeyError if they lack a column.
        """
        answer = self.function()
        if not hasattr(answer, "__arrow_c_stream__"):
            answer = {name: [row[name] for row in answer] for name in self.columns}
        rows = pa.table(answer).select(sorted(self.columns))
        object.__setattr__(self, "_rows", rows)
        fingerprint = digest(*sorted(map(str, rows.to_pylist())))
        return dict.fromkeys(days, Delivery(fingerprint, {self.name: len(rows)}, fewest=0.5))

    def described(self, area: LandingArea, day: date) -> list[str]:
        return [f"{self.name}()"]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        return int(vars(self)["_rows"].nbytes)

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        rows = spark.createDataFrame(vars(self)["_rows"])
        return rows.withColumn("arrival_day", F.lit(days[0]))
