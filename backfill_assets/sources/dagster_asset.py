"""A source that is an ordinary Dagster asset: a materialization of a day is its delivery."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery, Source, require_usable

# The size of a day is not known. It counts as large.
_BYTES = 2**26


@dataclass(frozen=True, init=False)
class DagsterAsset(Source):
    """The rows of an asset with daily partitions, with `arrival_day DATE` added.

    name  the key of the asset, such as "my/asset". It may be in another code location
    read  a function of a date that returns the asset's rows of that day: a pandas or Polars
          DataFrame, a pyarrow Table, a DataFrame of Spark, or the path of a parquet file or folder

        def my_rows(day: date) -> pandas.DataFrame:
            return pandas.read_parquet(f"/data/my_asset/{day}.parquet")

        DagsterAsset("my/asset", read=my_rows)

    Each materialization is a new delivery. `read` must return the rows of the last one. Its code is
    part of the code version of the table. A day that is not materialized is not delivered. While
    Dagster does not answer, or has no such asset, days keep their rows.

    Raises ValueError if `name` is not a key or `read` is not a function.
    """

    name: str
    function: Callable[[date], Any]
    asset: str = field(compare=False)

    def __init__(self, name: str, *, read: Callable[[date], Any]) -> None:
        if not all(name.split("/")) or not callable(read):
            raise ValueError(
                f"DagsterAsset({name!r}): name is the key of an asset, such as 'my/asset', and read"
                " a function of a day"
            )
        vars(self).update(name=name, function=read, asset=name)

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> Mapping[date, Delivery | SourceError]:
        """Return the version of each day's last materialization, or NotDelivered."""
        versions = area.materialized(self.name, days)
        return {
            day: Delivery(versions[day])
            if day in versions
            else NotDelivered(f"the asset {self.name} is not materialized for {day}")
            for day in days
        }

    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe the materialization of the day."""
        delivery = require_usable(self.delivered(area, [day]))[day]
        return [f"{self.name}, materialized as version {delivery.fingerprint}"]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """Estimate the bytes of `days`."""
        return _BYTES * len(days)

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """Read the rows of `days` by the given function."""
        require_usable(self.delivered(area, days))
        frames = [
            _frame(spark, self.function(day)).withColumn("arrival_day", F.lit(day)) for day in days
        ]
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _frame(spark: SparkSession, rows: Any) -> DataFrame:
    if isinstance(rows, DataFrame):
        return rows
    if isinstance(rows, str | Path):
        return spark.read.parquet(str(rows))
    if hasattr(rows, "to_arrow"):
        rows = rows.to_arrow()
    if not isinstance(rows, pa.Table):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    return spark.createDataFrame(rows)
