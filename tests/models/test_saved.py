"""A pipeline as bytes is the pipeline that was fitted: only names that pyspark.ml makes up by
chance are others.
"""

from typing import Any

import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import SQLTransformer, VectorAssembler
from pyspark.ml.regression import RandomForestRegressor
from pyspark.sql import DataFrame

from backfill_assets.models.saved import packed, unpacked


@pytest.fixture(scope="module")
def customers(spark) -> DataFrame:
    """Forty customers: of every second one the number is that of the SQL below, and the price is
    higher.
    """
    rows = [
        (n, "cust_0123456789ab" if n % 2 else "a\u2028b\x85c", 10.0 * n + 500 * (n % 2))
        for n in range(40)
    ]
    return (
        spark.createDataFrame(rows, "size INT, name_fedcba987654 STRING, cents DOUBLE")
        .repartition(1)
        .sortWithinPartitions("size")
    )


def fitted(customers: DataFrame) -> PipelineModel:
    named = (
        "CASE name_fedcba987654 WHEN 'cust_0123456789ab' THEN 1 WHEN 'a\u2028b\x85c' THEN 2 ELSE 3"
        " END AS who"
    )
    stages: list[Any] = [
        SQLTransformer(statement=f"SELECT *, {named} FROM __THIS__"),
        VectorAssembler(inputCols=["size", "who"], outputCol="features"),
        RandomForestRegressor(labelCol="cents", numTrees=2, maxDepth=3, seed=1),
    ]
    return Pipeline(stages=stages).fit(customers)


def test_texts_and_columns_that_look_like_names_of_stages_stay_as_they_are(customers):
    model = fitted(customers)
    content = packed(model)
    of_both = [
        each.transform(customers).select("size", "prediction").collect()
        for each in (model, unpacked(content))
    ]
    assert of_both[0] == of_both[1]
    assert packed(fitted(customers)) == content
