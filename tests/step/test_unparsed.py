"""Values and rows of files that cannot be parsed: counted, kept as text, and refused."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets import Archive, Csv, JsonLines, Landing, Parquet, TwoFlows, field, table
from backfill_assets.calendar import Calendar
from backfill_assets.errors import first_line
from backfill_assets.lake.ledger import Build
from backfill_assets.quality.masking import MASKED
from backfill_assets.sources.archives.loading import load_archives
from backfill_assets.step import compute
from backfill_assets.tables.declaration import Table, settings_of
from tests.worlds.deliveries import day, put
from tests.worlds.projects import OneTable

pytestmark = pytest.mark.long

CASES = Landing(
    "cases",
    format=Csv(),
    fields=[
        field("country STRING", required=True),
        field("active BIGINT"),
        field("deaths INT", unparsed_at_most=0.5),
        field("lat DOUBLE", unparsed_at_most=1),
    ],
)
HEADER = "country,active,deaths,lat\n"
GOOD = "a,1,2,3.5\n"


def reading(source: Landing | TwoFlows) -> Table:
    return table(
        "raw/cases",
        partition_by="arrival_day",
        columns=source.row_columns,
        reads={"rows": source},
        version="1",
    )(lambda rows: rows)


@pytest.fixture
def cases(request, tmp_path, spark, monkeypatch) -> OneTable:
    """A table of one day, profiled in this process or by Spark."""
    if getattr(request, "param", "small") == "large":
        # Few rows, and yet the path by Spark.
        monkeypatch.setattr(compute, "SMALL", -1)
    return OneTable(tmp_path, reading(CASES), lambda: spark, Calendar(day(0), day(0)))


either_way = pytest.mark.parametrize("cases", ["small", "large"], indirect=True)


def built(cases: OneTable, rows: str, **request) -> Build:
    put(cases.root, f"cases/{day(0)}.csv", HEADER + rows)
    (build,) = cases.run(**request).built
    return build


def figures(build: Build) -> dict[str, dict]:
    """The figures of the rules that refused a day."""
    return {
        check["rule"]: {name: n for name, n in check["figures"].items() if n}
        for check in build.checks
        if not check["passed"]
    }


@either_way
def test_a_day_whose_values_cannot_be_parsed_is_refused_with_texts(cases, golden):
    assert built(cases, GOOD * 102).outcome == "accepted"
    build = built(cases, GOOD * 98 + 'b,"1,100",2,x\nb,106.5,2,y\nb,,2,z\n')
    assert build.outcome == "failed"
    assert figures(build) == {"values_parsed": {"active": 2}}
    golden(first_line(build.message))
    assert len(cases.rows()) == 102


@either_way
def test_texts_of_a_masked_column_are_in_no_record(cases):
    cases = replace(cases, table=replace(cases.table, mask=["active"]))
    build = built(cases, GOOD * 98 + 'b,"4711 0815",2,x\nc,4711\n')
    assert (build.outcome, figures(build).get("values_parsed")) == ("failed", {"active": 1})
    assert "4711" not in json.dumps(build.to_json())
    assert build.samples["unparsed_active"] == [MASKED]
    (verdict,) = (check for check in build.checks if check["rule"] == "values_parsed")
    (row,) = map(json.loads, verdict["rows"])
    assert (row["country"], row.get("active"), row["unparsed"]) == ("b", None, MASKED)


def test_whole_numbers_with_a_zero_fraction_are_numbers(cases):
    assert built(cases, "a,106.0,2.0,3\n" * 20).outcome == "accepted"
    assert {(row[3], row[4]) for row in cases.rows()} == {(106, 2)}


@either_way
def test_up_to_the_share_of_a_field_the_text_is_kept_instead(cases):
    build = built(cases, "a,1,x,x\n" * 50 + GOOD * 50)
    assert (build.outcome, build.measures["unparsed_deaths"]) == ("accepted", 50)
    assert build.samples["unparsed_deaths"] == ["x"]
    kept = [dict(row[6]) for row in cases.rows()]
    assert sorted(kept, key=len) == [{}] * 50 + [{"deaths": "x", "lat": "x"}] * 50
    assert figures(built(cases, "a,1,x,x\n" * 51 + GOOD * 49)) == {"values_parsed": {"deaths": 51}}


@either_way
def test_a_few_lost_values_and_rows_are_a_warning_until_someone_accepts_them(cases, golden):
    rows = "a,x,2,3\n" + "b,1\n" + GOOD * 1998
    build = built(cases, rows)
    assert build.outcome == "accepted"
    assert figures(build) == {"values_parsed": {"active": 1}, "rows_well_formed": {"malformed": 1}}
    assert {check["severity"] for check in build.checks if not check["passed"]} == {"warning"}
    golden(build.message)
    again = built(cases, rows, force=True, accept="values_parsed,rows_well_formed", reason="known")
    assert (again.outcome != "failed", again.message) == (True, "")
    assert built(cases, rows, force=True).message == ""
    golden(built(cases, rows.replace("x", "y")).message, "another value")


@pytest.mark.parametrize(
    ("declared", "texts"),
    [
        pytest.param(field("v DOUBLE"), ["1,5", "2,25"], id="commas"),
        pytest.param(field("v INT"), [" 1", "2 "], id="blanks"),
        pytest.param(field("v INT"), ["NA", "n/a", "-"], id="texts without a value"),
        pytest.param(
            field("v TIMESTAMP", zone="Europe/Vienna"),
            ["2024-10-27 02:00:00"],
            id="a repeated hour",
        ),
        pytest.param(field("v DOUBLE"), ["1,5", "x"], id="no remedy"),
        pytest.param(field("v DOUBLE", decimal="."), ["1,5"], id="another sign is declared"),
    ],
)
def test_the_message_says_what_to_write_if_it_can_be_seen(tmp_path, spark, declared, texts, golden):
    source = Landing("cases", format=Csv(";"), fields=[declared, field("k STRING")])
    cases = OneTable(tmp_path, reading(source), lambda: spark, Calendar(day(0), day(0)))
    put(tmp_path, f"cases/{day(0)}.csv", "v;k\n" + "".join(f"{text};k\n" for text in texts))
    (build,) = cases.run().built
    assert build.outcome == "failed"
    golden(first_line(build.message))


def test_values_that_turn_unreadable_are_not_called_empty(cases):
    """Accepting the column as empty would lose its values."""
    built(cases, GOOD * 10)
    build = built(cases, "a,n/a,2,3\n" * 10)
    assert figures(build) == {"values_parsed": {"active": 10}}
    assert figures(built(cases, "a,,2,3\n" * 10)) == {"columns_still_filled": {"columns": 1}}
    assert figures(built(cases, "a,,2,3\n" * 9 + "a,x,2,3\n")) == {"values_parsed": {"active": 1}}


def test_what_cannot_be_parsed_can_be_accepted_by_the_name_of_the_rule(cases):
    build = built(cases, "a,n/a,2,3\n", accept="values_parsed", reason="as it is")
    assert (build.outcome, build.accept) == ("accepted", "values_parsed")


@either_way
def test_malformed_rows_are_refused_with_their_text(cases, golden):
    build = built(cases, GOOD * 999 + "b,1\n" + "c,1,2,3,4\n")
    assert figures(build) == {"rows_well_formed": {"malformed": 2}}
    golden(first_line(build.message))
    assert built(cases, GOOD * 999 + "b,1\n").outcome == "accepted"


def test_lines_of_json_without_a_required_column_are_malformed(tmp_path, spark):
    source = replace(CASES, format=JsonLines())
    cases = OneTable(tmp_path, reading(source), lambda: spark, Calendar(day(0), day(0)))
    put(tmp_path, f"cases/{day(0)}.jsonl", '{"country": "a", "active": 1.0}\n' * 30 + "[]\n")
    (build,) = cases.run().built
    assert figures(build) == {"rows_well_formed": {"malformed": 1}}


def test_lines_of_archives_are_judged_also_if_days_arrive_as_parquet(tmp_path, spark):
    landing = replace(CASES, format=Parquet(), fields=CASES.fields[1:])
    source = TwoFlows(landing, Archive("past", files="{year}-{month}-{day}.jsonl"))
    cases = OneTable(tmp_path, reading(source), lambda: spark, Calendar(day(0), day(0)))
    put(cases.root, f"past/{day(0)}.jsonl", '{"active": 1}\n' * 30 + "[]\n")
    area = cases.workspace.area
    assert [each.problem for each in load_archives(source.archive, area)] == [""]
    (build,) = cases.run().built
    assert figures(build) == {"rows_well_formed": {"malformed": 1}}


@pytest.mark.parametrize("small", [True, False])
def test_bytes_in_parquet_that_are_no_text_are_counted(tmp_path, spark, monkeypatch, small, golden):
    if not small:
        # Few rows, and yet the path by Spark.
        monkeypatch.setattr(compute, "SMALL", -1)
    fields = [field("name STRING"), field("note STRING", unparsed_at_most=0.5)]
    source = Landing("cases", format=Parquet(), fields=fields)
    cases = OneTable(tmp_path, reading(source), lambda: spark, Calendar(day(0), day(2)))
    for n, bad in enumerate((b"\xc3", b"c", b"d")):
        columns = {"name": [b"a", b"b", bad], "note": [b"a", b"\xff", None]}
        path = put(tmp_path, f"cases/{day(n)}.parquet", b"")
        pq.write_table(pa.table(columns if n < 2 else {"name": ["a"], "note": [None]}), path)
    builds = cases.run().built
    assert [build.outcome for build in builds] == ["failed", "accepted", "accepted"]
    assert figures(builds[0]) == {"values_parsed": {"name": 1, "note": 1}}
    golden([first_line(build.message) for build in builds[:2]])
    rows = [(row[0], row[2], row[3]) for row in cases.rows()]
    assert rows == [
        (day(1), "a", "a"),
        (day(1), "b", None),
        (day(1), "c", None),
        (day(2), "a", None),
    ]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(CASES, id="both"),
        pytest.param(replace(CASES, malformed_at_most=1), id="one"),
        pytest.param(replace(CASES, fields=[field("a STRING")]), id="texts"),
        pytest.param(
            Landing("cases", format=Parquet(), fields=[field("a STRING")]), id="texts of Parquet"
        ),
    ],
)
def test_a_table_must_keep_the_columns_by_which_it_is_judged(source, golden):
    with golden.raises(ValueError):
        table(
            "raw/cases",
            partition_by="arrival_day",
            columns=f"arrival_day DATE, {source.columns}, unparsed ARRAY<STRING>",
            reads={"rows": source},
        )


def test_a_source_that_allows_everything_needs_no_such_columns():
    source = replace(CASES, fields=CASES.fields[:2], unparsed_at_most=1, malformed_at_most=1)
    declared = table(
        "raw/cases",
        partition_by="arrival_day",
        columns=f"arrival_day DATE, {source.columns}",
        reads={"rows": source},
        version="1",
    )(lambda rows: rows)
    assert {"values_parsed", "rows_well_formed"}.isdisjoint(rule.name for rule in declared.rules)


def test_shares_are_no_part_of_the_code_version():
    other = field("active BIGINT", unparsed_at_most=0.2)
    fields = [other if each.name == "active" else each for each in CASES.fields]
    stricter = replace(CASES, fields=fields, unparsed_at_most=0.0, malformed_at_most=0.0)
    assert settings_of(stricter) == settings_of(CASES)
    retyped = replace(CASES, fields=[field("active INT")])
    assert settings_of(retyped) != settings_of(CASES)
