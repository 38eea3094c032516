"""`backfill reproduce`: what is answered without a server, what a server is asked, what is printed,
and the exit code.
"""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest

from backfill_assets.cli import exit_codes
from backfill_assets.cli.output import Output
from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.requests import REPRODUCTION
from backfill_assets.diff.diff import ColumnDiff, DayDiff, Diff, Example, TableDiff
from backfill_assets.errors import BackfillError
from backfill_assets.lake.ledger import Ledger
from backfill_assets.reproduce.inputs import recorded_build, reproduction_of
from backfill_assets.reproduce.reproduction import Reproduction, ReproductionResult
from backfill_assets.verbs import audit
from backfill_assets.verbs.audit import ReproduceReport, reproduced_by
from backfill_assets.verbs.options import ReproduceOptions
from backfill_assets.workspace import open_workspace
from tests.worlds.command_line import backfill, refused, values_of
from tests.worlds.recorded import build

DAY = date(2019, 8, 15)
LATER = date(2019, 8, 16)
NAME = "staging/outages"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def recorded(home: Path, day: date = DAY, **facts: Any) -> None:
    """A build of the day in the ledger, without a table."""
    made = replace(
        build(0), table=NAME, day=day, rows=0, data_files="", inputs={}, input_versions={}, **facts
    )
    Ledger(str(home / "lake")).append([made])


def test_other_code_is_answered_without_a_server_with_the_commit_to_check_out(tmp_path):
    recorded(tmp_path, code_version="elsewhere", git_commit=COMMIT)
    done = backfill("reproduce", NAME, str(DAY), home=tmp_path)
    assert done.exit_code == exit_codes.STOPPED
    assert f"`git checkout {COMMIT}`" in done.stdout
    answer = values_of("reproduce", NAME, str(DAY), home=tmp_path)
    assert (answer["result"], answer["build"]["git_commit"], answer["exit_code"]) == (
        "other code",
        COMMIT,
        4,
    )


def test_table_and_day_may_be_named_by_the_options_of_every_command(tmp_path):
    recorded(tmp_path, code_version="elsewhere", git_commit=COMMIT)
    options = ("--target", NAME, "--partitions", str(DAY))
    by_options = values_of("reproduce", *options, home=tmp_path)
    assert by_options == values_of("reproduce", NAME, str(DAY), home=tmp_path)
    assert refused("reproduce", NAME, home=tmp_path)[0] == exit_codes.WRONG_USAGE


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            (NAME, "2019-08-16"),
            id="never built",
        ),
        pytest.param((NAME, "2019-08-15..2019-08-16"), id="two days"),
        pytest.param(("raw/*", str(DAY)), id="two tables"),
        pytest.param((NAME, str(DAY), "--release", "3"), id="no release"),
    ],
)
def test_what_is_not_there_is_wrong_usage(tmp_path, arguments, golden):
    recorded(tmp_path)
    code, said = refused("reproduce", *arguments, home=tmp_path)
    assert code == exit_codes.WRONG_USAGE
    golden(said, command="reproduce")


def test_without_servers_it_says_how_to_start_them(tmp_path):
    version = next(
        table.version for table in open_workspace(home=tmp_path).tables if table.name == NAME
    )
    recorded(tmp_path, code_version=version)
    code, said = refused("reproduce", NAME, str(DAY), home=tmp_path)
    assert (code, "`backfill up`" in said) == (exit_codes.UNAVAILABLE, True)


COLUMN = ColumnDiff("customers", 1, examples=(Example(str(DAY), {"outage_number": "7"}, 5, 6),))
DIFFERING = TableDiff(
    NAME,
    "version 1",
    "rebuilt",
    ("outage_number",),
    days=(DayDiff(str(DAY), 1, 1, 0, 0, 1, 0),),
    columns=(COLUMN,),
)


class Webserver:
    """Answers as a webserver does whose run of the job has ended with these observations."""

    def __init__(self, *found: Reproduction) -> None:
        self.found = found
        self.launched = list[Any]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        query = body["query"]
        given = body["variables"]
        if query == documents.TABLES:
            repository = {"name": "r", "location": {"name": "l"}}
            node = {
                "assetKey": {"path": NAME.split("/")},
                "isPartitioned": True,
                "isMaterializable": True,
                "repository": repository,
            }
            answer: Any = {"assetNodes": [node]}
        elif query == documents.LAUNCH_RUN:
            self.launched.append(given["params"])
            answer = {"launchRun": {"__typename": "LaunchRunSuccess", "run": {"runId": "r1"}}}
        elif query == documents.RUNS:
            answer = {
                "runsOrError": {
                    "__typename": "Runs",
                    "results": [{"runId": "r1", "status": "FAILURE"}],
                }
            }
        elif query == documents.OBSERVED:
            entries = [
                {"label": REPRODUCTION, "jsonString": json.dumps(each.contents())}
                for each in self.found
            ]
            events = [
                {"__typename": "ObservationEvent", "metadataEntries": [entry]} for entry in entries
            ]
            answer = {
                "logsForRun": {
                    "__typename": "EventConnection",
                    "hasMore": False,
                    "events": [{"__typename": "LogMessageEvent"}, *events],
                }
            }
        else:
            assert query == documents.FAILURES
            error = {
                "__typename": "ExecutionStepFailureEvent",
                "stepKey": "build_again",
                "error": {"message": "no column."},
            }
            answer = {
                "logsForRun": {"__typename": "EventConnection", "hasMore": False, "events": [error]}
            }
        return httpx.Response(200, json={"data": answer})


