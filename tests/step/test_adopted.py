"""Days of a table outside of the lake are adopted, and rebuilt as the days of any table."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from backfill_assets.calendar import Calendar
from backfill_assets.errors import UsageError
from backfill_assets.lake.ledger import ADOPTED, BUILD_SCHEMA, Build
from backfill_assets.plan import adopt as adopting
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.plan.shadow import workspace_of as workspace_of_plan
from backfill_assets.plan.status import State
from backfill_assets.plan.store import Plans
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.step.audit_built import audit_built
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.verbs.adopt import AdoptReport, adopt_days
from backfill_assets.verbs.blame import blame
from backfill_assets.verbs.log import BuildFilter, read_log
from backfill_assets.verbs.options import AdoptOptions
from backfill_assets.verify.verify import require_verified
from tests.worlds.market import CLOSES, QUOTES, Market, closes_of, quotes_of
from tests.worlds.small_lake import verdict_of

FIRST = date(2024, 6, 3)
LAST = date(2024, 6, 8)
DAYS = [date(2024, 6, n) for n in range(3, 9)]
CORRECTED = DAYS[2]
NAMES = (QUOTES, CLOSES)


@dataclass
class Adopting(Market):
    """A market whose quotes lie in the folder `place`, outside of the lake."""

    place: Path = Path("/no/place")

    def adopt(self, name: str = QUOTES, **options) -> AdoptReport:
        asked = AdoptOptions(target=name, reason="it is ours", **options)
        return adopt_days(
            self.workspace, asked, who="ada", note=lambda text: None, spark=self.spark
        )

    def accepted(self, name: str = QUOTES) -> dict[date, Build]:
        found = self.workspace.lake.latest({name: None}, BUILD_SCHEMA.names).accepted
        return {at: build for (_, at), build in found.items()}

    def in_duckdb(self, name: str) -> list[tuple]:
        """The rows of a committed table, by another reader of Delta and DuckDB."""
        rows = DeltaTable(self.workspace.lake.path(name)).to_pyarrow_table()  # noqa: F841
        found = duckdb.sql("SELECT arrival_day, symbol, cents FROM rows ORDER BY ALL")
        return [] if found is None else found.fetchall()

    def delivered(self) -> list[tuple]:
        """The delivered rows, by DuckDB."""
        found = duckdb.sql(
            "SELECT CAST(regexp_extract(filename, '\\d+-\\d+-\\d+') AS DATE), symbol, cents"
            f" FROM read_csv('{self.root}/quotes/*.csv', filename = true) ORDER BY ALL"
        )
        return [] if found is None else found.fetchall()

    def build_in_shadow(self, plan: Plan) -> None:
        inside = workspace_of_plan(plan, self.workspace)
        request = StepRequest(
            "in the shadow",
            plan=plan.id,
            planned=plan.partitions().keys(),
            force=plan.options.force,
        )
        for table in self.tables:
            if table.name in plan.reasons:
                Step(table, inside, request, self.spark).run(sorted(plan.days_of(table.name)))


@pytest.fixture
def built(tmp_path, spark) -> Adopting:
    """The same days, built by steps in a lake of their own."""
    quotes = quotes_of(None, rules=[])
    tables = (quotes, closes_of(quotes, rules=[]))
    market = Adopting(tmp_path, lambda: spark, tables, Calendar(FIRST, LAST))
    market.deliver(*DAYS)
    market.run(DAYS, NAMES)
    return market


@pytest.fixture
def market(built, tmp_path, spark) -> Adopting:
    """A lake without builds, and a table that plain Spark has written elsewhere."""
    place = tmp_path / "elsewhere" / "quotes"
    rows = spark.read.format("delta").load(built.workspace.lake.path(QUOTES))
    rows.write.format("delta").partitionBy("arrival_day").save(str(place))
    (tmp_path / "lake").rename(tmp_path / "built")
    quotes = replace(built.table(QUOTES), path=str(place))
    tables = (quotes, closes_of(quotes, rules=[]))
    return Adopting(tmp_path, lambda: spark, tables, built.calendar, place)


def parquet_files(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(place.rglob("*.parquet"))}


def fingerprints(market: Adopting, name: str = QUOTES) -> dict[date, str]:
    return {at: build.fingerprint for at, build in market.accepted(name).items()}


def test_fingerprints_are_those_that_a_step_computes(built, market, tmp_path):
    before = parquet_files(market.place)
    (tmp_path / "built").rename(tmp_path / "lake")
    of_steps = fingerprints(replace(built))
    (tmp_path / "lake").rename(tmp_path / "built")
    report = market.adopt(fingerprint=True)
    assert (report.adopted.days, report.fingerprinted) == (DAYS, DAYS)
    assert fingerprints(market) == of_steps
    assert parquet_files(market.place) == before
    # A rebuild that gives the same rows changes nothing.
    step = market.run(DAYS, [QUOTES], force=True)[QUOTES]
    assert {build.outcome for build in step.built} == {"unchanged"}


def test_fingerprints_continue_where_they_were_stopped(market, monkeypatch):
    monkeypatch.setattr(adopting, "DAYS_TOGETHER", 2)

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
    plan = make_plan(
        RebuildRequest(partitions="all", into="shadow", yes=True), market.workspace
    ).plan
    assert plan.partitions().keys() == {(QUOTES, CORRECTED), (CLOSES, CORRECTED)}
    plans = Plans(market.workspace.lake.root)
    plans.note(plan.id, "started", datetime.now(UTC), who="ada")
    open_shadow(plan, market.workspace, "ada")
    market.build_in_shadow(plan)
    plans.note(plan.id, "ended", datetime.now(UTC), ending="done")
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


def test_days_of_unknown_code_come_back_as_adopted_by_a_rollback(market):
    market.adopt()
    first = market.in_duckdb(QUOTES)
    market.deliver(CORRECTED, rows=3, cents=250)
    assert market.states(QUOTES) == {State.ADOPTED: DAYS}
    request = RebuildRequest(
        target=QUOTES, partitions=str(CORRECTED), force=True, into="shadow", yes=True
    )
    plan = make_plan(request, market.workspace).plan
    plans = Plans(market.workspace.lake.root)
    plans.note(plan.id, "started", datetime.now(UTC), who="ada")
    open_shadow(plan, market.workspace, "ada")
    market.build_in_shadow(plan)
    plans.note(plan.id, "ended", datetime.now(UTC), ending="done")
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
    with pytest.raises(UsageError, match="which this package does not write"):
        market.adopt()
    assert market.accepted() == {}
