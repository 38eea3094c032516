"""A table of models is a table: refused, killed, published, rolled back, reproduced and read of a
release as any other.
"""

import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import SQLTransformer, VectorAssembler
from pyspark.ml.regression import LinearRegression, RandomForestRegressor
from pyspark.sql import DataFrame

from backfill_assets import load_model, models, read, rules
from backfill_assets.diff.sides import tables_of_releases
from backfill_assets.diff.tables import diff_tables
from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake.releases import Releases, TableVersion
from backfill_assets.models.saved import pack_model, unpack_model
from backfill_assets.orchestration.assets import shown_of
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.plan.shadow import workspace_of as shadow_of
from backfill_assets.plan.store import Plans
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.reproduce.inputs import recorded_build
from backfill_assets.reproduce.reproduce import reproduce
from backfill_assets.reproduce.reproduction import ReproductionResult
from tests.worlds.projects import DAYS, OTHER, Prices, price
from tests.worlds.small_lake import publish_verified, verdict_of

pytestmark = pytest.mark.long

FIRST, SECOND, THIRD, FOURTH = DAYS
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def project(spark, tmp_path, monkeypatch) -> Prices:
    """Four days of examples, in the lake that `load_model` reads."""
    monkeypatch.setenv("BACKFILL_LAKE", str(tmp_path / "lake"))
    made = Prices(tmp_path, lambda: spark)
    for day in DAYS:
        made.deliver(day)
    return made


def test_models_of_too_few_days_or_no_better_than_the_median_are_refused(project, golden):
    """On the last day small things cost most: what was learned before is worse than the median."""
    project.deliver(FOURTH, lambda size: 400.0 - 10 * size)
    result = project.run(*DAYS)
    built = {build.day: build for build in result.built}
    assert {day: build.outcome for day, build in built.items()} == {
        FIRST: "failed", SECOND: "failed", THIRD: "accepted", FOURTH: "failed",
    }  # fmt: skip
    golden({day: built[day].message for day in (SECOND, FOURTH)})
    (row,) = project.models().values()
    assert (row["day"], row["trained_days"], row["trained_from"], row["trained_until"]) == (
        THIRD,
        2,
        FIRST,
        SECOND,
    )
    figures = shown_of(result, project.workspace)[THIRD]
    assert figures["importances"].value == {"size": 1.0}
    assert str(figures["calibration"].value).startswith("![calibration](data:image/png;base64,")
    assert (figures["trained on"], figures["trained days"]) == (f"{FIRST}..{SECOND}", 2)
    # What others write before that is shown is not shown as what this run has built.
    DeltaTable(str(project.root / "lake" / price.name)).update({"trained_days": "99"})
    assert shown_of(result, project.workspace)[THIRD]["trained days"] == 2