def asked(server: Webserver, release=None) -> Reproduction:
    options = ReproduceOptions(target=NAME, partitions=str(DAY), release=release)
    dagster = Dagster("http://dagster", transport=httpx.MockTransport(server))
    return reproduced_by(dagster, options, who="ada", note=print, sleep=lambda _: None)


def test_the_server_is_asked_for_that_day_of_that_release_and_its_answer_is_printed(
    tmp_path, capsys, golden
):
    recorded(tmp_path, code_version="1")
    of_day = recorded_build(NAME, str(DAY), None, open_workspace(home=tmp_path))
    diff = Diff("d", "as it was built", "rebuilt", "2019-08-15T00:00:00+00:00", (DIFFERING,))
    answer = replace(
        reproduction_of(of_day, ReproductionResult.DIFFERS, ()),
        rebuilt_fingerprint="1-a-b",
        rebuilt_rows=1,
        diff=diff,
    )
    server = Webserver(answer)
    assert asked(server, release=3).diff == diff
    (launched,) = server.launched
    assert launched["selector"]["jobName"] == "backfill_reproduce"
    config = {"target": NAME, "partitions": str(DAY), "release": 3, "shuffled": False}
    assert launched["runConfigData"] == {"ops": {"backfill_build_again": {"config": config}}}
    Output(as_json=False).preview(ReproduceReport(answer).lines())
    golden(capsys.readouterr().out, command="reproduce")


def test_an_audit_of_purity_does_not_judge_days_of_other_code_and_needs_a_server(tmp_path, golden):
    golden(backfill("audit", "--purity", home=tmp_path).stdout, command="audit")
    recorded(tmp_path, code_version="elsewhere")
    answer = values_of("audit", "--purity", "--target", NAME, home=tmp_path)
    assert answer["tables"][NAME] == {"days": 1, "passed": 0, "failed": {}, "not_judged": 1}
    assert answer["exit_code"] == exit_codes.PARTIAL
    version = next(t.version for t in open_workspace(home=tmp_path).tables if t.name == NAME)
    home = tmp_path / "another"
    recorded(home, code_version=version)
    code, said = refused("audit", "--purity", "--target", NAME, home=home)
    assert (code, "`backfill up`" in said) == (exit_codes.UNAVAILABLE, True)


def test_an_audit_of_purity_shows_the_days_that_differ_and_what_differs(tmp_path, monkeypatch):
    """The server's answers are given."""
    results = {DAY: ReproductionResult.SAME, LATER: ReproductionResult.DIFFERS}
    asked_for = list[tuple[str, bool]]()

    def by_server(workspace, options, **_):
        asked_for.append((options.partitions, options.shuffled))
        of_day = recorded_build(NAME, options.partitions, None, workspace)
        diff = Diff("d", "as it was built", "rebuilt", "2019-08-15T00:00:00+00:00", (DIFFERING,))
        return ReproduceReport(replace(reproduction_of(of_day, results[of_day.day]), diff=diff))

    monkeypatch.setattr(audit, "reproduce_on_server", by_server)
    for day in results:
        recorded(tmp_path, code_version="1", day=day)
    workspace = open_workspace(home=tmp_path)
    report = audit.audit_purity(workspace, f"{DAY}..{LATER}", NAME, who="ada", note=print)
    assert asked_for == [(str(DAY), True), (str(LATER), True)]
    (table,) = report.tables.values()
    assert (table.days, table.passed, table.not_judged) == (2, 1, 0)
    assert list(table.failed) == [str(LATER)]
    assert not report.is_complete
    shown = "\n".join(str(line) for line in report.lines())
    assert f"failed: {NAME} {LATER}: built" in shown
    assert f'{NAME} {DAY} outage_number="7": customers 5 → 6' in shown


def test_a_run_that_found_nothing_is_named_with_its_own_words():
    with pytest.raises(BackfillError, match=r"r1 .*no column\. .*/runs/r1"):
        asked(Webserver())
