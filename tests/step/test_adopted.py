"""Days of a table outside of the lake are adopted, and rebuilt as the days of any table."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.errors import UsageError
from backfill_assets.lake.ledger import ADOPTED
from backfill_assets.plan import adopt
from backfill_assets.plan.status import State
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.step.audit_built import audit_built
from backfill_assets.step.request import StepRequest
from backfill_assets.verbs.adopt import adopt_days
from backfill_assets.verbs.blame import blame
from backfill_assets.verbs.log import BuildFilter, read_log
from backfill_assets.verbs.options import AdoptOptions
from backfill_assets.verify.verify import require_verified
from tests.worlds.adopted import Adopting
from tests.worlds.market import CLOSES, QUOTES, closes_of, quotes_of
from tests.worlds.small_lake import verdict_of

FIRST = date(2024, 6, 3)
LAST = date(2024, 6, 8)
DAYS = [date(2024, 6, n) for n in range(3, 9)]
CORRECTED = DAYS[2]
NAMES = (QUOTES, CLOSES)


def adopting(root: Path, spark: Callable[[], SparkSession]) -> Adopting:
    place = root / "elsewhere" / "quotes"
    quotes = quotes_of(None, rules=[], path=str(place))
    tables = (quotes, closes_of(quotes, rules=[]))
    return Adopting(root, spark, tables, Calendar(FIRST, LAST), place)


@pytest.fixture(scope="module")
def built(tmp_path_factory, spark) -> Adopting:
    """The days, built by steps in a lake of their own, and copied elsewhere by plain Spark. Read
    only.
    """
    market = adopting(tmp_path_factory.mktemp("built"), lambda: spark)
    quotes = replace(market.table(QUOTES), path="")
    market.tables = (quotes, closes_of(quotes, rules=[]))
    market.deliver(*DAYS)
    market.run(DAYS, NAMES)
    rows = spark.read.format("delta").load(market.workspace.lake.path(QUOTES))
    rows.write.format("delta").partitionBy("arrival_day").save(str(market.place))
    return market


@pytest.fixture
def market(built, tmp_path) -> Adopting:
    """A lake without builds, and the table that plain Spark has written elsewhere."""
    for name in ("quotes", "elsewhere"):
        shutil.copytree(built.root / name, tmp_path / name)
    return adopting(tmp_path, built.spark)


def parquet_files(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(place.rglob("*.parquet"))}


def fingerprints(market: Adopting, name: str = QUOTES) -> dict[date, str]:
    return {at: build.fingerprint for at, build in market.accepted(name).items()}


def test_fingerprints_are_those_that_a_step_computes(built, market):
    before = parquet_files(market.place)
    report = market.adopt(fingerprint=True)
    assert (report.adopted.days, report.fingerprinted) == (DAYS, DAYS)
    assert fingerprints(market) == fingerprints(built)
    assert parquet_files(market.place) == before
    # A rebuild that gives the same rows changes nothing.
    step = market.run(DAYS, [QUOTES], force=True)[QUOTES]
    assert {build.outcome for build in step.built} == {"unchanged"}


def test_fingerprints_continue_where_they_were_stopped(market, monkeypatch):
    # With the usual 365, the first part would be the whole of these few days.
    monkeypatch.setattr(adopt, "DAYS_TOGETHER", 2)

    class Killed(BaseException):
        pass

    def stop(text: str) -> None:
        raise Killed

    asked = AdoptOptions(target=QUOTES, reason="it is ours", fingerprint=True)
    with pytest.raises(Killed):
        adopt_days(market.workspace, asked, who="ada", note=stop, spark=market.spark)
    assert sum(not b.is_known_by_files for b in market.accepted().values()) == 2
    report = market.adopt(fingerprint=True)
    assert (report.adopted.days, report.fingerprinted) == ([], DAYS[2:])
    assert not any(build.is_known_by_files for build in market.accepted().values())
    assert market.adopt(fingerprint=True).fingerprinted == []


def test_an_audit_judges_adopted_days_by_the_rules(market):
    market.adopt(fingerprint=True, partitions=f"{DAYS[0]}..{DAYS[1]}")
    market.adopt()
    table = market.table(QUOTES)
    request = StepRequest("an audit")
    result = audit_built(table, DAYS, request, market.workspace, market.spark)
    assert {build.outcome for build in result.built} == {"audited"}
    assert {build.day for build in result.built if build.fingerprint} == {*DAYS[:2]}
    assert market.states(QUOTES) == {State.ADOPTED: DAYS}


def test_an_adopted_day_is_corrected_planned_published_and_rolled_back(market, tmp_path):
    assert market.adopt(as_of_code=True).adopted.days == DAYS
    market.run(DAYS, [CLOSES])
    assert market.in_duckdb(CLOSES) == market.in_duckdb(QUOTES) == market.delivered()
    assert isinstance(release_live(market.workspace, who="sensor"), Released)
    first = market.delivered()
    files = parquet_files(market.place)

    market.deliver(CORRECTED, rows=3, cents=250)
    corrected = market.delivered()
    assert market.states(QUOTES)[State.SOURCE_CHANGED] == [CORRECTED]
    plan = market.built_in_shadow(partitions="all")
    assert plan.partitions().keys() == {(QUOTES, CORRECTED), (CLOSES, CORRECTED)}
    assert market.in_duckdb(QUOTES) == first

    verdict_of(plan, market.workspace)
    published = Publication(plan, market.workspace, "ada", "corrected").publish(
        require_verified(plan, market.workspace)
    )
    assert published.release
    assert market.in_duckdb(QUOTES) == market.in_duckdb(CLOSES) == corrected
    assert market.states(QUOTES) == {State.UP_TO_DATE: DAYS}
    assert blame(market.workspace, QUOTES, str(CORRECTED), [], "").lines()

    rolled_back = roll_back(plan, market.workspace, who="ada", reason="a wrong file")
    assert rolled_back.release
    assert market.in_duckdb(QUOTES) == market.in_duckdb(CLOSES) == first
    assert market.states(QUOTES) == {
        State.UP_TO_DATE: [at for at in DAYS if at != CORRECTED],
        State.SOURCE_CHANGED: [CORRECTED],
    }
    assert files.items() <= parquet_files(market.place).items()
    log = read_log(market.workspace, QUOTES, "", BuildFilter(), every_column=False)
    assert log.lines()


@pytest.mark.scale
def test_days_of_unknown_code_come_back_as_adopted_by_a_rollback(market):
    market.adopt()
    first = market.in_duckdb(QUOTES)
    market.deliver(CORRECTED, rows=3, cents=250)
    assert market.states(QUOTES) == {State.ADOPTED: DAYS}
    plan = market.built_in_shadow(target=QUOTES, partitions=str(CORRECTED), force=True)
    verdict_of(plan, market.workspace)
    Publication(plan, market.workspace, "ada", "x").publish(
        require_verified(plan, market.workspace)
    )
    assert market.in_duckdb(QUOTES) == market.delivered()
    roll_back(plan, market.workspace, who="ada")
    assert market.in_duckdb(QUOTES) == first
    assert market.accepted()[CORRECTED].code_version == ADOPTED
    assert market.states(QUOTES) == {State.ADOPTED: DAYS}
    assert market.adopt(fingerprint=True).fingerprinted == DAYS
    assert {build.act for build in market.accepted().values()} == {"adopt"}
    market.adopt(undo=True)
    assert market.accepted() == {}
    with pytest.raises(UsageError, match="is not adopted"):
        market.run([CORRECTED], [QUOTES], force=True)


@pytest.mark.scale
def test_rows_merged_into_an_adopted_day_follow_their_delivery(market):
    market.tables = (replace(market.table(QUOTES), key=["symbol"]), market.tables[1])
    market.adopt()
    market.deliver(CORRECTED, rows=1, cents=250)
    market.run([CORRECTED], [QUOTES], force=True, write_mode="merge")
    assert market.states(QUOTES)[State.UP_TO_DATE] == [CORRECTED]
    assert market.in_duckdb(QUOTES) != market.delivered()
    market.deliver(CORRECTED, rows=3, cents=999)
    assert market.states(QUOTES)[State.SOURCE_CHANGED] == [CORRECTED]


FEATURES = {
    "deletion vectors": "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "column mapping": "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "row tracking": "TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
}


@pytest.mark.scale
@pytest.mark.parametrize("feature", FEATURES)
def test_tables_of_spark_with_other_features_are_refused(feature, market, spark):
    rows = spark.read.format("delta").load(str(market.place))
    rows.createOrReplaceTempView("adopted_rows")
    other = market.place.parent / "other"
    spark.sql(
        f"CREATE TABLE delta.`{other}` USING delta PARTITIONED BY (arrival_day)"
        f" {FEATURES[feature]} AS SELECT * FROM adopted_rows"
    )
    market.tables = (replace(market.table(QUOTES), path=str(other)),)
    with pytest.raises(UsageError, match="features of Delta that"):
        market.adopt()
    assert market.accepted() == {}
