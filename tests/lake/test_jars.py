"""The jars that Spark is started with: those by which a project's sources are read stand beside
Delta's.
"""

from dataclasses import dataclass, replace
from datetime import date

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.cli.doctor import jars
from backfill_assets.errors import NOTHING_COMPUTED, ServiceUnavailable
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.spark.engine import Engine, packages_lacking
from backfill_assets.lake.spark.jars import DELTA_PACKAGE, needing
from backfill_assets.lake.spark.session import opener, session_conf
from backfill_assets.servers.children import children_of
from backfill_assets.servers.parts import ServerPlace
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.landing import Landing
from backfill_assets.tables.declaration import Table, table
from backfill_assets.workspace import Workspace

READER = "org.example:topic-reader_2.13:1.0"
DRIVER = "org.example:driver:2.3"


@dataclass(frozen=True)
class FromElsewhere(Landing):
    packages: tuple[str, ...] = ()


def reads(name: str, source: Landing) -> Table:
    declare = table(
        f"raw/{name}",
        partition_by="arrival_day",
        columns="arrival_day DATE",
        reads={"rows": source},
        version="1",
    )
    return declare(lambda rows: rows)


def test_a_project_needs_the_packages_of_all_its_sources_each_once(tmp_path):
    tables = (
        reads("a", FromElsewhere("a", packages=(READER, DRIVER))), reads("b", Landing("b")),
        reads("c", FromElsewhere("c", packages=(DRIVER,))),
    )  # fmt: skip
    day = date(2024, 6, 1)
    workspace = Workspace(
        read_settings(), tables, Calendar(day, day), Lake(str(tmp_path)), LandingArea(tmp_path)
    )
    assert workspace.packages == (DRIVER, READER)
    assert replace(workspace, tables=tables[1:2]).packages == ()


def test_the_engine_and_a_driver_of_a_run_have_the_jars_of_the_sources(tmp_path):
    settings = read_settings(home=tmp_path, lake="", landing="")
    children_of(settings, ServerPlace(3111), Engine(15002), tmp_path, (READER,))
    written = (tmp_path / "engine" / "engine.properties").read_text()
    assert f"spark.jars.packages={DELTA_PACKAGE},{READER}\n" in written
    assert session_conf(settings, (READER,))["spark.jars.packages"] == f"{DELTA_PACKAGE},{READER}"
    assert "spark.jars.packages" not in session_conf(
        read_settings(spark_remote="sc://cluster", shared_disk=True), (READER,)
    )


def test_an_engine_that_was_started_without_a_package_is_known(tmp_path):
    settings = read_settings(home=tmp_path, lake="", landing="")
    children_of(settings, ServerPlace(3111), Engine(15002), tmp_path, (READER,))
    assert packages_lacking(tmp_path / "engine", (READER, DRIVER)) == [DRIVER]
    jar = tmp_path / "driver-2.3.jar"
    jar.touch()
    with_jar = settings.model_copy(update={"spark_jars": (jar,)})
    children_of(with_jar, ServerPlace(3111), Engine(15002), tmp_path, (DRIVER,))
    assert packages_lacking(tmp_path / "engine", (READER, DRIVER)) == [READER]


def test_the_doctor_names_the_packages_that_local_jars_leave_out(tmp_path, golden):
    jar = tmp_path / "driver-2.3.jar"
    jar.touch()
    settings = read_settings(home=tmp_path, spark_jars=str(jar))
    left_out = jars(settings, (DRIVER, READER))
    assert (jars(settings, (DRIVER,)).level, left_out.level) == ("ok", "FAIL")
    golden(left_out.message)


def test_a_package_that_spark_lacks_is_named_and_other_errors_are_unchanged(spark, golden):
    with pytest.raises(ServiceUnavailable) as lacking, needing((READER,)):
        assert spark.read.format("topic.of.nobody").load().schema
    golden(str(lacking.value))
    with pytest.raises(ZeroDivisionError), needing((READER,)):
        assert 1 / 0


def test_a_driver_that_does_not_start_shows_what_it_printed(capfd):
    options = {"spark.driver.extraJavaOptions": "-Xmx3g"}  # Java allows it, Spark does not
    with pytest.raises(ServiceUnavailable) as refused:
        opener(read_settings(spark_remote="", spark_conf=options))()
    assert refused.value.unchanged == NOTHING_COMPUTED
    assert "-Xmx3g" in capfd.readouterr().err
