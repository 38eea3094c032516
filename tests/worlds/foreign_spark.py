"""A program of another team: plain Spark appends rows to a Delta table without this package.

python tests/worlds/foreign_spark.py FOLDER DAY NUMBER CONF
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812


def append(folder: str, day: str, number: str, conf: str) -> None:
    spark = SparkSession.builder.config(map=json.loads(conf)).getOrCreate()
    rows = spark.range(int(number)).select(
        F.lit(int(number)).cast("bigint").alias("n"), F.lit(day).cast("date").alias("day")
    )
    rows.write.format("delta").mode("append").save(folder)


if __name__ == "__main__":
    append(*sys.argv[1:])
