"""The model of restoration times on real examples: its figures as DuckDB finds them, and the same
bytes whoever builds it.
"""

import shlex
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from backfill_assets.cli.app import app
from backfill_assets.datasets.outages.restoration_examples import restoration_examples
from backfill_assets.datasets.outages.restoration_time import (
    ASKED,
    FEATURES,
    LEAST_DAYS,
    restoration_time,
)
from backfill_assets.datasets.outages.sample import FIRST_DAY
from backfill_assets.lake.releases import Releases, TableVersion
from backfill_assets.models.saved import content_hash, unpack_model
from tests.worlds.command_line import guide
from tests.worlds.outages import oracle_of
from tests.worlds.suite import SAMPLE, connect

# Every test fits the model, or needs the one that the first has fitted.
pytestmark = pytest.mark.scale

SQL = Path(__file__).parents[1] / "examples.sql"
# A day with seven days of the calendar before it, the first that can have a model, and one with
# three.
DAY = date(2019, 8, 22)
TOO_EARLY = date(2019, 8, 18)


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> str:
    """The examples of the calendar's first days, as DuckDB makes them; a file. The sample has rows
    about days before it.
    """
    file = f"{tmp_path_factory.mktemp('examples')}/examples.parquet"
    with oracle_of(SAMPLE, FIRST_DAY, date(2019, 10, 13)) as oracle:
        oracle.execute(SQL.read_text().format(known_by="9999-01-01"))
        oracle.execute(
            f"COPY (FROM restoration_examples WHERE outage_day BETWEEN '{FIRST_DAY}' AND '{DAY}')"
            f" TO '{file}'"
        )
    return file


def rows(spark: SparkSession, examples: DataFrame, *days: date) -> dict[date, dict[str, Any]]:
    asked = spark.createDataFrame([(each,) for each in days], "outage_day DATE")
    return {
        row["outage_day"]: row.asDict(recursive=True)
        for row in restoration_time(asked, examples).collect()
    }


@pytest.fixture(scope="module")
def built(spark, examples) -> dict[date, dict[str, Any]]:
    """Both days, fitted together."""
    return rows(spark, spark.read.parquet(examples), TOO_EARLY, DAY)


def test_every_figure_of_a_model_is_what_duckdb_computes_from_its_predictions(
    spark, examples, built, tmp_path
):
    """Examples count that were over before the day: of those of the days before for training, of
    its own for the errors.
    """
    row = built[DAY]
    model = unpack_model(built[DAY]["model"])
    of_day = spark.read.parquet(examples).where(f"outage_day = '{DAY}'")
    predicted = model.transform(of_day.drop("restoration_minutes", "restored_at")).select(
        "outage_number", "predicted_minutes"
    )
    predicted.write.parquet(f"{tmp_path}/predicted")
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(
            f"CREATE TABLE asked AS FROM '{examples}' WHERE {ASKED} AND restoration_minutes IS NOT"
            " NULL"
        )
        known = (
            f"SELECT * FROM asked WHERE outage_day < '{DAY}' AND restored_at < TIMESTAMPTZ '{DAY}"
            " 00:00:00Z'"
        )
        trained = database.execute(
            "SELECT min(outage_day), max(outage_day), count(DISTINCT outage_day), count(*),"
            f" median(restoration_minutes) FROM ({known})"
        ).fetchone()
        assert trained is not None
        names = (
            "trained_from",
            "trained_until",
            "trained_days",
            "training_examples",
            "training_median",
        )
        assert tuple(row[name] for name in names) == pytest.approx(trained)
        database.execute(
            f"""CREATE TABLE tested AS SELECT restoration_minutes AS actual,
                    predicted_minutes AS predicted,
                    abs(predicted_minutes - actual) AS error,
                    abs({trained[-1]} - actual) AS of_median,
                    ntile(10) OVER (ORDER BY predicted, actual) AS part
                FROM asked JOIN '{tmp_path}/predicted/*.parquet' USING (outage_number)
                WHERE outage_day = '{DAY}'"""
        )
        figures = database.execute(
            """SELECT count(*) AS test_examples, avg(error) AS mean_absolute_error,
                    median(error) AS median_absolute_error,
                    avg(of_median) AS mean_absolute_error_of_median,
                    median(of_median) AS median_absolute_error_of_median,
                    1 - avg(error) / avg(of_median) AS better_by,
                    avg((error < of_median)::INT) AS share_better FROM tested"""
        ).fetchdf()
        assert {name: row[name] for name in figures} == pytest.approx(figures.to_dict("records")[0])
        groups = database.execute(
            "SELECT part, count(*), sum(actual) FROM tested GROUP BY part ORDER BY part"
        ).fetchall()
    assert sorted(g["examples"] for g in row["calibration"]) == sorted(n for _, n, _ in groups)
    assert sum(g["examples"] * g["actual"] for g in row["calibration"]) == pytest.approx(
        sum(total for *_, total in groups)
    )
    assert [g["predicted"] for g in row["calibration"]] == sorted(
        g["predicted"] for g in row["calibration"]
    )
    assert row["importances"].keys() == set(FEATURES)
    assert sum(row["importances"].values()) == pytest.approx(1)
    assert (row["trained_days"], row["test_examples"] > 400, row["better_by"] > 0.03) == (
        LEAST_DAYS,
        True,
        True,
    )


