"""The records of ranges of offsets, as Spark reads them by its own reader of Kafka."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from functools import reduce
from itertools import zip_longest

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.lake.jars import needing
from backfill_assets.sources.kafka_topic import Topic, environment

PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
COLUMNS = {
    "arrival_day": "DATE", "key": "BINARY", "value": "BINARY", "partition": "INT", "offset": "BIGINT", "timestamp": "TIMESTAMP",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}  # fmt: skip
LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
Span = tuple[int, int]


def records(spark: SparkSession, topic: Topic, spans: Mapping[int, Sequence[Span]], days: Collection[date]) -> DataFrame:
    """The records of `days` within `spans`: ranges of offsets of each partition, each read once."""
    numbered = [[(number, *span) for span in of_partition] for number, of_partition in spans.items()]
    # A range of each partition at a time: Spark reads no two of one partition together.
    parts = [_read(spark, topic, [span for span in part if span]) for part in zip_longest(*numbered)]
    if not parts:
        return spark.createDataFrame([], ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()))
    rows = reduce(DataFrame.unionByName, parts).withColumn("arrival_day", F.to_date("timestamp"))
    return rows.where(F.col("arrival_day").isin(list(days))).select(*COLUMNS)


def _read(spark: SparkSession, topic: Topic, spans: Sequence[tuple[int, int, int]]) -> DataFrame:
    options = {
        **options_of_spark(topic),
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "assign": json.dumps({topic.name: [number for number, _, _ in spans]}),
        "startingOffsets": json.dumps({topic.name: {number: first for number, first, _ in spans}}),
        "endingOffsets": json.dumps({topic.name: {number: end for number, _, end in spans}}),
    }
    with needing((PACKAGE,)):
        rows = spark.read.format("kafka").options(**options).load()
        assert rows.columns  # over Spark Connect, the format is looked for when columns are asked for
    return rows


def options_of_spark(topic: Topic) -> dict[str, str]:
    """The options of the topic's client, as Spark's Kafka is given them: a login is one setting there."""
    given = {name: environment(value) for name, value in topic.options.items()}
    user, password = given.pop("sasl.username", ""), given.pop("sasl.password", "")
    options = {name if name.startswith("kafka.") else f"kafka.{name}": value for name, value in given.items()}
    if user and (module := LOGIN_MODULES.get(given.get("sasl.mechanism", ""))):
        # In it, quotation marks and backslashes are escaped as in JSON.
        login = f"{module} required username={json.dumps(user)} password={json.dumps(password)};"
        options = {"kafka.sasl.jaas.config": login, **options}
    return {**options, "kafka.bootstrap.servers": topic.servers}
