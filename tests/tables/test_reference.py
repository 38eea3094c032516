"""Tables without days: what is built from them, and what a change of them makes outdated."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.calendar import NO_DAY
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.shadow import open_shadow, workspace_of
from backfill_assets.plan.status_in_bulk import status_in_bulk
from backfill_assets.plan.store import Plans
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.rollback import roll_back
from backfill_assets.reproduce.inputs import recorded_build
from backfill_assets.reproduce.reproduce import reproduce
from backfill_assets.reproduce.reproduction import ReproductionResult
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import SliceDays, Table, itself, same_day, table
from backfill_assets.tables.reference import as_delivered, reference
from backfill_assets.verify.verify import require_verified
from tests.worlds.depth import deep
from tests.worlds.outages import broken_rules
from tests.worlds.regions import (
    CHANGES,
    DAYS,
    EXPECTED,
    FILE,
    PLACED,
    PLACES,
    REGIONS,
    Places,
    changes,
    from_file,
    since,
    states,
)
from tests.worlds.small_lake import NOW, verdict_of

HEAD = "region,latitude,longitude"
DATED = f"{HEAD},valid_from"
FEW = ["Fresno,1.5,2.5", "Oakland,3.5,4.5", "San Jose,5.5,6.5", "Chico,7.5,8.5"]


def csv(*lines: str, head: str = HEAD) -> str:
    return "\n".join([head, *lines, ""])


def accepted(*days: date) -> list[str]:
    return [f"{day} accepted" for day in days]


@pytest.fixture(scope="module")
def once(tmp_path_factory, spark) -> Places:
    """The three tables, built with a few regions. Read only."""
    places = Places(tmp_path_factory.mktemp("places"), lambda: spark).deliver(csv(*FEW))
    places.run()
    return places


@pytest.fixture
def built(once, tmp_path) -> Places:
    """The same, to be changed."""
    return once.copied(tmp_path)


@pytest.fixture
def places(tmp_path, spark) -> Places:
    return Places(tmp_path, lambda: spark).deliver()


@pytest.fixture
def dated(tmp_path, spark) -> Places:
    """Regions that moved on the third day, one that is new then, and one that always was there."""
    rows = [
        "Fresno,1,1,2019-01-01",
        f"Fresno,2,2,{DAYS[2]}",
        f"Oakland,3,3,{DAYS[2]}",
        "Chico,4,4,",
    ]
    return Places(tmp_path, lambda: spark, since()).deliver(csv(*rows, head=DATED))


def test_daily_tables_read_it_whole_and_a_change_makes_all_their_days_outdated(places, golden):
    assert places.outcomes() == {
        REGIONS: accepted(NO_DAY),
        CHANGES: accepted(*DAYS),
        PLACED: accepted(*DAYS),
    }
    assert places.rows() == places.expected() != []
    assert places.outcomes() == {REGIONS: [], CHANGES: [], PLACED: []}
    head, _, *rest = places.file.read_text().splitlines()
    places.deliver_regions(csv(*rest, head=head))
    assert states(places.status(), REGIONS) == {"outdated: source files changed": [NO_DAY]}
    assert states(places.status(), PLACED) == {"up to date": DAYS}
    assert places.outcomes(only=[REGIONS]) == {REGIONS: accepted(NO_DAY)}
    assert states(places.status(), PLACED) == {"outdated: input changed": DAYS}
    golden(places.status().partitions[PLACED, DAYS[0]].why)
    assert in_bulk(places) == places.status()
    places.run()
    assert places.rows() == places.expected()
    assert places.status().states == {"up to date"}
    assert in_bulk(places) == places.status()


def in_bulk(places: Places):
    return status_in_bulk(places.workspace, places.workspace.tables, DAYS, {})


def test_rows_hold_from_a_day_on_and_a_change_makes_later_days_outdated(dated):
    dated.run()
    assert dated.rows() == dated.expected() != []
    assert {row[0] for row in dated.rows() if row[1] == "Oakland"} <= {*DAYS[2:]}
    # A later version of a region changes the days from then on; a row of the future no day.
    text = dated.file.read_text()
    dated.deliver_regions(f"{text}Chico,5,5,{DAYS[3]}\nChico,6,6,2040-01-01\n")
    dated.run(only=[REGIONS])
    assert states(dated.status(), PLACED) == {
        "up to date": DAYS[:3],
        "outdated: input changed": DAYS[3:],
    }
    assert in_bulk(dated) == dated.status()
    assert dated.outcomes()[PLACED][0].startswith(str(DAYS[3]))
    assert dated.rows() == dated.expected()
    # A row without a day always holds.
    dated.deliver_regions(dated.file.read_text().replace("Chico,4,4,", "Chico,4,9,"))
    dated.run(only=[REGIONS])
    assert states(dated.status(), PLACED) == {"outdated: input changed": DAYS}


@pytest.mark.scale
def test_a_day_gets_the_rows_that_hold_on_it_if_days_are_built_one_by_one(dated):
    """As all days at once get them, above."""
    dated.run(only=[REGIONS, CHANGES])
    for day in reversed(DAYS):
        dated.run([day], only=[PLACED])
    assert dated.rows() == dated.expected()


ROWS = [
    dict(zip(HEAD.split(","), (region, float(a), float(b)), strict=True))
    for region, a, b in (row.split(",") for row in FEW)
]
answer: list = []


def of_dicts():
    return answer[-1]


def of_pandas():
    return pd.DataFrame(answer[-1])


def of_arrow():
    return pa.Table.from_pylist(answer[-1]).append_column("unused", pa.array([1] * len(answer[-1])))


@pytest.mark.scale
@pytest.mark.parametrize("function", [of_dicts, of_pandas, of_arrow])
def test_rows_of_a_function_are_read_and_their_order_does_not_matter(tmp_path, spark, function):
    answer[:] = [ROWS]
    places = Places(tmp_path, lambda: spark, from_file(source=function)).deliver()
    places.run()
    expected = f"FROM read_csv('{tmp_path / 'few.csv'}')"
    (tmp_path / "few.csv").write_text(csv(*FEW))
    assert places.rows() == places.expected(expected) != []
    answer.append(ROWS[::-1])
    assert places.status().states == {"up to date"}
    answer.append(ROWS[1:])
    assert states(places.status(), REGIONS) == {"outdated: source files changed": [NO_DAY]}
    places.run()
    (tmp_path / "few.csv").write_text(csv(*FEW[1:]))
    assert places.rows() == places.expected(expected)


@pytest.mark.scale
def test_a_delta_table_is_read_at_its_newest_version(tmp_path, spark):
    path = str(tmp_path / "shared")
    write_deltalake(path, pa.Table.from_pylist([row | {"more": 1} for row in ROWS]))
    places = Places(tmp_path, lambda: spark, from_file(source=path)).deliver()
    places.run()
    assert places.rows(REGIONS) == sorted(tuple(row.values()) for row in ROWS)
    write_deltalake(
        path, pa.Table.from_pylist([row | {"more": 2} for row in ROWS[:3]]), mode="overwrite"
    )
    assert states(places.status(), REGIONS) == {"outdated: source files changed": [NO_DAY]}
    places.run()
    assert places.rows(REGIONS) == sorted(tuple(row.values()) for row in ROWS[:3])
    assert {row[1] for row in places.rows()} <= {row["region"] for row in ROWS[:3]}


@pytest.mark.scale
def test_other_files_with_the_same_rows_make_no_day_outdated(tmp_path, spark):
    path = str(tmp_path / "shared")
    for n in range(3):
        write_deltalake(path, pa.Table.from_pylist(ROWS[n : n + 1]), mode="append")
    places = Places(tmp_path, lambda: spark, from_file(source=path)).deliver()
    places.run()
    before = places.rows()
    DeltaTable(path).optimize.compact()
    assert len(DeltaTable(path).file_uris()) == 1
    assert places.outcomes()[PLACED] == []
    assert places.outcomes() == {REGIONS: [], CHANGES: [], PLACED: []}
    assert places.rows() == before != []


@pytest.mark.scale
@pytest.mark.parametrize("of", ["a file", "a function"])
def test_another_order_of_columns_makes_no_day_outdated(tmp_path, spark, of):
    answer[:] = [ROWS]
    given = {"source": of_dicts} if of == "a function" else {}
    places = Places(tmp_path, lambda: spark, from_file(**given)).deliver(csv(*FEW))
    places.run()
    if of == "a file":
        rows = [row.split(",") for row in FEW]
        turned = [f"{longitude},{region},{latitude}" for region, latitude, longitude in rows]
        places.deliver_regions(csv(*turned, head="longitude,region,latitude"))
    else:
        answer.append([dict(reversed(row.items())) for row in ROWS])
        columns = "longitude DOUBLE, region STRING, latitude DOUBLE"
        assert places.status().states == {"up to date"}
        places = replace(places, regions=from_file(**given, columns=columns))
        assert places.status().states == {"up to date"}
    places.run(only=[REGIONS])
    assert states(places.status(), PLACED) == {"up to date": DAYS}
    places.run()
    (tmp_path / "few.csv").write_text(csv(*FEW))
    assert places.rows() == places.expected(f"FROM read_csv('{tmp_path / 'few.csv'}')") != []


@pytest.mark.scale
def test_a_function_that_returns_other_types_is_refused(tmp_path, spark, golden):
    answer[:] = [ROWS]
    places = Places(tmp_path, lambda: spark, from_file(source=of_dicts)).deliver()
    places.run()
    answer.append([row | {"latitude": str(row["latitude"])} for row in ROWS])
    (build,) = places.run(only=[REGIONS])[REGIONS].built
    assert (build.outcome, broken_rules(build)) == ("failed", ["types_as_declared"])
    golden(build.message)
    assert places.outcomes()[PLACED] == []


@pytest.mark.scale
def test_it_may_be_empty_if_that_is_declared(tmp_path, spark):
    places = Places(tmp_path, lambda: spark, from_file(may_be_empty=True)).deliver(csv())
    assert places.outcomes() == {
        REGIONS: accepted(NO_DAY),
        CHANGES: accepted(*DAYS),
        PLACED: accepted(*DAYS),
    }
    assert (places.rows(REGIONS), places.rows()) == ([], [])
    assert places.outcomes() == {REGIONS: [], CHANGES: [], PLACED: []}
    places.deliver_regions(csv(*FEW))
    places.run()
    assert places.rows() == places.expected() != []
    assert places.status().states == {"up to date"}


@pytest.mark.scale
def test_a_table_that_reads_itself_is_computed_again_from_the_first_day(tmp_path, spark):
    places = Summed(tmp_path, lambda: spark)
    places.deliver(csv(*FEW))
    places.run()
    assert places.sums() == places.expected_sums() != []
    places.deliver_regions(csv("Fresno,9,9", *FEW[1:]))
    places.run(only=[REGIONS])
    assert states(places.status(), PLACED) == {"outdated: input changed": DAYS}
    places.run()
    assert places.sums() == places.expected_sums() != []
    assert places.status().states == {"up to date"}


@dataclass(frozen=True)
class Summed(Places):
    """A running total: the latitudes of each day's regions are added to it."""

    @property
    def tables(self):
        @table(
            PLACED,
            partition_by="day",
            columns="day DATE, total DOUBLE",
            reads={
                "days": SliceDays(),
                "before": itself(),
                "changes": same_day(changes),
                "regions": self.regions,
            },
            version="1",
        )
        def summed(days, before, changes, regions):
            earlier = before.agg(F.coalesce(F.sum("total"), F.lit(0.0)).alias("earlier"))
            rows = days.join(changes.join(regions, "region"), "day", "left")
            parts = rows.groupBy("day").agg(F.coalesce(F.sum("latitude"), F.lit(0.0)).alias("part"))
            total = "earlier + sum(part) OVER (ORDER BY day) AS total"
            return parts.crossJoin(earlier).selectExpr("day", total)

        return [self.regions, changes, summed]

    def sums(self):
        found = DeltaTable(self.workspace.lake.path(PLACED)).to_pyarrow_table(
            columns=["day", "total"]
        )
        return sorted(tuple(row.values()) for row in found.to_pylist())

    def expected_sums(self):
        days = f"SELECT day, sum(latitude) AS part FROM ({EXPECTED}) GROUP BY day"
        totals = f"SELECT DISTINCT day, sum(part) OVER (ORDER BY day) FROM ({days})"
        regions = f"FROM read_csv('{self.file}')"
        sql = f"{totals} ORDER BY day".format(landing=self.landing, regions=regions)
        return duckdb.connect().execute(sql).fetchall()


