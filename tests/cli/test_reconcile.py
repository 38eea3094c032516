"""`backfill reconcile` on a small lake, and a webserver that remembers what is reported to it. No
Spark, no Dagster.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from backfill_assets.cli.app import app
from backfill_assets.cli.maintain import code_of
from backfill_assets.cli.output import Output
from backfill_assets.lake.ledger import Ledger
from backfill_assets.servers.home import dagster_of
from backfill_assets.verbs.reconcile import reconcile
from backfill_assets.workspace import open_workspace
from tests.worlds.deliveries import day, days
from tests.worlds.recorded import write_days
from tests.worlds.webservers import RECONCILED_TABLE, RecordingWebserver, outages_build


@dataclass
class ReconciledLake:
    lake: Path
    web: RecordingWebserver
    capsys: pytest.CaptureFixture[str]

    @property
    def ledger(self) -> Ledger:
        return Ledger(str(self.lake))

    def reconcile(self, *, repair: bool = False, restore: bool = False) -> tuple[int, list[str]]:
        """Return the exit code of the command, and the lines that it prints."""
        workspace = open_workspace(only_reading=not (repair or restore))
        dagster = dagster_of(workspace.settings, httpx.MockTransport(self.web))
        report = reconcile(workspace, dagster, repair=repair, restore=restore, who="ada")
        Output(as_json=False).preview(report.lines())
        return code_of(report), self.capsys.readouterr().out.splitlines()


def reconciled_lake(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> ReconciledLake:
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
        lake, RecordingWebserver({RECONCILED_TABLE: {str(day(0)): "f0", str(day(1)): "f1"}}), capsys
    )


@pytest.fixture
def place(tmp_path, monkeypatch, capsys) -> ReconciledLake:
    return reconciled_lake(tmp_path, monkeypatch, capsys)


def test_records_that_agree_are_said_to(place):
    assert place.reconcile() == (0, ["The ledger, the tables and Dagster agree on 2 partition(s)."])


def test_a_table_that_cannot_be_read_is_named_and_the_others_are_compared(place):
    write_days(place.lake, replace(outages_build(5), table="raw/rejected_lines"))
    Ledger(str(place.lake)).append([replace(outages_build(5), table="raw/rejected_lines")])
    (place.lake / "raw/rejected_lines/_delta_log" / f"{0:020}.json").write_bytes(b"")
    code, printed = place.reconcile()
    text = " ".join(printed)
    assert (
        code,
        "raw/rejected_lines: in the ledger, but the table cannot be read: 2019-08-20" in text,
    ) == (1, True)
    assert "agree on 2 partition(s) and differ on 1" in text


def a_crash_after_the_commit(place: ReconciledLake) -> None:
    write_days(place.lake, outages_build(2))
    write_days(place.lake, outages_build(3, 1), outages_build(4, 1))


def a_ledger_lost(place: ReconciledLake) -> None:
    shutil.rmtree(place.lake / "_ledger")


def a_dagster_database_lost(place: ReconciledLake) -> None:
    place.web.known = {}


def a_day_told_of_by_a_click(place: ReconciledLake) -> None:
    place.web.known[RECONCILED_TABLE][str(day(0))] = ""


RECORDS_LOST = [
    a_crash_after_the_commit,
    a_ledger_lost,
    a_dagster_database_lost,
    a_day_told_of_by_a_click,
]


@pytest.mark.parametrize("happened", RECORDS_LOST, ids=lambda f: f.__name__.replace("_", " "))
def test_records_are_mended_from_each_other_and_the_rows_left(
    place, happened: Callable[[ReconciledLake], None]
):
    happened(place)
    version = DeltaTable(place.lake / RECONCILED_TABLE).version()
    assert place.reconcile()[0] == 1
    code, lines = place.reconcile(repair=True)
    assert (code, lines[0].startswith("Repaired: ")) == (0, True)
    assert place.reconcile(repair=True) == (0, lines[1:])
    assert DeltaTable(place.lake / RECONCILED_TABLE).version() == version


def test_after_a_crash_the_ledger_and_dagster_are_told_in_one_go(place):
    a_crash_after_the_commit(place)
    assert place.reconcile() == (
        1,
        [
            "staging/outages: committed, but not in the ledger: 2019-08-17..2019-08-19",
            "  for example 2019-08-17: commit 1 by run r",
            "  `backfill reconcile --repair` corrects the record.",
            (
                "staging/outages: accepted, but Dagster does not call it materialized:"
                " 2019-08-17..2019-08-19"
            ),
            "  built by run r",
            "  `backfill reconcile --repair` corrects the record.",
            "The ledger, the tables and Dagster agree on 2 partition(s) and differ on 3.",
        ],
    )
    assert place.reconcile(repair=True)[1] == [
        "Repaired: 3 build(s) recorded in the ledger, 3 reported to Dagster.",
        "The ledger, the tables and Dagster agree on 5 partition(s).",
    ]
    versions = {b.day: b.delta_version for b in place.ledger.builds()}
    assert versions == dict(zip(days(0, 1, 2, 3, 4), (0, 0, 1, 2, 2), strict=True))
    assert place.web.known[RECONCILED_TABLE][str(day(4))] == "f4"


def test_a_day_that_a_run_is_building_is_said_and_not_judged(place):
    write_days(place.lake, outages_build(2, run="at work"))
    place.web.at_work.append("at work")
    assert place.reconcile() == (
        0,
        [
            "Not compared: 1 partition(s) that a run is building, or has just built.",
            "The ledger, the tables and Dagster agree on 2 partition(s).",
        ],
    )


def test_a_day_built_while_the_records_are_read_is_said_and_not_judged(place):
    def builds_a_day() -> None:
        place.web.meanwhile = lambda: None
        place.ledger.append([outages_build(0, 1, run="later", delta_version=1)])

    place.web.meanwhile = builds_a_day
    code, lines = place.reconcile()
    assert (code, lines[0]) == (
        0,
        "Not compared: 1 partition(s) that a run is building, or has just built.",
    )


def test_a_table_that_dagster_does_not_have_is_not_compared_with_it(place):
    place.web.without = (RECONCILED_TABLE,)
    code, lines = place.reconcile()
    assert (code, lines[0].partition(":")[0]) == (
        3,
        "Dagster's record was not compared for staging/outages",
    )


def test_a_table_that_had_another_name_is_compared_while_it_is_there(place):
    old = [replace(each, table="staging/old") for each in (outages_build(0), outages_build(1))]
    place.ledger.append(old)
    assert place.reconcile()[0] == 0
    write_days(place.lake, old[0])
    code, lines = place.reconcile()
    assert (code, lines[0]) == (
        1,
        "staging/old: in the ledger, but its commit is not in the table: 2019-08-16",
    )


def asked(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(
        app, ["reconcile", *arguments], env={"BACKFILL_DAGSTER_URL": "http://127.0.0.1:9"}
    )
    return done.exit_code, done.stdout


def test_without_a_webserver_the_ledger_and_the_tables_are_compared_and_that_is_said(place):
    code, lines = asked()
    assert code == 3
    assert lines.splitlines() == [
        (
            "Dagster's record was not compared: No Dagster webserver answers at http://127.0.0.1:9"
            " (ConnectError). Start one with `backfill up`, or correct BACKFILL_DAGSTER_URL. Then"
            " type the same command again."
        ),
        "The ledger and the tables agree on 2 partition(s).",
    ]
    a_crash_after_the_commit(place)
    assert asked()[0] == 1
    assert asked("--repair")[0] == 3
    assert len(place.ledger.builds()) == 5


def test_machines_get_every_day_with_its_figures_and_the_remedy(place):
    a_crash_after_the_commit(place)
    values = json.loads(asked("--json")[1])
    (found,) = values["disagreements"]
    assert (found["kind"], found["table"], found["repairable"]) == (
        "committed, but not in the ledger",
        RECONCILED_TABLE,
        True,
    )
    assert found["days"] == {
        str(at): f"commit {n} by run r" for at, n in zip(days(2, 3, 4), (1, 2, 2), strict=True)
    }
    assert (values["agree"], values["not_compared"], values["compared_with_dagster"]) == (2, 0, [])
    assert json.loads(asked("--repair", "--json")[1])["repaired"] == {"recorded": 3, "reported": 0}


def test_a_lake_where_nothing_was_built_is_at_odds_with_nothing(tmp_path):
    done = CliRunner().invoke(
        app,
        ["reconcile"],
        env={"BACKFILL_HOME": str(tmp_path), "BACKFILL_DAGSTER_URL": "http://127.0.0.1:9"},
    )
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (
        3,
        "The ledger and the tables agree on 0 partition(s).",
    )


def test_what_cannot_be_mended_is_left_with_the_command_to_type(place):
    DeltaTable(place.lake / RECONCILED_TABLE).delete(f"outage_day = '{day(0)}'")
    place.web.known[RECONCILED_TABLE][str(day(5))] = "f5"
    lines = [
        "staging/outages: rewritten by somebody else: 2019-08-15",
        "  commit 1 (DELETE), after our commit 0",
        (
            "  Build again: `backfill run --partitions 2019-08-15 --target staging/outages`. Or put"
            " back the rows that were accepted: `backfill reconcile --restore`."
        ),
        "staging/outages: Dagster calls it materialized, but it has no accepted build: 2019-08-20",
        "  Build again: `backfill run --partitions 2019-08-20 --target staging/outages`.",
        "The ledger, the tables and Dagster agree on 1 partition(s) and differ on 2.",
    ]
    assert place.reconcile() == (1, lines)
    assert place.reconcile(repair=True) == (1, lines)


def test_days_that_somebody_else_wrote_to_are_put_back_as_they_were_accepted(place):
    """No source is asked: it may be gone, and with it what the day could be built from."""
    write_days(place.lake, outages_build(3, run="not recorded"))
    table = DeltaTable(place.lake / RECONCILED_TABLE)
    table.update({"n": "'changed'"}, predicate=f"outage_day = '{day(0)}'")
    table.delete(f"outage_day = '{day(1)}'")
    code, lines = place.reconcile(repair=True, restore=True)
    assert lines[:2] == [
        (
            f"Restored: {RECONCILED_TABLE} {day(0)}: it was rewritten by commits 2 to 3 (UPDATE,"
            " DELETE), not by this project."
        ),
        (
            f"Restored: {RECONCILED_TABLE} {day(1)}: it was rewritten by commits 2 to 3 (UPDATE,"
            " DELETE), not by this project."
        ),
    ]
    assert (code, lines[-1]) == (0, "The ledger, the tables and Dagster agree on 3 partition(s).")
    rows = DeltaTable(place.lake / RECONCILED_TABLE).to_pyarrow_table().to_pylist()
    assert sorted((row["outage_day"], row["n"]) for row in rows) == [
        (day(at), n) for at in (0, 1, 3) for n in "01"
    ]
    recorded = {
        b.day: (b.outcome, b.fingerprint, b.reason)
        for b in place.ledger.builds()
        if b.run.startswith("reconcile-")
    }
    assert recorded == {
        day(n): ("restored", f"f{n}", "put back as it was accepted") for n in (0, 1)
    }
    assert place.reconcile(restore=True)[1] == lines[-1:]


def test_a_day_whose_accepted_files_are_gone_is_left_and_the_others_are_put_back(place):
    table = DeltaTable(place.lake / RECONCILED_TABLE)
    (file,) = (place.lake / RECONCILED_TABLE / f"outage_day={day(0)}").iterdir()
    table.delete()
    file.unlink()
    code, lines = place.reconcile(restore=True)
    assert (code, lines[0]) == (
        1,
        (
            f"Restored: {RECONCILED_TABLE} {day(1)}: it was rewritten by commit 1 (DELETE), not by"
            " this project."
        ),
    )
    assert (
        lines[1] == f"Not restored: {RECONCILED_TABLE} {day(0)}: its file"
        f" {file.relative_to(place.lake / RECONCILED_TABLE)} is missing."
    )
    assert [
        row["outage_day"]
        for row in DeltaTable(place.lake / RECONCILED_TABLE).to_pyarrow_table().to_pylist()
    ] == [day(1)] * 2
