"""Messages to a mail server and to webhooks that are slow, broken, away or wrong: sent once."""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from apprise import NotifyBase
from apprise.plugins.discord import NotifyDiscord

from backfill_assets.alerts import post, send
from backfill_assets.alerts.send import send_to_all, tell
from backfill_assets.errors import Conflict
from backfill_assets.lake.locks import lock
from backfill_assets.settings import Settings, read_settings
from backfill_assets.workspace import Workspace
from tests.worlds.http_server import Request, http_server
from tests.worlds.mail import mail_server
from tests.worlds.small_lake import DAYS, B, SmallLake, copy_of, released_lake

pytestmark = pytest.mark.services
AT = datetime(2026, 1, 1, 3, 12, tzinfo=UTC)
SECRET = "S3CRET"
# A port on which nothing listens.
AWAY = f"json://user:{SECRET}@127.0.0.1:9"


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """A lake that is not released, because B was made from other rows."""
    lake = copy_of(released_lake, tmp_path)
    lake.write({DAYS[0]: 9})
    return lake


def with_urls(lake: SmallLake, *urls: str) -> Workspace:
    settings = read_settings(home=lake.root.parent, lake=str(lake.root), alerts=" ".join(urls))
    return replace(lake.workspace, settings=settings)


def tell_twice(workspace: Workspace) -> dict[str, int]:
    """Look twice: the second look tells what both have found."""
    assert tell(workspace, AT) == {}
    return dict(tell(workspace, AT))


Answer = Callable[[Request], None]


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Any], list[int]]]:
    """The URL of a webhook, the messages that it got, and its next answers (default: 200)."""
    got: list[Any] = []
    answers: list[int] = []

    def respond(request: Request) -> None:
        got.append(json.loads(request.body()))
        request.answer(answers.pop(0) if answers else 200)

    with http_server(respond) as address:
        yield address.replace("http", "json", 1).replace("//", f"//user:{SECRET}@"), got, answers


def test_an_email_says_what_happened_once_and_once_that_it_is_over(lake, golden):
    with mail_server() as (url, inbox):
        workspace = with_urls(lake, url)
        assert tell_twice(workspace) == {"URL 1 (mailto)": post.SENT}
        assert tell(workspace, AT) == {}
        lake.write({DAYS[0]: 9}, table=B.name)
        assert tell(workspace, AT) == {"URL 1 (mailto)": post.SENT}
        assert tell(workspace, AT) == {}
    assert [message["To"] for message in inbox] == ["night@example.com"] * 2
    assert {message.get_content_type() for message in inbox} == {"text/plain"}
    for number, message in enumerate(inbox):
        golden([message["Subject"], "", message.get_content()], str(number), LAKE=lake.root)


@pytest.mark.scale
def test_a_webhook_gets_the_title_and_the_text(lake, hook):
    url, got, _ = hook
    tell_twice(with_urls(lake, url))
    (message,) = got
    assert message["title"].startswith("backfill: 1 new (")
    assert message["message"].startswith("New: Live is not released")


def test_a_url_that_fails_is_tried_again_and_does_not_hold_up_others(lake, hook):
    url, got, answers = hook
    answers += [500]
    with mail_server() as (mail, inbox):
        workspace = with_urls(lake, url, mail, AWAY)
        outcomes = {
            "URL 1 (json)": post.FAILED,
            "URL 2 (mailto)": post.SENT,
            "URL 3 (json)": post.FAILED,
        }
        assert tell_twice(workspace) == outcomes
        again = tell(workspace, AT)
        assert again == {"URL 1 (json)": post.SENT, "URL 3 (json)": post.FAILED}
        assert len(inbox) == 1
    assert [message["title"] for message in got] == [got[0]["title"]] * 2


@pytest.mark.scale
def test_what_is_over_before_it_was_told_is_not_told(lake, hook):
    url, got, answers = hook
    answers += [500]
    workspace = with_urls(lake, url)
    tell_twice(workspace)
    lake.write({DAYS[0]: 9}, table=B.name)
    assert tell(workspace, AT) == {}
    assert len(got) == 1