def test_a_run_killed_while_it_trains_changes_nothing_and_the_next_builds_the_day(project):
    project.run(THIRD)
    before = project.models()
    root = str(project.root)
    command = [sys.executable, "-m", "tests.worlds.projects", root, str(FOURTH)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert project.models() == before
    assert [build.outcome for build in project.run(THIRD, FOURTH).built] == ["accepted"]
    after = project.models()
    assert after.keys() == {THIRD, FOURTH}
    assert after[THIRD] == before[THIRD]


def test_a_model_is_loaded_of_a_release_whatever_was_published_since_and_rolled_back(
    project, spark, golden
):
    examples = spark.createDataFrame([(float(size),) for size in range(40)], "size DOUBLE")

    def predicted(**which) -> list[float]:
        model = load_model(price.name, day=THIRD, spark=spark, **which)
        return [row[0] for row in model.transform(examples).select("predicted").collect()]

    project.run(THIRD)
    assert isinstance(release_live(project.workspace, who="ada"), Released)
    first = predicted()
    other = Prices(project.root, project.spark, OTHER)
    plan = retrained(other)
    verdict_of(plan, other.workspace)
    publish_verified(project, plan, other.workspace)
    second = predicted()
    assert second != first
    assert predicted(release=1) == first
    compared = tables_of_releases((1, 2), project.workspace)
    (table,) = [each for each in diff_tables(*compared).tables if each.columns]
    assert {each.name: each.changed for each in table.columns}.items() >= {
        "model": 1,
        "model_version": 1,
    }.items()
    assert (
        reproduce(
            recorded_build(price.name, str(THIRD), None, other.workspace), other.workspace, spark
        ).result
        == ReproductionResult.SAME
    )

    roll_back(plan, other.workspace, who="ada", reason="it was better before")
    release_live(project.workspace, who="ada")
    listed = read(price.name).to_table(columns=["day", "model_version"]).to_pylist()
    assert listed == [{"day": THIRD, "model_version": project.models()[THIRD]["model_version"]}]
    assert (predicted(), predicted(release=2), predicted(release=1)) == (first, second, first)
    for name, days in (
        (price.name, FOURTH),
        (price.name, f"{THIRD}..{FOURTH}"),
        ("raw/prices", None),
    ):
        with golden.raises(UsageError, f"{name} {days}"):
            load_model(name, day=days, spark=spark)

    folder = str(project.root / "lake" / price.name)
    DeltaTable(folder).update({"model_version": "'another'"})
    changed = TableVersion(price.name, DeltaTable(folder).version())
    releases = Releases(str(project.root / "lake"))
    number = releases.add(
        releases.newest(), {price.name: changed}, kind="live", who="", reason=""
    ).number
    with golden.raises(TableUnreadable, "other rows"):
        load_model(price, release=number, spark=spark)


def test_a_day_without_a_model_says_that_there_is_none_where_its_rules_accept_that(
    project, spark, golden
):
    lenient = Prices(project.root, project.spark, replace(price, rules=[rules.has_rows()]))
    lenient.run(FIRST)
    release_live(lenient.workspace, who="ada")
    with golden.raises(UsageError):
        load_model(price, spark=spark)


def test_a_model_that_ranks_no_features_is_fitted_to_the_days_that_are_asked_for(spark):
    """A line through two days. A third day before them would change it, and is not in the model."""
    values = [
        (THIRD, 1, 1.0, 10.0),
        (THIRD, 2, 2.0, 20.0),
        (SECOND, 1, 1.0, 10.0),
        (SECOND, 2, 2.0, 20.0),
    ]
    rows = [
        *values,
        (FIRST, 1, 1.0, 999.0),
        (FIRST, 2, 2.0, 0.0),
        (FOURTH, 1, 3.0, 30.0),
        (FOURTH, 2, 5.0, 53.0),
    ]
    examples = spark.createDataFrame(
        rows, "day DATE, number INT, size DOUBLE, cents DOUBLE"
    ).selectExpr("*", "day AS paid_at")
    line = LinearRegression(labelCol="cents", predictionCol="predicted")
    pipeline = Pipeline(stages=[VectorAssembler(inputCols=["size"], outputCol="features"), line])
    (row,) = models.by_day(
        spark.createDataFrame([(FOURTH,)], "day DATE"),
        examples,
        pipeline,
        day="day",
        key=["day", "number"],
        label="cents",
        prediction="predicted",
        known_at="paid_at",
        features=["size"],
        least_days=2,
        train_days=2,
    ).collect()
    assert (row["trained_from"], row["trained_until"], row["training_examples"]) == (
        SECOND,
        THIRD,
        4,
    )
    assert (row["importances"], row["training_median"]) == (None, 15.0)
    assert row["mean_absolute_error"] == pytest.approx((0 + 3) / 2)


def retrained(project: Prices) -> Plan:
    """A plan that has built the third day's model in its shadow."""
    why = {price.name: {THIRD: Reason(ReasonKind.CODE_CHANGED)}}
    lake = str(project.root / "lake")
    plan = Plan(
        {price.name: OTHER.version},
        why,
        [Chunk(0, {price.name: [THIRD]})],
        PlanOptions(reason="", into="shadow"),
    )
    plans = Plans(lake)
    plans.keep(plan)
    plans.note(plan.id, "started", NOW, who="ada")
    open_shadow(plan, project.workspace, "ada")
    (build,) = project.run(
        THIRD, workspace=shadow_of(plan, project.workspace), run="shadow", plan=plan.id
    ).built
    assert build.outcome == "accepted"
    plans.note(plan.id, "ended", NOW, ending="done")
    return plan


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(lambda: models.trained_on_at_least(0), id="no day"),
        pytest.param(lambda: models.better_than_median(by=1.0), id="better by all"),
    ],
)
def test_promises_that_any_model_keeps_or_none_are_refused(rule, golden):
    with golden.raises(ValueError):
        rule()


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
    content = pack_model(model)
    of_both = [
        each.transform(customers).select("size", "prediction").collect()
        for each in (model, unpack_model(content))
    ]
    assert of_both[0] == of_both[1]
    assert pack_model(fitted(customers)) == content
