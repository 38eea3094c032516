"""Commands on tables without days: their one partition is shown, and typed, as `whole`."""

import json
import re
import shutil
from typing import Any

import pyarrow.parquet as pq
import pytest

from backfill_assets.plan.shadow import open_shadow
from backfill_assets.plan.store import Plans
from tests.worlds.command_line import without_now
from tests.worlds.small_lake import NOW, timeless
from tests.worlds.undated import (
    CHANGES,
    DAYS,
    PLACED,
    PRICED,
    REGIONS,
    TARIFFS,
    THREE_TARIFFS,
    TWO_REGIONS,
    Undated,
)

pytestmark = pytest.mark.lake

STORED = "1700-01-01"
TABLES = [CHANGES, REGIONS, TARIFFS, PLACED, PRICED]
LATER = [str(at) for at in DAYS]
MOVED = [{"region": "Alamo", "zone": 4}, {"region": "Chico", "zone": 5}]
RAISED = [*THREE_TARIFFS, {"region": "Chico", "tariff": 4, "since": str(DAYS[3])}]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Undated:
    return Undated(tmp_path_factory.mktemp("undated")).lay_out().write()


@pytest.fixture
def undated(built, tmp_path) -> Undated:
    """A copy for a test that changes it."""
    shutil.copytree(built.root, tmp_path / "copy")
    return Undated(tmp_path / "copy")


def printed(undated: Undated, *typed: str, code: int = 0) -> str:
    done = undated.type(*typed)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done
    # Only a row has it, as a value.
    assert STORED not in re.sub(rf'arrival_day"?[=:] ?"{STORED}"', "", done.stdout + done.stderr)
    return done.stdout


def values(undated: Undated, *typed: str, code: int = 0) -> Any:
    return json.loads(printed(undated, *typed, "--json", code=code))


TYPED = [
    ["status"],
    ["status", "--partitions", "whole"],
    ["status", "--why", REGIONS, "whole"],
    ["status", "--why", PRICED, str(DAYS[0])],
    ["log"],
    ["log", REGIONS, "all"],
    ["log", REGIONS, "whole"],
    ["blame", REGIONS, "whole"],
    ["blame", TARIFFS, str(DAYS[0])],
    ["blame", PLACED, str(DAYS[0]), "--key", "region=Alamo"],
    ["late"],
    ["diff", REGIONS, "whole"],
    ["plan", "--partitions", "whole", "--target", REGIONS, "--force", "--downstream"],
    ["plan", "--partitions", "whole", "--target", PLACED],
]


@pytest.mark.parametrize("typed", TYPED, ids=" ".join)
def test_it_is_shown_as_whole(built, typed, golden):
    golden(timeless(printed(built, *typed)), command=typed[0])


@pytest.mark.parametrize("typed", [each for each in TYPED if each[0] != "plan"], ids=" ".join)
def test_programs_get_it_as_whole(built, typed):
    values(built, *typed)


def test_the_status_of_each_day_has_whole_as_a_key(built):
    tables = values(built, "status")["tables"]
    assert {name: [*days] for name, days in tables.items()} == {
        CHANGES: LATER,
        REGIONS: ["whole"],
        TARIFFS: ["whole"],
        PLACED: LATER,
        PRICED: LATER,
    }
    assert built.status() == {"up to date"}


def test_a_day_of_a_row_is_traced_to_the_row_that_it_was_made_with(built):
    found = values(built, "blame", PLACED, LATER[0], "--key", "region=Alamo")
    read = {each["table"]: (each["days"], each["count"]) for each in found["origin"]["inputs"]}
    assert read == {CHANGES: ([LATER[0]], 1), REGIONS: (["whole"], 1)}


def test_a_change_is_planned_and_pages_show_it(undated, tmp_path):
    undated.change(MOVED, RAISED)
    plan = values(undated, "plan", "--partitions", "whole", "--downstream")["plan"]
    assert {name: [*days] for name, days in plan["reasons"].items()} == {
        REGIONS: ["whole"],
        TARIFFS: ["whole"],
        PLACED: LATER,
        PRICED: LATER,
    }
    printed(undated, "status", "--svg", str(tmp_path / "days.svg"))
    printed(undated, "report", str(tmp_path / "lake.html"))
    for page in ("days.svg", "lake.html"):
        text = (tmp_path / page).read_text()
        assert (f"{REGIONS} whole: 1 outdated" in text, STORED in text) == (True, False)


def test_readers_get_the_rows_of_a_release(undated, tmp_path):
    printed(undated, "release", "--reason", "first")
    given = [tuple(row.values()) for row in TWO_REGIONS]
    assert undated.read(REGIONS) == undated.rows(REGIONS) == given
    printed(undated, "export", REGIONS, str(tmp_path / "all.parquet"))
    printed(undated, "export", REGIONS, str(tmp_path / "one.parquet"), "--partitions", "whole")
    for file in ("all.parquet", "one.parquet"):
        assert pq.read_table(tmp_path / file).select(["region", "zone"]).to_pylist() == TWO_REGIONS
    query = f'SELECT sum(zone) AS zones FROM "{REGIONS}"'
    assert " 8 " in printed(undated, "sql", query)


