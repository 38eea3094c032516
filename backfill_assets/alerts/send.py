"""Tell people which incidents are new, changed or over, once through each URL.

One process at a time looks and sends. An incident is told if two looks in a row have found it,
because some pass while steps and releases take turns. If a URL fails, the next look sends what is
true then. If a service takes a message but does not say so in time, it gets the message again.
"""

import json
import re
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from subprocess import DEVNULL, TimeoutExpired, run

from backfill_assets.alerts import post
from backfill_assets.alerts.incidents import look_for_incidents
from backfill_assets.alerts.told import body, hash_of, news, read_told, title, write_told
from backfill_assets.errors import Conflict
from backfill_assets.lake.leases import LockHeld
from backfill_assets.lake.locks import lock
from backfill_assets.publish.release_live import Runs, no_runs
from backfill_assets.settings import Settings
from backfill_assets.workspace import Workspace

# The longest time for all messages of a look. They are sent at the same time.
LONGEST_S = 20.0
# The exit code of `post` for each URL that was used, by the name of the URL.
Outcomes = Mapping[str, int]
OUTCOMES = {
    post.SENT: "sent.",
    post.WRONG_URL: "not sent. The URL cannot be used: `backfill doctor` names the remedy.",
}
NOT_TAKEN = (
    "not sent. The service did not take the message. Check its address and password, and that it"
    " runs."
)


def tell(workspace: Workspace, now: datetime, runs: Runs = no_runs) -> Outcomes:
    """Look for incidents, and send what was not told yet.

    Raises Conflict if another process does so now, and OSError if the lake cannot be written.
    """
    root = workspace.lake.root
    settings = workspace.settings
    try:
        with lock(root, "alerts"):
            before = read_told(root)
            look = look_for_incidents(workspace, now, runs, before.incidents)
            seen = before.after(*look, now)
            keys = {incident.key for incident in before.incidents}
            present = tuple(incident for incident in seen.incidents if incident.key in keys)
            hashes = {name: hash_of(url) for name, url in urls_of(settings).items()}
            texts = {
                name: (title(found, settings.project), body(found, root))
                for name, of in hashes.items()
                if (found := news(present, seen.urls.get(of, ())))
            }
            if texts or seen != before:
                write_told(root, seen)  # what cannot be recorded is not sent
            outcomes = send(settings, texts)
            heard = [of for name, of in hashes.items() if not outcomes.get(name)]
            told = replace(seen, urls={**seen.urls, **dict.fromkeys(heard, present)})
            if told != seen:
                write_told(root, told)
            return outcomes
    except LockHeld:
        raise Conflict(
            "Another process looks for alerts now.",
            unchanged="Nothing was sent.",
            next_step="Type the same again.",
        ) from None


def send_to_all(settings: Settings, title: str = "", body: str = "") -> Outcomes:
    """Send a text through all URLs. Without a title, the URLs are only checked."""
    return send(settings, dict.fromkeys(urls_of(settings), (title, body)))


def send(settings: Settings, texts: Mapping[str, tuple[str, str]]) -> Outcomes:
    """Send a title and a body through each of the named URLs."""
    urls = urls_of(settings)

    def outcome(name: str) -> int:
        title, body = texts[name]
        message = json.dumps({"url": urls[name], "title": title, "body": body}).encode()
        command = [sys.executable, "-m", post.__name__]
        try:
            return run(
                command, input=message, stdout=DEVNULL, stderr=DEVNULL, timeout=LONGEST_S
            ).returncode
        except TimeoutExpired:
            return post.FAILED

    with ThreadPoolExecutor(len(urls) or 1) as workers:
        return dict(zip(texts, workers.map(outcome, texts), strict=True))


def urls_of(settings: Settings) -> dict[str, str]:
    """The URLs by name, such as `URL 2 (mailto)`. Only the names may be shown."""
    urls = {}
    for n, secret in enumerate(settings.alerts, 1):
        url = secret.get_secret_value()
        scheme = re.match(r"[a-z0-9]{1,20}(?=://)", url)
        urls[f"URL {n} ({scheme[0] if scheme else 'without a scheme'})"] = url
    return urls
