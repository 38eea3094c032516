"""Spark settings of one plan: they hold in its runs' sessions, or are refused by name, with what to
do.
"""

from dataclasses import dataclass, field

import pytest

from backfill_assets.errors import NOTHING_COMPUTED, SettingsError, UsageError
from backfill_assets.lake.spark.conf import apply_conf
from backfill_assets.lake.spark.session import FIXED, session_conf
from backfill_assets.orchestration.run import SparkResource
from backfill_assets.settings import read_settings


@dataclass
class Running:
    """The settings of a session whose driver is running: some may be changed, some were given when
    it started.
    """

    values: dict[str, str] = field(
        default_factory=lambda: {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "4"}
    )

    def get(self, key: str, default: str | None, /) -> str | None:
        return self.values.get(key, default)

    def set(self, key: str, value: str, /) -> None:
        self.values[key] = value

    def isModifiable(self, key: str, /) -> bool:  # noqa: N802
        return key.startswith("spark.sql.")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("spark.sql.shuffle.partitions", "64", id="what a session may choose"),
        pytest.param(
            "spark.databricks.delta.snapshotPartitions",
            "8",
            id="what Delta looks up in the session",
        ),
        pytest.param("spark.driver.memory", "4g", id="what the driver was started with"),
    ],
)
def test_a_setting_that_can_hold_holds(name, value):
    conf = Running()
    apply_conf(conf, {name: value}, "the engine")
    assert conf.values == Running().values | {name: value}


def test_settings_that_come_too_late_are_refused_together_with_a_remedy(golden):
    conf = Running()
    late = {"spark.executor.instances": "8", "spark.driver.memory": "9g"}
    with pytest.raises(UsageError) as refused:
        apply_conf(
            conf, {"spark.sql.shuffle.partitions": "64"} | late, "the engine at sc://host:15002"
        )
    assert refused.value.unchanged == NOTHING_COMPUTED
    golden(str(refused.value))
    assert conf == Running()


def test_a_plan_cannot_set_what_the_rows_depend_on(golden):
    def start(*_):
        raise AssertionError("a Spark was started")

    class Never(SparkResource):
        _init_session = start

    said = set()
    for name in (
        "spark.remote",
        "spark.master",
        "spark.sql.session.timeZone",
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.ansi.enabled",
        "spark.sql.caseSensitive",
        "spark.sql.legacy.timeParserPolicy",
        "cores",
        "spark.executor.extraJavaOptions",
        "spark.sql.shuffle.partitionsOf",
    ):
        with pytest.raises(UsageError) as refused:
            Never(spark_config={"spark.remote": "sc://host:1"}).session({name: "other"})
        assert refused.value.unchanged == NOTHING_COMPUTED
        said.add(str(refused.value).replace(name, "NAME", 1))
    (same,) = said
    golden(same)


@pytest.mark.parametrize(
    "given", [{}, {"spark_remote": "sc://localhost:1"}], ids=["a driver", "a client"]
)
def test_what_rows_may_depend_on_is_the_same_in_every_session(given, golden):
    said = set()
    for name in (
        *FIXED,
        "spark.sql.legacy.parquet.datetimeRebaseModeInRead",
        "spark.hadoop.mapreduce.input.linerecordreader.line.maxlength",
    ):
        with pytest.raises(SettingsError) as refused:
            session_conf(read_settings(spark_conf={name: "other"}, **given))
        said.add(str(refused.value).replace(f"{name}=", "NAME="))
    (same,) = said
    golden(same)


@pytest.mark.parametrize(
    "given", [{}, {"spark_remote": "sc://localhost:1"}], ids=["a driver", "a client"]
)
@pytest.mark.parametrize(
    ("name", "value"),
    [*FIXED.items(), ("spark.sql.shuffle.partitions", "8"), ("spark.sql.warehouse.dir", "/w")],
)
def test_what_decides_how_rows_are_computed_is_the_operators_to_choose(given, name, value):
    assert session_conf(read_settings(spark_conf={name: value}, **given))[name] == value
