"""`backfill diff` on a small lake: a plan, a day's last build, two releases; what it prints, writes
and exits with.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner, Result

from backfill_assets.cli import exit_codes
from backfill_assets.cli.app import app
from backfill_assets.errors import NOTHING_CHANGED, TableUnreadable, UsageError
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.lake.listed_files import data_files
from backfill_assets.lake.releases import Releases, TableVersion
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from backfill_assets.publish.pointers import pin
from tests.worlds.deliveries import day

pytestmark = pytest.mark.lake

OUTAGES = "staging/outages"
REGIONS = "features/region_daily"
KEYS = {OUTAGES: "outage_number", REGIONS: "region"}
Days = Mapping[int, Mapping[str, Any]]


@dataclass
class Lake:
    """Days of two bundled tables; a day is a value by key."""

    root: Path
    runs: int = 0

    def build(self, values: Days, *, table: str = OUTAGES, plan: str = "") -> int:
        """Write these days in one commit and record them; the version after it."""
        self.runs += 1
        rows = [(day(n), key, value) for n, of in values.items() for key, value in of.items()]
        days, keys, of_rows = (
            (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
        )
        columns = {
            "outage_day": pa.array(days, pa.date32()),
            KEYS[table]: pa.array(keys),
            "value": pa.array(of_rows),
        }
        path = self.root / table
        exists = (self.root / table / "_delta_log").exists()
        where = " OR ".join(f"outage_day = '{day(n)}'" for n in values) if exists else None
        write_deltalake(
            path, pa.table(columns), partition_by=["outage_day"], mode="overwrite", predicate=where
        )
        log = DeltaTable(path)
        at = datetime.now(UTC)
        version = int(log.version())
        files = data_files(log, [day(n) for n in values])
        Ledger(str(self.root)).append(
            [
                Build(
                    table,
                    day(n),
                    "accepted",
                    f"run{self.runs}",
                    "1",
                    fingerprint=json.dumps(of),
                    rows=len(of),
                    plan=plan,
                    delta_version=version,
                    data_files=files.get(day(n), ""),
                    at=at,
                )
                for n, of in values.items()
            ]
        )
        return version

    def plan(self, *numbers: int, started: bool = True) -> str:
        plan = Plan(
            {OUTAGES: "1"},
            {OUTAGES: {day(n): Reason(ReasonKind.MISSING) for n in numbers}},
            [Chunk(0, {})],
            PlanOptions(),
        )
        plans = Plans(str(self.root))
        plans.keep(plan)
        if started:
            plans.note(plan.id, "started", datetime.now(UTC), who="ada")
        return plan.id

    def release(self, **versions: int) -> None:
        names = {"outages": OUTAGES, "regions": REGIONS}
        tables = {
            names[name]: TableVersion(names[name], version) for name, version in versions.items()
        }
        releases = Releases(str(self.root))
        releases.add(releases.newest(), tables, kind="live", who="ada", reason="")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch) -> Lake:
    monkeypatch.setenv("BACKFILL_HOME", str(tmp_path))
    monkeypatch.setenv("BACKFILL_LAST_DAY", str(day(9)))
    monkeypatch.chdir(tmp_path)
    return Lake(tmp_path / "lake")


def backfill(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["diff", *arguments])


def values(*arguments: str) -> Any:
    done = backfill(*arguments, "--json")
    assert done.exit_code == 0, done
    return json.loads(done.stdout)


def refused(*arguments: str) -> str:
    error = backfill(*arguments).exception
    assert isinstance(error, UsageError), error
    return str(error)


@pytest.fixture
def rebuilt(lake: Lake) -> str:
    """A plan that built two days twice and left a third as it was, among builds of others before
    and after.
    """
    lake.build({0: {"o1": 1, "o2": 2}, 1: {"o3": 3}, 2: {"o4": 4}})
    lake.build({0: {"o1": 10, "o2": 2, "o5": 5}})
    plan = lake.plan(0, 1, 2)
    lake.build({0: {"o1": 99}, 1: {"o3": 3, "o6": 6}}, plan=plan)
    lake.build({0: {"o1": 12, "o2": 2}}, plan=plan)
    lake.build({0: {"o1": 0}, 2: {"o4": 0}})
    return plan


def test_a_plan_is_compared_from_before_its_first_build_to_after_its_last(rebuilt):
    (table,) = values(rebuilt[:6])["tables"]
    first, second = table["days"]
    figures = ("day", "rows_before", "rows_after", "added", "removed", "changed", "unchanged")
    assert [first[name] for name in figures] == [str(day(0)), 3, 2, 0, 1, 1, 1]
    assert [second[name] for name in figures] == [str(day(1)), 1, 2, 1, 0, 0, 1]
    (column,) = table["columns"]
    assert column["examples"] == [
        {"day": str(day(0)), "key": {"outage_number": "o1"}, "before": 10, "after": 12}
    ]
    assert (
        column["numbers"]["up"],
        column["numbers"]["sum_before"],
        column["numbers"]["sum_after"],
    ) == (1, 10, 12)


def test_a_day_that_a_plan_left_as_it_was_is_compared_with_itself(lake):
    version = lake.build({0: {"o1": 1}, 1: {"o2": 2}})
    plan = lake.plan(0, 1)
    files = data_files(DeltaTable(lake.root / OUTAGES), [day(0)])[day(0)]
    unchanged = Build(
        OUTAGES, day(0), "unchanged", "r", "1", plan=plan, delta_version=version, data_files=files
    )
    Ledger(str(lake.root)).append([unchanged])
    lake.build({0: {"o1": 9}})
    (table,) = values(plan)["tables"]
    assert (table["days"], table["same_days"], table["same_rows"]) == ([], [str(day(0))], 1)


def test_the_terminal_shows_a_table_and_examples_and_check_ends_with_1(rebuilt, golden):
    done = backfill(rebuilt, "--check")
    assert done.exit_code == exit_codes.PARTIAL
    golden(done.stdout, command="diff", PLAN=rebuilt)


def test_days_and_tables_limit_a_comparison(rebuilt):
    (table,) = values(rebuilt, "--partitions", str(day(1)))["tables"]
    assert [of["day"] for of in table["days"]] == [str(day(1))]
    assert values(rebuilt, "--target", REGIONS)["tables"] == []
    assert backfill(rebuilt, "--target", REGIONS, "--check").exit_code == exit_codes.DONE


def test_a_day_of_a_table_is_compared_with_the_build_before(lake, rebuilt):
    (table,) = values(OUTAGES, str(day(0)))["tables"]
    assert [table["days"][0][name] for name in ("removed", "changed")] == [1, 1]
    lake.build({5: {"o9": 1}})
    (first,) = values(OUTAGES, str(day(5)))["tables"]
    assert (first["before"], first["days"][0]["added"]) == ("not built", 1)
    assert values(OUTAGES, str(day(0)))["before"] == "the build before"


def test_days_that_were_built_once_are_named_for_there_is_no_build_before(lake, rebuilt, golden):
    lake.build({5: {"o9": 1}, 6: {"o9": 1}})
    heading, *_ = backfill(OUTAGES, f"{day(0)},{day(5)}..{day(6)}").stdout.splitlines()
    golden(heading, command="diff")


def test_values_within_a_tolerance_are_the_same_and_are_counted(lake, golden):
    lake.build({0: {"o1": 1.0, "o2": 1.0}})
    lake.build({0: {"o1": 1.001, "o2": 2.0}})
    named = (OUTAGES, str(day(0)), "--tolerance", "value=1%")
    (table,) = values(*named)["tables"]
    assert [of["changed"] for of in table["days"]] == [1]
    assert table["tolerated"] == [
        {"name": "value", "tolerance": {"size": 0.01, "is_relative": True}, "rows": 1}
    ]
    golden(backfill(*named).stdout, command="diff")


def test_a_pinned_channel_makes_no_release_that_could_be_compared(lake, golden):
    lake.release(outages=lake.build({0: {"o1": 1}}))
    lake.release(outages=lake.build({0: {"o1": 7}}))
    pin(str(lake.root), 1, "stable", who="ada", reason="a wrong night")
    golden(refused("2", "3"), command="diff")


def test_two_releases_are_compared_and_days_with_the_same_files_are_not_read(lake):
    lake.release(outages=lake.build({0: {"o1": 1}, 1: {"o2": 2}}))
    for file in DeltaTable(lake.root / OUTAGES).file_uris(
        file_pruning_predicate=f"outage_day = '{day(1)}'"
    ):
        Path(file.removeprefix("file://")).write_bytes(b"not parquet")
    second = lake.build({0: {"o1": 7}})
    lake.release(outages=second, regions=lake.build({0: {"North": 1}}, table=REGIONS))
    outages, regions = values("1", "2")["tables"]
    assert (outages["name"], [of["day"] for of in outages["days"]]) == (OUTAGES, [str(day(0))])
    assert (outages["same_days"], outages["same_rows"]) == ([str(day(1))], 1)
    assert (regions["before"], regions["after"], regions["days"][0]["added"]) == (
        "no table",
        "version 0",
        1,
    )
    lake.release(outages=second, regions=0)
    assert backfill("2", "3", "--check").exit_code == exit_codes.DONE
    assert "nothing differs" in backfill("2", "3").stdout


def test_a_day_that_was_built_again_with_the_same_fingerprint_is_not_read(lake):
    lake.release(outages=lake.build({0: {"o1": 1}}))
    lake.release(outages=lake.build({0: {"o1": 1}}))
    for file in (lake.root / OUTAGES).rglob("*.parquet"):
        file.unlink()
    (table,) = values("1", "2")["tables"]
    assert (table["days"], table["same_days"], table["same_rows"]) == ([], [str(day(0))], 1)


def test_the_page_has_every_value_escaped_and_replaces_the_one_before(lake):
    lake.build({0: {"<script>alert(1)</script>": "a & b"}})
    lake.build({0: {"<script>alert(1)</script>": "<img src=x>"}})
    for _ in range(2):
        assert values(OUTAGES, str(day(0)), "--html", "report.html")["html"] == "report.html"
    page = Path("report.html").read_text()
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "a &amp; b" in page
    assert [file.name for file in Path().iterdir() if file.is_file()] == ["report.html"]


def test_the_answer_is_kept_and_read_back_when_the_files_are_gone(lake, rebuilt):
    before = values(rebuilt)
    assert [file.stem for file in (lake.root / "_diffs").iterdir()] == [before["id"]]
    for file in (lake.root / OUTAGES).rglob("*.parquet"):
        file.unlink()
    assert values(rebuilt) == before
    gone = backfill(rebuilt, "--partitions", str(day(0))).exception
    assert isinstance(gone, TableUnreadable)
    assert ("is missing" in gone.what, gone.unchanged) == (True, NOTHING_CHANGED)


def test_what_cannot_be_compared_is_refused(lake, rebuilt):
    one_day = str(day(0))
    requests = {
        ("nosuchplan",): "There is no plan nosuchplan",
        (lake.plan(7, started=False),): "was never started. Nothing was changed",
        (lake.plan(8),): "has built nothing yet. Nothing was changed",
        ("1", "2"): "There is no release in",
        ("no/table", one_day): "There is no table no/table",
        (OUTAGES,): f"Which day of {OUTAGES}?",
        (OUTAGES, one_day, "--partitions", one_day): "Leave out --target and --partitions",
        (REGIONS, one_day): "No build of",
        ("raw/outage_events", OUTAGES): "A day of raw/outage_events is an arrival_day",
        ("raw/*s", one_day): "One table is needed",
        (rebuilt, "--html", "page.txt"): "page.txt is not a file that ends in .html.",
        (rebuilt, "--html", "no/page.html"): "There is no folder no",
    }
    answers = {request: refused(*request) for request in requests}
    assert [r for r, message in requests.items() if message not in answers[r]] == []
