"""A proxy before an S3 server that puts faults between it and its clients, by rules.

It is a process of its own: `deltalake` keeps other threads of its process waiting.
"""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from threading import Lock

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.worlds.http_server import Request, http_server
from tests.worlds.s3 import KEY, REGION, SECRET


class Fault(StrEnum):
    """The fault of a request."""

    LOSE = "the server has done it, and its answer is lost"
    CUT = "the connection ends, and the server gets nothing"
    BUSY = "503"
    EXPIRED = "403, because the credentials have expired"
    SLOW = "it is passed on after a while"
    UNCONDITIONAL = "it is passed on without its conditions"
    HELD = "it is passed on once the test releases it"


ANSWERS = {Fault.BUSY: (503, "SlowDown"), Fault.EXPIRED: (403, "ExpiredToken")}
SLOW_S = 0.02
HELD_TIMEOUT_S = 500


@dataclass(frozen=True)
class Rule:
    """A fault of the requests with this verb and this part of their path ("": any).

    The first `after` requests have no fault. Then every `every`-th request has it, `times` times
    (0: always).
    """

    fault: Fault
    verb: str = ""
    part: str = ""
    times: int = 1
    every: int = 1
    after: int = 0


@dataclass
class _Counted:
    """A rule, its requests, and the number of its faults."""

    rule: Rule
    seen: int = 0
    came: int = 0

    def has(self, verb: str, path: str) -> bool:
        rule = self.rule
        if rule.part not in path or rule.verb not in ("", verb):
            return False
        self.seen += 1
        is_over = rule.times and self.came == rule.times
        if is_over or self.seen <= rule.after or (self.seen - rule.after) % rule.every:
            return False
        self.came += 1
        return True


@dataclass
class FaultyS3:
    """The proxy at `endpoint`. It has no faults before `set`."""

    endpoint: str
    _pipe: Connection = field(repr=False)
    _held: Event = field(repr=False)
    _released: Event = field(repr=False)

    def wait_until_held(self) -> None:
        """Wait for the request that is held."""
        assert self._held.wait(HELD_TIMEOUT_S)

    def release(self) -> None:
        """Pass on the held request, and later ones."""
        self._released.set()

    def set(self, *rules: Rule) -> list[int]:
        """Replace the rules. Returns the number of faults of each earlier rule."""
        self._pipe.send(rules)
        came: list[int] = self._pipe.recv()
        return came


@contextmanager
def faulty_s3(endpoint: str, *rules: Rule) -> Iterator[FaultyS3]:
    """A proxy with faults before the server at `endpoint`, until the block ends."""
    spawned = multiprocessing.get_context("spawn")
    ours, its = spawned.Pipe()
    events = spawned.Event(), spawned.Event()
    process = spawned.Process(target=_serve, args=(endpoint, its, *events), daemon=True)
    process.start()
    try:
        started = FaultyS3(ours.recv(), ours, *events)
        started.set(*rules)
        yield started
    finally:
        process.kill()  # Processes of pytest-xdist ignore SIGTERM, and so do their children.
        process.join()


def _serve(endpoint: str, pipe: Connection, held: Event, released: Event) -> None:
    host = endpoint.removeprefix("http://")
    counted: list[_Counted] = []
    lock = Lock()

    def faults_of(verb: str, path: str) -> set[Fault]:
        with lock:
            return {each.rule.fault for each in counted if each.has(verb, path)}

    def pass_on(request: Request) -> None:
        verb = request.command
        body = request.body()
        faults = faults_of(verb, request.path)
        if Fault.SLOW in faults:
            time.sleep(SLOW_S)
        if Fault.HELD in faults:
            held.set()
            released.wait(HELD_TIMEOUT_S)
        if Fault.CUT in faults:
            request.cut()
            return
        for fault in ANSWERS.keys() & faults:
            status, code = ANSWERS[fault]
            text = f"<Error><Code>{code}</Code><Message>a fault</Message></Error>"
            reply(request, status, {"Content-Type": "application/xml"}, text.encode())
            return
        headers = dict(request.headers.items())
        if Fault.UNCONDITIONAL in faults:
            headers = without_conditions(verb, f"{endpoint}{request.path}", headers, body)
        connection = HTTPConnection(host, timeout=60)
        connection.request(verb, request.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if Fault.LOSE in faults:
            request.cut()
        else:
            reply(request, answer.status, dict(answer.getheaders()), content)

    # It ends with EOFError after the test has ended.
    with http_server(pass_on) as address, suppress(EOFError):
        pipe.send(address)
        while True:
            rules: Sequence[Rule] = pipe.recv()
            with lock:
                came = [each.came for each in counted]
                counted[:] = map(_Counted, rules)
            pipe.send(came)


def reply(request: Request, status: int, headers: dict[str, str], content: bytes) -> None:
    """Answer with these headers only."""
    request.send_response_only(status)
    for name, value in headers.items():
        if name.lower() not in ("connection", "transfer-encoding", "content-length"):
            request.send_header(name, value)
    is_head = request.command == "HEAD"
    length = headers.get("Content-Length", "0") if is_head else len(content)
    request.send_header("Content-Length", str(length))
    request.end_headers()
    if not is_head:
        request.wfile.write(content)


def without_conditions(verb: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
    """The headers of a request without If-Match and If-None-Match, although the signature covers
    them.
    """
    dropped = ("if-match", "if-none-match", "authorization", "host")
    kept = {name: value for name, value in headers.items() if name.lower() not in dropped}
    request = AWSRequest(verb, url, kept, body)
    S3SigV4Auth(Credentials(KEY, SECRET), "s3", REGION).add_auth(request)
    return dict(request.headers.items())
