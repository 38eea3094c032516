"""The guide to `dg`, typed as it stands there: from an empty folder to a published day."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from backfill_assets.lake.lake import Lake
from tests.worlds.command_line import guide
from tests.worlds.dg import BIN
from tests.worlds.servers import Up, environment_alone

pytestmark = pytest.mark.scale

GUIDE = guide("dg")
MAKE, DELIVER, BUILD, CORRECT, LAUNCH, OWN = GUIDE.blocks("bash")
TABLES, REPORT = GUIDE.blocks("python")
DEFS = GUIDE.block_with("yaml", "DailyTables")
# The same tables, computed by DuckDB from the delivered files.
WARMEST = """
    SELECT regexp_extract(filename, '([0-9-]{10}).jsonl', 1)::DATE, station, max(celsius)
    FROM read_json('$/*.jsonl', filename = true) GROUP BY ALL
"""
Rows = list[tuple[object, ...]]


@dataclass
class Project:
    """The project of the guide, and for each typed line its output and the live rows after it."""

    root: Path
    env: dict[str, str]
    typed: list[tuple[str, str, Rows]] = field(default_factory=list)
    expected: dict[str, Rows] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.root / "weather"

    def type(self, line: str, folder: Path | None = None) -> str:
        code = 4 if line.startswith("backfill verify  ") else 0
        done = subprocess.run(
            ["bash", "-ec", line],
            cwd=folder or self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (line, done.stdout + done.stderr)
        self.typed.append((line, done.stdout + done.stderr, self.live()))
        return self.typed[-1][1]

    def live(self) -> Rows:
        place = self.folder / ".backfill" / "lake" / "features" / "warmest"
        if not DeltaTable.is_deltatable(str(place)):
            return []
        rows = DeltaTable(str(place)).to_pyarrow_table()
        return sorted(map(tuple, map(dict.values, rows.to_pylist())))

    def delivered(self) -> Rows:
        query = WARMEST.replace("$", str(self.folder / "deliveries" / "readings"))
        return sorted(duckdb.execute(query).fetchall())

    def after(self, start: str) -> tuple[str, Rows]:
        """The output of the last line that begins so, and the live rows after it."""
        return next((out, rows) for line, out, rows in self.typed[::-1] if line.startswith(start))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Iterator[Project]:
    root = tmp_path_factory.mktemp("dg")
    env = environment_alone() | {"DAGSTER_DG_UPDATE_CHECK_ENABLED": "0"}
    env["PATH"] = os.pathsep.join([str(BIN), env["PATH"]])
    # Instead of `pip install -e .`, which would change the environment of all tests.
    env["PYTHONPATH"] = str(root / "weather" / "src")
    project = Project(root, env)
    lines = [line for line in MAKE.splitlines() if not line.startswith("pip ")]
    assert len(MAKE.splitlines()) - len(lines) == 2
    project.type("\n".join(lines), root)
    project.type(DELIVER)
    package = project.folder / "src" / "weather"
    (package / "tables.py").write_text(TABLES)
    (package / "defs" / "daily" / "defs.yaml").write_text(DEFS)
    project.expected["built"] = project.delivered()
    up = Up(project.folder / ".backfill", project.folder, env)
    try:
        for line in BUILD.splitlines():
            if line.startswith("backfill up"):
                up.home.mkdir()
                up.start()
            else:
                project.type(line)
        for line in CORRECT.splitlines():
            project.type(line)
        project.expected["corrected"] = project.delivered()
        for line in LAUNCH.splitlines():
            project.type(line)
        # A day that `dg launch` builds in an instance of its own.
        deliveries = project.folder / "deliveries" / "readings"
        (deliveries / "2024-06-01.jsonl").write_text('{"station": "west", "celsius": 3.5}\n')
        for name in ("raw/readings", "features/warmest"):
            project.type(f"dg launch --assets 'key:\"{name}\"' --partition 2024-06-01")
        for line in ("backfill status", "backfill reconcile || true", *LAUNCH.splitlines()[1:]):
            project.type(line)
        (package / "defs" / "report.py").write_text(REPORT)
        project.type(OWN)
        project.type("dg check defs")
        up.end()
        yield project
    finally:
        if up.process and up.process.poll() is None:
            up.process.terminate()
            up.process.wait(timeout=90)


def test_dg_checks_and_lists_the_project(project: Project) -> None:
    assert "All definitions loaded successfully." in project.after("dg check defs")[0]
    listed, _ = project.after("dg list defs")
    assert all(name in listed for name in ("raw/readings", "features/warmest", "backfill_nightly"))


def test_the_days_are_built_as_duckdb_computes_them(project: Project) -> None:
    _, rows = project.after("backfill run --partitions 2024-06-01..2024-06-02")
    assert len(rows) == 4
    assert rows == project.expected["built"]


def test_the_correction_is_seen_after_the_publication_and_not_before(project: Project) -> None:
    for line in ("backfill run --partitions 2024-06-02", "backfill diff", "backfill verify"):
        assert project.after(line)[1] == project.expected["built"], line
    _, rows = project.after("backfill publish")
    assert rows == project.expected["corrected"] != project.expected["built"]


def test_a_launch_with_the_servers_home_is_in_their_record_and_builds_no_day_twice(
    project: Project,
) -> None:
    at = next(n for n, (line, _, _) in enumerate(project.typed) if line.startswith("DAGSTER_HOME="))
    reconciled = project.typed[at + 1][1]
    assert "The ledger, the tables and Dagster agree on 4 partition(s)." in reconciled
    assert "Repaired" not in reconciled
    (folder,) = re.findall(r"DAGSTER_HOME=\$PWD/(\S+)", LAUNCH)
    assert (project.folder / folder / "dagster.yaml").is_file()


def test_a_launch_in_an_instance_of_its_own_is_reported_by_reconcile(project: Project) -> None:
    status, rows = project.after("backfill status")
    assert re.findall(r"^(\S+)  2 up to date$", status, re.MULTILINE) == [
        "raw/readings",
        "features/warmest",
    ]
    assert rows == project.delivered()
    assert "differ on 2" in project.after("backfill reconcile ||")[0]
    assert "2 reported to Dagster" in project.after("backfill reconcile --repair")[0]


def test_an_asset_of_the_user_runs_as_always(project: Project) -> None:
    printed, rows = project.after("dg launch --assets report")
    # Dagster's default executor, not ours.
    assert "multiprocess executor" in printed
    assert "RUN_SUCCESS" in printed
    assert rows == project.delivered()
    builds = Lake(str(project.folder / ".backfill" / "lake")).ledger.builds()
    assert {build.outcome for build in builds} == {"accepted"}