def test_of_too_few_days_no_model_is_fitted_and_the_row_says_how_many(built):
    row = built[TOO_EARLY]
    assert (row["trained_days"], row["training_examples"] > 500) == (3, True)
    assert {name for name, value in row.items() if value is None} >= {
        "model",
        "model_version",
        "importances",
        "better_by",
    }


def test_another_session_and_another_cut_build_the_same_bytes(examples, built):
    """Alone, from examples in another order and other partitions, in a session that splits its work
    otherwise.
    """

    def again() -> dict[str, Any]:
        spark = (
            SparkSession.builder.remote(connect())
            .config("spark.sql.shuffle.partitions", "5")
            .create()
        )
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        shuffled = spark.read.parquet(examples).repartition(7, "region").orderBy("customers")
        return rows(spark, shuffled, DAY)[DAY]

    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(again).result()
    assert other == built[DAY]
    assert content_hash(bytes(other["model"])) == other["model_version"]


def test_the_story_of_the_guide_plans_the_inputs_and_predicts_with_the_release(
    spark, examples, built, tmp_path, monkeypatch
):
    commands = guide("features-and-models").block_with("bash", "datasets.outages.training")
    program = guide("features-and-models").block_with("python", "load_model")
    export, run, reproduce = (shlex.split(line, comments=True) for line in commands.splitlines())
    monkeypatch.setenv(*export[1].split("=", 1))
    monkeypatch.setenv("BACKFILL_LAKE", str(tmp_path))
    planned = CliRunner().invoke(app, ["plan", *run[2:]])
    assert (run[:2], planned.exit_code) == (["backfill", "run"], 0), planned.output
    for name in (
        "raw/outage_events",
        "staging/outage_updates",
        restoration_examples.name,
        restoration_time.name,
    ):
        assert name in planned.output
    assert reproduce == ["backfill", "reproduce", restoration_time.name, str(DAY)]

    tables = {
        restoration_time.name: [built[DAY]],
        restoration_examples.name: pq.read_table(examples).to_pylist(),
    }
    for table in (restoration_time, restoration_examples):
        rows = spark.createDataFrame([], table.columns)
        made = rows.unionByName(spark.createDataFrame(tables[table.name], rows.schema)).toArrow()
        write_deltalake(f"{tmp_path}/{table.name}", made, partition_by=[table.partition_by])
    versions = {name: TableVersion(name, 0) for name in tables}
    Releases(str(tmp_path)).add(None, versions, kind="live", who="", reason="")
    names: dict[str, Any] = {}
    exec(program.replace("SparkSession.builder.getOrCreate()", "SparkSession.active()"), names)
    asked = names["predicted"].where("restoration_minutes IS NOT NULL").count()
    assert asked > built[DAY]["test_examples"]