@pytest.mark.scale
def test_a_webhook_that_never_answers_is_given_up_in_time(lake, hook, monkeypatch):
    url, got, _ = hook
    over = Event()
    monkeypatch.setattr(send, "LONGEST_S", 10.0)

    def respond(request: Request) -> None:
        request.body()
        while not over.wait(0.2):  # a byte now and then, so that no read ever times out
            request.wfile.write(b"HTTP/1.1 1")

    with http_server(respond) as address:
        slow = address.replace("http", "json", 1) + "/?rto=100"
        try:
            outcomes = tell_twice(with_urls(lake, slow, url))
        finally:
            over.set()
    assert outcomes == {"URL 1 (json)": post.FAILED, "URL 2 (json)": post.SENT}
    assert len(got) == 1


@pytest.mark.scale
def test_two_processes_that_look_at_once_send_once(lake, hook):
    url, got, _ = hook
    workspace = with_urls(lake, url)
    tell(workspace, AT)
    with lock(str(lake.root), "alerts"), pytest.raises(Conflict):
        tell(workspace, AT)
    assert got == []
    tell(workspace, AT)
    tell(workspace, AT)
    assert len(got) == 1


def test_nothing_is_sent_that_cannot_be_recorded(lake, hook, monkeypatch):
    url, got, _ = hook
    workspace = with_urls(lake, url)
    tell(workspace, AT)

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(send, "write_told", full)
    with pytest.raises(OSError, match="No space left"):
        tell(workspace, AT)
    assert got == []


@pytest.mark.scale
def test_a_new_url_is_told_what_is_open(lake, hook):
    url, got, _ = hook
    with mail_server() as (mail, inbox):
        tell_twice(with_urls(lake, mail))
        assert tell(with_urls(lake, mail, url), AT) == {"URL 2 (json)": post.SENT}
        assert (len(inbox), len(got)) == (1, 1)
        # Another host with other URLs does not disturb the first one.
        assert tell(with_urls(lake, mail), AT) == {}


def test_a_check_names_wrong_urls_and_sends_nothing(hook):
    url, got, _ = hook
    settings = Settings(alerts=f"{url} nosuchservice://{SECRET} {SECRET}")  # type: ignore[arg-type]
    assert send_to_all(settings) == {
        "URL 1 (json)": post.SENT,
        "URL 2 (nosuchservice)": post.WRONG_URL,
    }
    settings = Settings(alerts=f"{SECRET}")  # type: ignore[arg-type]
    assert send_to_all(settings) == {"URL 1 (without a scheme)": post.WRONG_URL}
    assert got == []


@pytest.mark.scale
def test_a_message_that_is_too_long_for_a_chat_is_split(monkeypatch):
    sent = []

    def take(_: object, body: str, **options: object) -> bool:
        sent.append(len(body))
        return True

    monkeypatch.setattr(NotifyBase, "overflow_mode", NotifyBase.overflow_mode)
    monkeypatch.setattr(NotifyDiscord, "send", take)
    url = f"discord://{'1' * 18}/{'a' * 68}"
    message = {"url": url, "title": "a title", "body": "a line of text\n" * 400}
    monkeypatch.setattr("sys.stdin", StringIO(json.dumps(message)))
    assert post.main() == post.SENT
    assert len(sent) == 4
    assert max(sent) <= 2000


def test_no_output_log_or_document_has_a_secret(lake, hook, caplog, capfd):
    url, _, answers = hook
    answers += [500]
    caplog.set_level(logging.NOTSET)
    workspace = with_urls(lake, url, AWAY, f"mailto://a:{SECRET}@127.0.0.1:9", f"no://{SECRET}")
    assert len(tell_twice(workspace)) == 4
    send_to_all(workspace.settings, "a test", "a test")
    shown = capfd.readouterr()
    texts = [shown.out, shown.err, caplog.text, repr(workspace), str(workspace.settings)]
    assert [text for text in texts if SECRET in text] == []
    files = [path for path in lake.root.parent.rglob("*") if path.is_file()]
    assert any(path.name == "told.json" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