BAD = {
    "empty": (csv(), []),
    "nothing": ("", []),
    "shorter": (csv(FEW[0]), []),
    "a key twice": (csv(*FEW, FEW[0]), ["unique_key"]),
    "a null key": (csv(*FEW, ",9,9"), ["no_nulls_in_key"]),
    "another column": (csv(*FEW, head="region,latitude,lng"), []),
    "a value that is no number": (csv(*FEW[:3], "Chico,north,8.5"), ["values_parsed"]),
}


@pytest.mark.parametrize(("text", "rules"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_and_readers_keep_their_rows(built, golden, text, rules):
    before = built.rows()
    built.deliver_regions(text)
    (build,) = built.run(only=[REGIONS])[REGIONS].built
    assert build.outcome == "failed"
    assert broken_rules(build) == rules
    golden(build.message)
    assert built.outcomes(only=[CHANGES, PLACED])[PLACED] == []
    assert built.rows() == before
    assert len(built.rows(REGIONS)) == len(FEW)


def test_a_file_that_is_gone_leaves_the_table_and_its_readers_as_they_are(built, golden):
    before = built.rows()
    built.file.unlink()
    golden(built.status().partitions[REGIONS, NO_DAY].why)
    assert built.status().states == {"up to date"}
    assert built.outcomes() == {REGIONS: [], CHANGES: [], PLACED: []}
    assert built.rows() == before


def test_days_wait_for_a_table_without_days_that_was_never_built(places, golden):
    places.file.unlink()
    result = places.run()[PLACED]
    assert [*result.blocked] == DAYS
    golden(result.blocked[DAYS[0]])


@pytest.mark.parametrize("of", deep(["its source", "the table"], ["the table"]))
def test_what_changes_during_a_run_is_read_again(built, spark, of):
    built.deliver_regions(csv(*FEW[:3]))
    if of == "the table":
        built.run(only=[REGIONS])
    changes = [csv(*FEW[1:])]

    def changed():
        """Called after the days were looked at, and before they are read."""
        while changes:
            built.deliver_regions(changes.pop())
            if of == "the table":
                built.run(only=[REGIONS])
        return spark

    late = replace(built, spark=changed)
    builds = late.run(only=[REGIONS if of == "its source" else PLACED]).popitem()[1].built
    assert {build.outcome for build in builds} == {"accepted"}
    built.run()
    assert built.outcomes() == {REGIONS: [], CHANGES: [], PLACED: []}
    assert built.rows() == built.expected() != []


@pytest.mark.scale
def test_a_day_is_reproduced_from_the_rows_that_it_read(dated, spark):
    dated.run()
    dated.deliver_regions(dated.file.read_text().replace("Chico,4,4,", "Chico,4,9,"))
    dated.run(only=[REGIONS])
    for day in DAYS:
        recorded = recorded_build(PLACED, str(day), None, dated.workspace)
        assert reproduce(recorded, dated.workspace, spark).result == ReproductionResult.SAME
    recorded = recorded_build(REGIONS, "", None, dated.workspace)
    assert reproduce(recorded, dated.workspace, spark).result == ReproductionResult.SAME


def test_a_plan_is_published_to_readers_and_rolled_back(built):
    places = built
    before = (places.rows(REGIONS), places.rows())
    places.deliver_regions(places.file.read_text().replace("Fresno,1.5", "Fresno,9.5"))
    workspace = places.workspace
    request = RebuildRequest(
        partitions=str(NO_DAY), target=REGIONS, downstream="built", into="shadow"
    )
    plan = make_plan(request, workspace).plan
    plans = Plans(workspace.lake.root)
    plans.note(plan.id, "started", NOW, who="ada")
    open_shadow(plan, workspace, "ada")
    inside = workspace_of(plan, workspace)
    asked = StepRequest(run="a run", plan=plan.id, planned=plan.partitions().keys())
    for each in workspace.tables:
        Step(each, inside, asked, places.spark).run(sorted(plan.days_of(each.name)))
    plans.note(plan.id, "ended", NOW, ending="done")
    assert (places.rows(REGIONS), places.rows()) == before
    assert verdict_of(plan, workspace).passed
    done = Publication(plan, workspace, "ada").publish(require_verified(plan, workspace))
    assert done.release
    assert places.rows() == places.expected() != before[1]
    assert states(places.status(), REGIONS) == {"up to date": [NO_DAY]}
    released = ReleasedTable(workspace.lake.root, open_channel(workspace.lake.root), REGIONS)
    assert released.dataset().count_rows() == len(before[0])
    roll_back(plan, workspace, who="ada", reason="a test")
    assert (places.rows(REGIONS), places.rows()) == before


def test_a_plan_of_days_builds_the_table_first_if_it_is_due(built, tmp_path):
    places = Places(tmp_path / "new", built.spark).deliver(csv(*FEW))

    def chunks(**request):
        made = make_plan(RebuildRequest(**request), places.workspace)
        return [{name: [*days] for name, days in chunk.days.items()} for chunk in made.plan.chunks]

    days = f"{DAYS[1]}..{DAYS[2]}"
    assert chunks(partitions=days) == [
        {REGIONS: [NO_DAY], CHANGES: DAYS[1:3], PLACED: DAYS[1:3]},
    ]
    assert chunks(partitions=str(DAYS[1]), target=PLACED, upstream=True)[0][REGIONS] == [NO_DAY]
    assert chunks(partitions="all", days_per_run=1, canary=0)[0] == {
        REGIONS: [NO_DAY],
        CHANGES: DAYS[:1],
        PLACED: DAYS[:1],
    }
    assert chunks(partitions=days, target=REGIONS) == [{REGIONS: [NO_DAY]}]
    assert chunks(partitions=str(NO_DAY), target=REGIONS) == [{REGIONS: [NO_DAY]}]
    places = built
    places.deliver_regions(csv(*FEW * 300))
    assert chunks(partitions=days, target=REGIONS, downstream="built", canary=0) == [
        {REGIONS: [NO_DAY], PLACED: DAYS},
    ]


@pytest.mark.pure
def test_readers_are_of_other_code_if_other_rows_hold_on_a_day():
    def version(*key: str, valid_from: str) -> str:
        columns = "region STRING, kind STRING, since DATE, until DATE"
        read = reference(
            REGIONS, source=FILE, columns=columns, key=key, valid_from=valid_from, version="1"
        )
        made = table(
            PLACED, partition_by="day", columns="day DATE, region STRING", reads={"rows": read}
        )
        return made(as_delivered).version

    versions = {
        version("region", valid_from="since"),
        version("region", "kind", valid_from="since"),
        version("region", valid_from="until"),
        version("region", valid_from=""),
    }
    assert len(versions) == 4


def refused(**given: object) -> Callable[[], Table]:
    options = {"source": "reference/regions.csv", "columns": PLACES, "key": ["region"]} | given
    return lambda: reference("ref/regions", **options)  # type: ignore[arg-type]


def of_lambda() -> Table:
    return from_file(source=lambda: ROWS, version="")


REFUSED = {
    "valid_from is no column": refused(valid_from="since"),
    "valid_from is no date": refused(columns=f"{PLACES}, since STRING", valid_from="since"),
    "valid_from without a key": refused(
        columns=f"{PLACES}, since DATE", valid_from="since", key=[]
    ),
    "the key is no column": refused(key=["place"]),
    "a file outside of a folder": refused(source="regions.csv"),
    "a function within another": of_lambda,
    "the day is a column": refused(columns=f"{PLACES}, arrival_day DATE"),
}


@pytest.mark.pure
@pytest.mark.parametrize("declare", REFUSED.values(), ids=REFUSED)
def test_a_table_that_cannot_be_is_refused_where_it_is_declared(declare, golden):
    with pytest.raises(ValueError, match=r"regions|file|column|folder") as refusal:
        declare()
    golden(str(refusal.value))
