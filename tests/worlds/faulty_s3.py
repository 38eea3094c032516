"""A proxy before an S3 server that puts faults between it and its clients, by rules.

It is a process of its own: `deltalake` keeps other threads of its process waiting.
"""

import multiprocessing
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from threading import Lock, Thread

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.worlds.s3 import KEY, REGION, SECRET


class Fault(StrEnum):
    """What happens to a request."""

    LOSE = "the server has done it, and its answer is lost"
    CUT = "the connection ends, and the server gets nothing"
    BUSY = "503"
    EXPIRED = "403, because the credentials have expired"
    SLOW = "it is passed on after a while"
    UNCONDITIONAL = "it is passed on without its conditions"


ANSWERS = {Fault.BUSY: (503, "SlowDown"), Fault.EXPIRED: (403, "ExpiredToken")}
SLOW_S = 0.02


@dataclass(frozen=True)
class Rule:
    """A fault of the requests with this verb and this part of their path ("": any).

    The first `after` of them have none. Then it comes at every `every`-th one, and `times` times
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
    """A rule, the requests that it is for, and how often its fault came."""

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

    def set(self, *rules: Rule) -> list[int]:
        """Replace the rules. Returns how often the fault of each of the earlier ones came."""
        self._pipe.send(rules)
        came: list[int] = self._pipe.recv()
        return came


@contextmanager
def faulty_s3(endpoint: str, *rules: Rule) -> Iterator[FaultyS3]:
    """A proxy with faults before the server at `endpoint`, until the block ends."""
    spawned = multiprocessing.get_context("spawn")
    ours, its = spawned.Pipe()
    process = spawned.Process(target=_serve, args=(endpoint, its), daemon=True)
    process.start()
    try:
        started = FaultyS3(ours.recv(), ours)
        started.set(*rules)
        yield started
    finally:
        process.kill()  # Processes of pytest-xdist ignore SIGTERM, and so do their children.
        process.join()


def _serve(endpoint: str, pipe: Connection) -> None:
    host = endpoint.removeprefix("http://")
    counted: list[_Counted] = []
    lock = Lock()

    def faults_of(verb: str, path: str) -> set[Fault]:
        with lock:
            return {each.rule.fault for each in counted if each.has(verb, path)}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def passed_on(self) -> None:
            verb = self.command
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            faults = faults_of(verb, self.path)
            if Fault.SLOW in faults:
                time.sleep(SLOW_S)
            if Fault.CUT in faults:
                self.cut()
                return
            for fault in ANSWERS.keys() & faults:
                status, code = ANSWERS[fault]
                text = f"<Error><Code>{code}</Code><Message>a fault</Message></Error>"
                self.reply(status, {"Content-Type": "application/xml"}, text.encode())
                return
            headers = dict(self.headers.items())
            if Fault.UNCONDITIONAL in faults:
                headers = without_conditions(verb, f"{endpoint}{self.path}", headers, body)
            connection = HTTPConnection(host, timeout=60)
            connection.request(verb, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if Fault.LOSE in faults:
                self.cut()
            else:
                self.reply(answer.status, dict(answer.getheaders()), content)

        def cut(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def reply(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else len(content)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = passed_on  # noqa: N815

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            # Clients may go away.
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(*_)  # type: ignore[arg-type]

    server = Server(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(f"http://127.0.0.1:{server.server_address[1]}")
    while True:
        try:
            rules: Sequence[Rule] = pipe.recv()
        except EOFError:  # the test is gone
            return
        with lock:
            came = [each.came for each in counted]
            counted[:] = map(_Counted, rules)
        pipe.send(came)


def without_conditions(verb: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
    """The headers of a request without If-Match and If-None-Match, which the signature covers."""
    dropped = ("if-match", "if-none-match", "authorization", "host")
    kept = {name: value for name, value in headers.items() if name.lower() not in dropped}
    request = AWSRequest(verb, url, kept, body)
    S3SigV4Auth(Credentials(KEY, SECRET), "s3", REGION).add_auth(request)
    return dict(request.headers.items())
