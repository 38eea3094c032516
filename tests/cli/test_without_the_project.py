"""The commands that show what was recorded, in a folder whose module does not import. No server, no
Spark.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from backfill_assets.cli import exit_codes
from backfill_assets.cli.app import app
from backfill_assets.errors import ProjectError
from backfill_assets.lake.releases import TableVersion
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from tests.worlds.deliveries import day
from tests.worlds.projects import written
from tests.worlds.recorded import BuiltLake

MARKS = "staging/marks"
DAY = day(0)
LATER = day(1)
PLAN = Plan(
    {MARKS: "1"},
    {MARKS: {DAY: Reason(ReasonKind.MISSING)}},
    [Chunk(0, {MARKS: [DAY]})],
    PlanOptions(),
)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch) -> BuiltLake:
    """Two days built and released, and a plan that was started, beside a module with a typing
    error.
    """
    folder = written(tmp_path, "lessons", ("import backfill_assets\n", "def broken(:\n"))
    for name in ("HOME", "LAKE", "LANDING", "PROJECT", "FIRST_DAY", "LAST_DAY"):
        monkeypatch.delenv(f"BACKFILL_{name}", raising=False)
    monkeypatch.chdir(folder)
    lake = BuiltLake(folder / ".backfill" / "lake")
    lake.build(MARKS, 0, 1)
    lake.releases.add(None, {MARKS: TableVersion(MARKS, 0)}, kind="live", who="ada", reason="")
    plans = Plans(str(lake.root))
    plans.keep(PLAN)
    plans.note(PLAN.id, "started", datetime.now(UTC), who="ada")
    return lake


def backfill(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param(("log",), f"{MARKS}: 2 days accepted, {DAY}..{LATER}", id="every build"),
        pytest.param(
            ("log", MARKS, str(DAY)), f"{MARKS}: 1 day accepted, {DAY}", id="the builds of a day"
        ),
        pytest.param(
            ("log", "last 1"),
            f"{MARKS}: 1 day accepted, {LATER}",
            id="the builds of the last day that was built",
        ),
        pytest.param(
            ("export", MARKS, "rows.csv"), f"rows.csv: 2 rows of {MARKS}, release 1.", id="a table"
        ),
        pytest.param(
            ("export", MARKS, "rows.csv", "--partitions", str(LATER)),
            f"rows.csv: 1 rows of {MARKS}, release 1.",
            id="a day",
        ),
    ],
)
def test_what_was_recorded_is_shown_and_the_error_is_told_beside_it(lake, arguments, shown):
    done = backfill(*arguments)
    assert (done.exit_code, shown in done.stdout) == (exit_codes.DONE, True), done
    assert done.stderr.startswith("The project lessons ")


def test_a_plan_is_shown_without_its_progress(lake):
    shown = backfill("show", PLAN.id)
    assert (shown.exit_code, "project lessons" in shown.stdout) == (exit_codes.DONE, True)
    values = json.loads(backfill("show", PLAN.id, "--json").stdout)
    assert (values["state"], values["events"][0]["who"]) == ("open", "ada")
    assert values["why"].startswith("The project lessons ")


def test_what_needs_the_projects_code_is_refused(lake):
    for arguments in (
        ("status",),
        ("plan", "--partitions", str(DAY)),
        ("log", "--target", "raw/*"),
    ):
        assert isinstance(backfill(*arguments).exception, ProjectError)
