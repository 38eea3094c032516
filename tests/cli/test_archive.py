"""`backfill archive`: what it takes in, prints and exits with."""

import json
from pathlib import Path

import pytest

from backfill_assets.cli import exit_codes
from tests.worlds.command_line import Done, backfill_main
from tests.worlds.deliveries import put
from tests.worlds.projects import written

pytestmark = pytest.mark.lake

TWO_FLOWS = (
    'Landing("marks")',
    'backfill_assets.TwoFlows(Landing("marks"), backfill_assets.Archive("past", day="at"))',
)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    folder = written(tmp_path, "with_archives", TWO_FLOWS)
    monkeypatch.chdir(folder)
    put(
        folder,
        ".backfill/landing/past/old.jsonl",
        '{"at": "2019-06-01"}\n{"at": "2019-06-01"}\n{"at": "soon"}\n',
    )
    return folder


def archive(*arguments: str, folder: Path) -> Done:
    return backfill_main(
        "archive",
        *arguments,
        home=folder / ".backfill",
        BACKFILL_LANDING=str(folder / ".backfill" / "landing"),
    )


def test_it_says_what_it_took_in_and_what_comes_next_and_then_nothing_is_left_to_do(folder, golden):
    done = archive(folder=folder)
    assert (done.returncode, done.stderr) == (exit_codes.DONE, "")
    golden(done.stdout, command="archive")
    assert json.loads(archive("--json", folder=folder).stdout)["archives"] == []
    again = json.loads(archive("past", "--full-refresh", "--json", folder=folder).stdout)
    assert [each["bytes_read"] for each in again["archives"]] == [57]


def test_an_archive_that_cannot_be_read_makes_it_partial_and_json_has_the_figures(folder, golden):
    put(folder, ".backfill/landing/past/cut.jsonl", '{"at": "2019-06-0')
    done = archive("--json", folder=folder)
    values = json.loads(done.stdout)
    assert (done.returncode, values["exit_code"]) == (exit_codes.PARTIAL, exit_codes.PARTIAL)
    cut, old = values["archives"]
    assert cut["name"] == "past/cut.jsonl"
    golden(cut["problem"], command="archive")
    assert (old["rows"], old["days"], old["bytes_read"], old["record"]["undated"]) == (
        2,
        ["2019-06-01"],
        57,
        1,
    )
    assert archive("--files", "old*", folder=folder).returncode == exit_codes.DONE


def test_status_names_archives_that_are_not_in(folder):
    home = folder / ".backfill"
    landing = str(folder / ".backfill" / "landing")
    done = backfill_main("status", "--json", home=home, BACKFILL_LANDING=landing)
    (line,) = json.loads(done.stdout)["not_read"].values()
    assert ("`backfill archive`" in line, "past/old.jsonl" in line) == (True, True)


def test_a_doubtful_archive_is_accepted_by_name_and_reason(folder):
    put(folder, ".backfill/landing/past/cut.jsonl", '{"at": "2019-06-02"}\n{"at": "2019-06-0')
    done = archive("--files", "cut.jsonl", folder=folder)
    assert done.returncode == exit_codes.PARTIAL
    assert "--accept past/cut.jsonl" in " ".join(done.stdout.split())
    refused = archive("--accept", "past/cut.jsonl", folder=folder)
    assert (refused.returncode, "--reason" in refused.stderr) == (exit_codes.WRONG_USAGE, True)
    accepted = archive("--accept", "past/cut*", "--reason", "lost", folder=folder)
    assert (accepted.returncode, "accepted: lost" in accepted.stdout) == (exit_codes.DONE, True)
    assert json.loads(archive("--json", folder=folder).stdout)["archives"] == []


@pytest.mark.parametrize(
    "given",
    [
        ["passed"],
        ["--files", "old*,typo"],
        ["--accept", "old.jsonl", "--reason", "so"],
    ],
    ids=["a name", "a pattern", "a name to accept"],
)
def test_what_names_no_archive_is_a_wrong_request(folder, given, golden):
    done = archive(*given, folder=folder)
    assert (done.returncode, done.stdout) == (exit_codes.WRONG_USAGE, "")
    golden(done.stderr, command="archive")


def test_archives_of_these_names_that_are_in_are_not_said_to_be_all(folder, golden):
    archive(folder=folder)
    put(folder, ".backfill/landing/past/new.jsonl", '{"at": "2019-06-02"}\n')
    done = archive("--files", "old*", folder=folder)
    golden(done.stdout, command="archive")


def test_without_archives_it_says_so(tmp_path, monkeypatch, golden):
    monkeypatch.chdir(written(tmp_path, "without", ("", "")))
    done = archive(folder=tmp_path)
    assert (done.returncode, done.stdout) == (exit_codes.WRONG_USAGE, "")
    golden(done.stderr, command="archive")
