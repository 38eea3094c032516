"""`backfill reconcile` on a small lake, and a webserver that remembers what is reported to it. No
Spark, no Dagster.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import httpx
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from backfill_assets.cli.app import app
from backfill_assets.cli.maintain import code_of
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.recorded_acts import Acts
from backfill_assets.reconcile.broken import repair as repair_files
from backfill_assets.reconcile.compare import DisagreementKind, Records, RecordsComparison
from backfill_assets.servers.home import dagster_of
from backfill_assets.verbs.reconcile import ReconcileReport, reconcile
from backfill_assets.workspace import open_workspace
from tests.worlds.deliveries import day, days
from tests.worlds.recorded import write_days
from tests.worlds.small_lake import DAYS, copy_of, half_published, released_lake
from tests.worlds.webservers import RECONCILED_TABLE, RecordingWebserver, outages_build


@dataclass
class ReconciledLake:
    lake: Path
    web: RecordingWebserver

    @property
    def ledger(self) -> Ledger:
        return Ledger(str(self.lake))

    def reconcile(
        self, *, repair: bool = False, restore: bool = False
    ) -> tuple[int, ReconcileReport]:
        """Return the exit code of the command, and its report."""
        workspace = open_workspace(only_reading=not (repair or restore))
        dagster = dagster_of(workspace.settings, httpx.MockTransport(self.web))
        report = reconcile(
            workspace, dagster, repair=repair, restore=restore, who="ada", sleep=lambda _: None
        )
        return code_of(report), report


def reconciled_lake(home: Path, monkeypatch: pytest.MonkeyPatch) -> ReconciledLake:
    """Two days of one table, built, recorded, and known to Dagster."""
    for name, value in {
        "HOME": home,
        "FIRST_DAY": day(0),
        "LAST_DAY": day(9),
        "DAGSTER_URL": "http://dagster",
    }.items():
        monkeypatch.setenv(f"BACKFILL_{name}", str(value))
    lake = home / "lake"
    write_days(lake, outages_build(0), outages_build(1))
    Ledger(str(lake)).append([outages_build(0), outages_build(1)])
    return ReconciledLake(
        lake,
        RecordingWebserver(
            Lake(str(lake)), {RECONCILED_TABLE: {str(day(0)): "f0", str(day(1)): "f1"}}
        ),
    )


@pytest.fixture
def place(tmp_path, monkeypatch) -> ReconciledLake:
    return reconciled_lake(tmp_path, monkeypatch)


def kinds(report: ReconcileReport) -> list[tuple[str, str, list[date]]]:
    """Of each disagreement its kind, its table and its days."""
    return [
        (found.kind.name, found.table, list(found.days))
        for found in report.comparison.disagreements
    ]


def test_records_that_agree_are_said_to(place):
    code, report = place.reconcile()
    assert (code, kinds(report), report.as_json()["agree"]) == (0, [], 2)


def test_a_report_that_is_on_its_way_is_waited_for(place):
    place.web.reports_left = 3
    assert place.reconcile()[0] == 0
    assert place.web.reports_left == 0


def test_a_table_that_cannot_be_read_is_named_and_the_others_are_compared(place):
    write_days(place.lake, replace(outages_build(5), table="raw/rejected_lines"))
    Ledger(str(place.lake)).append([replace(outages_build(5), table="raw/rejected_lines")])
    (place.lake / "raw/rejected_lines/_delta_log" / f"{0:020}.json").write_bytes(b"")
    code, report = place.reconcile()
    assert (code, report.as_json()["agree"]) == (1, 2)
    assert kinds(report) == [("UNREADABLE", "raw/rejected_lines", [day(5)])]


def lines_of(report: ReconcileReport) -> list[str]:
    return [str(line) for line in report.lines()]


def test_a_broken_ledger_is_named_and_made_again_by_the_repair(place, golden):
    [commit] = (place.lake / "_ledger/_delta_log").glob("*1.json")
    commit.write_bytes(b"")
    with pytest.raises(TableUnreadable) as unreadable:
        place.ledger.builds()
    golden(str(unreadable.value), "a reader", command="reconcile")
    code, report = place.reconcile()
    assert (code, report.as_json()["agree"]) == (1, 0)
    golden(lines_of(report), "before", command="reconcile")
    code, report = place.reconcile(repair=True)
    assert (code, report.as_json()["agree"], kinds(report)) == (0, 2, [])
    golden(lines_of(report), "after", command="reconcile")
    assert [*(place.lake / "_damaged/_ledger/_delta_log").glob("*1.json")]


def test_a_commit_that_is_cut_off_is_moved_aside_by_the_repair(place, golden):
    [commit] = (place.lake / RECONCILED_TABLE / "_delta_log").glob("*.json")
    commit.write_bytes(commit.read_bytes()[:500])
    code, report = place.reconcile(repair=True)
    assert (code, report.broken) == (1, [])
    assert kinds(report) == [("NO_COMMIT", RECONCILED_TABLE, [day(0), day(1)])]
    golden(lines_of(report), command="reconcile")


def a_crash_after_the_commit(place: ReconciledLake) -> None:
    write_days(place.lake, outages_build(2))
    write_days(place.lake, outages_build(3, 1), outages_build(4, 1))


def a_ledger_lost(place: ReconciledLake) -> None:
    shutil.rmtree(place.lake / "_ledger")


def a_dagster_database_lost(place: ReconciledLake) -> None:
    place.web.known = {}


def a_day_reported_by_a_click(place: ReconciledLake) -> None:
    place.web.known[RECONCILED_TABLE][str(day(0))] = ""


RECORDS_LOST = [
    a_crash_after_the_commit,
    a_ledger_lost,
    a_dagster_database_lost,
    a_day_reported_by_a_click,
]


@pytest.mark.parametrize("happened", RECORDS_LOST, ids=lambda f: f.__name__.replace("_", " "))
def test_records_are_repaired_from_each_other_and_the_rows_left(
    place, happened: Callable[[ReconciledLake], None]
):
    happened(place)
    version = DeltaTable(place.lake / RECONCILED_TABLE).version()
    assert place.reconcile()[0] == 1
    code, report = place.reconcile(repair=True)
    assert (code, any(report.repaired.values())) == (0, True)
    code, report = place.reconcile(repair=True)
    assert (code, any(report.repaired.values())) == (0, False)
    assert DeltaTable(place.lake / RECONCILED_TABLE).version() == version


def test_after_a_crash_the_ledger_and_dagster_are_repaired_in_one_go(place, golden):
    a_crash_after_the_commit(place)
    code, report = place.reconcile()
    assert code == 1
    golden("\n".join(map(str, report.lines())), command="reconcile")
    _, report = place.reconcile(repair=True)
    assert (report.repaired, report.as_json()["agree"]) == ({"recorded": 3, "reported": 3}, 5)
    versions = {b.day: b.delta_version for b in place.ledger.builds()}
    assert versions == dict(zip(days(0, 1, 2, 3, 4), (0, 0, 1, 2, 2), strict=True))
    assert place.web.known[RECONCILED_TABLE][str(day(4))] == "f4"


def test_a_day_that_a_run_is_building_is_not_compared(place):
    write_days(place.lake, outages_build(2, run="at work"))
    place.web.at_work.append("at work")
    code, report = place.reconcile()
    values = report.as_json()
    assert (code, values["not_compared"], values["agree"]) == (0, 1, 2)


def test_a_day_built_while_the_records_are_read_is_not_compared(place):
    def builds_a_day() -> None:
        place.web.meanwhile = lambda: None
        place.ledger.append([outages_build(0, 1, run="later", delta_version=1)])

    place.web.meanwhile = builds_a_day
    code, report = place.reconcile()
    assert (code, report.as_json()["not_compared"]) == (0, 1)


def test_a_table_that_dagster_does_not_have_is_not_compared_with_it(place):
    place.web.without = (RECONCILED_TABLE,)
    code, report = place.reconcile()
    assert (code, report.comparison.not_in_dagster) == (3, [RECONCILED_TABLE])


def test_a_table_that_had_another_name_is_compared_while_it_is_there(place):
    old = [replace(build, table="staging/old") for build in (outages_build(0), outages_build(1))]
    place.ledger.append(old)
    assert place.reconcile()[0] == 0
    write_days(place.lake, old[0])
    code, report = place.reconcile()
    assert (code, kinds(report)[0]) == (1, ("NO_COMMIT", "staging/old", [day(1)]))


def typed(*arguments: str) -> tuple[int, str]:
    env = {"BACKFILL_DAGSTER_URL": "http://127.0.0.1:9"}
    done = CliRunner().invoke(app, ["reconcile", *arguments], env=env)
    return done.exit_code, done.stdout


def test_without_a_webserver_the_ledger_and_the_tables_are_compared(place, golden):
    code, lines = typed()
    assert code == 3
    golden(lines, command="reconcile")
    a_crash_after_the_commit(place)
    assert typed()[0] == 1
    assert typed("--repair")[0] == 3
    assert len(place.ledger.builds()) == 5


def test_machines_get_every_day_with_its_figures_and_the_remedy(place):
    a_crash_after_the_commit(place)
    values = json.loads(typed("--json")[1])
    (found,) = values["disagreements"]
    assert (found["kind"], found["table"], found["repairable"]) == (
        DisagreementKind.UNRECORDED,
        RECONCILED_TABLE,
        True,
    )
    assert found["days"] == {
        str(at): f"commit {n} by run r" for at, n in zip(days(2, 3, 4), (1, 2, 2), strict=True)
    }
    assert (values["agree"], values["not_compared"], values["compared_with_dagster"]) == (2, 0, [])
    assert json.loads(typed("--repair", "--json")[1])["repaired"] == {"recorded": 3, "reported": 0}


def test_a_lake_where_nothing_was_built_has_no_disagreement(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKFILL_HOME", str(tmp_path))
    code, printed = typed("--json")
    values = json.loads(printed)
    assert (code, values["disagreements"], values["agree"]) == (3, [], 0)


def test_what_cannot_be_repaired_is_left_with_the_command_to_type(place, golden):
    DeltaTable(place.lake / RECONCILED_TABLE).delete(f"outage_day = '{day(0)}'")
    place.web.known[RECONCILED_TABLE][str(day(5))] = "f5"
    for repair in (False, True):
        code, report = place.reconcile(repair=repair)
        assert (code, report.as_json()["agree"]) == (1, 1)
        assert kinds(report) == [
            ("FOREIGN_COMMIT", RECONCILED_TABLE, [day(0)]),
            ("NOT_ACCEPTED", RECONCILED_TABLE, [day(5)]),
        ]
        for at, found in zip((day(0), day(5)), report.comparison.disagreements, strict=True):
            command = f"`backfill run --partitions {at} --target {RECONCILED_TABLE}`"
            assert command in found.remedy()
        first = report.comparison.disagreements[0]
        golden(f"{first.days[day(0)]}\n{first.remedy()}", command="reconcile")


def test_days_that_somebody_else_wrote_to_are_restored_as_they_were_accepted(place, golden):
    """No source is asked: it may be gone, and with it what the day could be built from."""
    write_days(place.lake, outages_build(3, run="not recorded"))
    table = DeltaTable(place.lake / RECONCILED_TABLE)
    table.update({"n": "'changed'"}, predicate=f"outage_day = '{day(0)}'")
    table.delete(f"outage_day = '{day(1)}'")
    code, report = place.reconcile(repair=True, restore=True)
    assert (code, report.as_json()["agree"]) == (0, 3)
    assert report.as_json()["restored"] == {RECONCILED_TABLE: [str(day(0)), str(day(1))]}
    (damage,) = set(report.restored[RECONCILED_TABLE].damages.values())
    rows = DeltaTable(place.lake / RECONCILED_TABLE).to_pyarrow_table().to_pylist()
    assert sorted((row["outage_day"], row["n"]) for row in rows) == [
        (day(at), n) for at in (0, 1, 3) for n in "01"
    ]
    restored = [build for build in place.ledger.builds() if build.run.startswith("reconcile-")]
    assert {build.day: (build.outcome, build.fingerprint) for build in restored} == {
        day(n): ("restored", f"f{n}") for n in (0, 1)
    }
    (reason,) = {build.reason for build in restored}
    golden(f"{damage}\n{reason}", command="reconcile")
    assert place.reconcile(restore=True)[1].as_json()["restored"] == {}


def test_a_day_whose_accepted_files_are_gone_is_left_and_the_others_are_restored(place):
    table = DeltaTable(place.lake / RECONCILED_TABLE)
    (file,) = (place.lake / RECONCILED_TABLE / f"outage_day={day(0)}").iterdir()
    table.delete()
    file.unlink()
    code, report = place.reconcile(restore=True)
    restored = report.restored[RECONCILED_TABLE]
    assert (code, day(1) in restored.damages, list(restored.not_restored)) == (1, True, [day(0)])
    assert str(file.relative_to(place.lake / RECONCILED_TABLE)) in restored.not_restored[day(0)]
    assert [build.day for build in restored.builds] == [day(1)]
    rows = DeltaTable(place.lake / RECONCILED_TABLE).to_pyarrow_table().to_pylist()
    assert [row["outage_day"] for row in rows] == [day(1)] * 2


def test_the_act_that_a_repair_finishes_is_named(tmp_path, golden):
    lake = copy_of(released_lake, tmp_path)
    half_published(lake, {DAYS[0]: 7})
    begun = Acts(str(lake.root)).unfinished()
    assert begun
    assert repair_files(str(lake.root), ()) == ([], begun[1].id)
    report = ReconcileReport(RecordsComparison(), Records((), (), {}), "", {}, finished="publish-1")
    golden(lines_of(report)[0], command="reconcile")