EDITS: dict[str, tuple[str, str, dict[str, list[str]]]] = {
    "of its function": (
        'json.loads((HERE / "regions.json").read_text())',
        'json.loads((HERE / "regions.json").read_text())[:9]',
        {REGIONS: ["whole"], PLACED: LATER},
    ),
    "of a comment": ("regions = reference(", "# Regions.\nregions = reference(", {}),
}  # fmt: skip


@pytest.mark.scale
@pytest.mark.parametrize(("old", "new", "outdated"), EDITS.values(), ids=EDITS)
def test_an_edit_of_it_makes_outdated_what_reads_it(tmp_path, old, new, outdated):
    """Its version follows its code, where no version is given."""
    undated = Undated(tmp_path).lay_out(
        edited=('key=["region"],\n    version="1",', 'key=["region"],')
    )
    undated.write()
    undated.commit()
    undated.edit(old, new)
    found = json.loads(undated.type_elsewhere("impact", "--base", "HEAD", "--json").stdout)
    assert found["impact"]["days"] == outdated


PRINTING = """def placed(changes, regions):
    from pyspark.sql.functions import udf

    @udf("bigint")
    def printed(zone):
        print("zone", zone)
        return zone

    regions = regions.withColumn("zone", printed("zone"))
"""


@pytest.mark.scale
def test_what_functions_in_workers_print_is_shown(undated):
    undated.edit("def placed(changes, regions):\n", PRINTING)
    typed = ("evaluate", PLACED, LATER[0], "--json")
    done = undated.type_elsewhere(*typed)
    assert json.loads(done.stdout)["rows"] == 2
    assert {*done.stderr.splitlines()} == {"zone 3", "zone 5"}


@pytest.mark.scale
def test_a_change_is_verified_published_and_rolled_back(undated, tmp_path, golden):
    """Each command is typed, and each table compared with DuckDB after each act."""
    printed(undated, "release", "--reason", "first")
    before = {name: undated.rows(name) for name in TABLES}
    asked = ["--partitions", "whole", "--target", "ref/*", "--downstream", "--into", "shadow"]
    undated.change(MOVED, RAISED)
    plan_id = values(undated, "plan", *asked)["id"]
    plans = Plans(undated.workspace.lake.root)
    plan = plans.read(plan_id)
    plans.note(plan.id, "started", NOW, who="ada")
    open_shadow(plan, undated.workspace, "ada")
    undated.write(plan)
    plans.note(plan.id, "ended", NOW, ending="done")
    assert {name: undated.rows(name) for name in TABLES} == before
    golden(timeless(printed(undated, "show", plan.id)), "built", command="show", PLAN=plan.id)
    golden(timeless(printed(undated, "diff", plan.id)), "plan", command="diff", PLAN=plan.id)
    values(undated, "show", plan.id)
    values(undated, "diff", plan.id)
    printed(undated, "verify", plan.id, code=4)
    accept = ["--accept", "changes *", "--reason", "they moved"]
    verified = without_now(printed(undated, "verify", plan.id, *accept))
    golden(verified, "plan", command="verify", PLAN=plan.id)
    printed(undated, "preview", plan.id)
    published = without_now(printed(undated, "publish", plan.id))
    golden(published, "plan", command="publish", PLAN=plan.id)
    for name in TABLES:
        assert undated.rows(name) == undated.read(name) == undated.expected(name)
    assert undated.read(REGIONS, release=1) == before[REGIONS]
    assert undated.status() == {"up to date"}
    printed(undated, "diff", "1", "2")
    (row,) = values(undated, "blame", REGIONS, "whole", "--key", "region=Alamo")["rows"]
    assert [version["rows"][0]["zone"] for version in row["versions"]] == [4, 3]
    printed(undated, "backup", str(tmp_path / "copies"))
    rolled_back = without_now(printed(undated, "rollback", plan.id, "--yes"))
    golden(rolled_back, "plan", command="rollback", PLAN=plan.id)
    assert {name: undated.rows(name) for name in TABLES} == before
    printed(undated, "log")
    printed(undated, "reconcile", code=3)
    shutil.rmtree(undated.root / "home" / "lake")
    printed(undated, "restore", str(tmp_path / "copies"))
    assert undated.rows(REGIONS) == undated.expected(REGIONS)
    assert undated.status() == {"up to date"}
    shutil.rmtree(undated.root / "home" / "lake" / REGIONS)
    printed(undated, "status")
    printed(undated, "reconcile", code=1)
    printed(undated, "alerts")
