"""`backfill alerts`: what it lists, sends and tests, and what the doctor says of URLs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.cli import exit_codes
from backfill_assets.lake.ledger import Build, Ledger
from tests.worlds.command_line import CALENDAR, DAY, REJECTED, backfill_main
from tests.worlds.http_server import Request, http_server

pytestmark = pytest.mark.services
SINCE = re.compile(r"Since: .*")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose lake has a failed day."""
    failed = Build(REJECTED, DAY, "failed", "1b9d6bcd", "1", message="has_rows: no row")
    Ledger(str(tmp_path / "lake")).append([failed])
    return tmp_path


def typed(home: Path, *arguments: str, urls: str = "") -> tuple[Any, str]:
    """The exit code, and what is printed."""
    (home / "landing").mkdir(exist_ok=True)
    settings = CALENDAR | {"BACKFILL_ALERTS": urls}
    done = backfill_main("alerts", *arguments, home=home, **settings)
    return done.returncode, SINCE.sub("Since: <TIME>", done.stdout + done.stderr)


def test_incidents_are_listed_and_the_code_tells_only_if_asked(home, golden):
    code, printed = typed(home)
    assert code == exit_codes.DONE
    golden(printed, command="alerts")
    assert typed(home, "--check") == (exit_codes.PARTIAL, printed)
    (incident,) = json.loads(typed(home, "--json")[1])["incidents"]
    assert (incident["kind"], incident["subject"]) == ("failed", REJECTED)


def test_without_incidents_a_line_says_so(tmp_path, golden):
    code, printed = typed(tmp_path, "--check")
    assert code == exit_codes.DONE
    golden(printed, command="alerts")


def test_urls_are_tried_and_sent_to(home, golden):
    titles = []

    def respond(request: Request) -> None:
        titles.append(json.loads(request.body())["title"])
        request.answer(200)

    with http_server(respond) as address:
        good = f"json{address.removeprefix('http')}"
        code, printed = typed(home, "--test", urls=f"{good} json://user:S3CRET@127.0.0.1:9")
        assert code == exit_codes.PARTIAL
        golden(printed, "test", command="alerts")
        for part in ("first look", "second look"):
            code, printed = typed(home, "--send", urls=good)
            assert code == exit_codes.DONE
            golden(printed, part, command="alerts")
    assert [title.partition(" (")[0] for title in titles] == ["backfill: a test", "backfill: 1 new"]


@pytest.mark.parametrize("flag", ["--test", "--send"])
def test_without_a_url_nothing_can_be_sent(home, flag, golden):
    code, printed = typed(home, flag)
    assert code == exit_codes.WRONG_USAGE
    golden(printed, command="alerts")


def test_the_doctor_names_urls_that_cannot_be_used_without_their_secrets(tmp_path, golden):
    def finding(urls: str) -> list[str]:
        settings = CALENDAR | {"BACKFILL_ALERTS": urls}
        done = backfill_main("doctor", home=tmp_path, **settings)
        assert "S3CRET" not in done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line.split()[1] == "alerts"]

    lines = [*finding(""), *finding("json://h"), *finding("json://h nosuch://S3CRET")]
    golden(lines, command="alerts")
