"""An S3 with conditional writes: versitygw over a folder, and a proxy that puts faults before it.

versitygw is one binary of Go. It is taken from the path or from Go's folder, or built once.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import unquote

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from filelock import FileLock
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.servers.child import free_port, is_taken

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
CACHE = Path.home() / ".cache" / "backfill-tests"
KEY = "tester"
SECRET = "of tester"
REGION = "us-east-1"
BUCKET = "tests"


@cache
def versitygw() -> str:
    """The path of the server. Skips the test if there is none and it cannot be built."""
    folders = [Path(os.environ.get("GOPATH", Path.home() / "go"), "bin"), CACHE]
    search = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)])
    found = shutil.which("versitygw", path=search)
    if found:
        return found
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if not go:
        pytest.skip("versitygw is not installed, and there is no Go to build it")
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / "versitygw.lock"):
        built = CACHE / "versitygw"
        if not built.exists():
            subprocess.run(
                [go, "install", MODULE],
                env=os.environ | {"GOBIN": str(CACHE)},
                check=True,
                timeout=900,
            )
        return str(built)


@dataclass(frozen=True)
class S3:
    """The server at `endpoint`. Its buckets are folders, and its requests are lines of `log`."""

    endpoint: str
    folder: Path
    log: Path

    def place(self, name: str) -> str:
        """An address in the one bucket."""
        return f"s3://{BUCKET}/{name}"

    def environment(self, endpoint: str = "") -> dict[str, str]:
        """The variables of its clients, also of those that come by a proxy at `endpoint`."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
        }

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """The requests during a block, by the operation, the status and the kind of the object."""
        before = len(self._requests())
        counted = Counter[str]()
        yield counted
        counted.update(self._requests()[before:])

    def _requests(self) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [request_of(line) for line in lines if " s3_" in line]


REQUEST = re.compile(r" s3_(?P<verb>\w+) (?P<path>\S+) .*?(?P<uri>/\S*) (?P<status>\d{3}) ")


def request_of(line: str) -> str:
    """A line of the access log as "operation kind status"."""
    found = REQUEST.search(line)
    if not found:
        return f"? {line[:120]}"
    listed = re.search(r"[?&]prefix=([^&]*)", found["uri"])
    path = unquote(listed[1]) if listed else found["path"]
    return f"{found['verb']} {kind_of(path)} {found['status']}"


KINDS = {
    r"_ledger/_delta_log": "log of the ledger",
    r"_ledger/": "ledger",
    r"_acts/": "acts",
    r"_releases/": "releases",
    r"_locks/": "locks",
    r"_(plans|verdicts|diffs)/": "plans",
    r"/_delta_log": "log of a table",
    r"\.parquet": "rows",
}


def kind_of(path: str) -> str:
    """What an object is for."""
    return next((kind for pattern, kind in KINDS.items() if re.search(pattern, path)), "others")


@contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    """A server whose objects are below `folder`, until the block ends."""
    port = free_port()
    log = folder / "access.log"
    log.touch()
    data = folder / "data"
    (data / BUCKET).mkdir(parents=True)
    command = [
        versitygw(), "--quiet", "--keep-alive", "--access", KEY, "--secret", SECRET,
        "--region", REGION, "--port", f"127.0.0.1:{port}", "--access-log", str(log),
        "posix", str(data),
    ]  # fmt: skip
    with (folder / "server.log").open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        Retrying(
            stop=stop_after_delay(60),
            wait=wait_fixed(0.05),
            retry=retry_if_result(lambda up: not up),
        )(is_taken, port)
        yield S3(f"http://127.0.0.1:{port}", data, log)
    finally:
        server.terminate()
        server.wait(60)


@dataclass
class Faults:
    """A proxy before a server, with its faults.

    drop_conditions  whether the conditions of writes are left out
    answer           what a request gets instead of the server's answer: a status, or None
    lose             whether an answer is lost after the server has done what was asked
    wait             called before a request is passed on
    """

    drop_conditions: bool = False
    answer: Callable[[str, str], int | None] = lambda verb, path: None
    lose: Callable[[str, str], bool] = lambda verb, path: False
    wait: Callable[[str, str], object] = lambda verb, path: None
    requests: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def once(self, verb: str, part: str) -> Callable[[str, str], bool]:
        """True for the first request with this verb and this part of its path."""
        used: list[str] = []

        def is_it(of: str, path: str) -> bool:
            with self.lock:
                if used or of != verb or part not in path:
                    return False
                used.append(path)
                return True

        return is_it


def without_conditions(verb: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
    """The headers of a request without If-Match and If-None-Match, which the signature covers."""
    dropped = ("if-match", "if-none-match", "authorization", "host")
    kept = {name: value for name, value in headers.items() if name.lower() not in dropped}
    request = AWSRequest(verb, url, kept, body)
    S3SigV4Auth(Credentials(KEY, SECRET), "s3", REGION).add_auth(request)
    return dict(request.headers.items())


@contextmanager
def proxy_before(endpoint: str, faults: Faults) -> Iterator[str]:
    """The address of a proxy with `faults` before the server at `endpoint`."""
    host = endpoint.removeprefix("http://")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (ConnectionError, TimeoutError):
                self.close_connection = True

        def passed_on(self) -> None:
            verb = self.command
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            faults.requests.append(f"{verb} {self.path}")
            faults.wait(verb, self.path)
            if status := faults.answer(verb, self.path):
                self.reply(status, {}, b"")
                return
            headers = dict(self.headers.items())
            if faults.drop_conditions:
                headers = without_conditions(verb, f"{endpoint}{self.path}", headers, body)
            connection = HTTPConnection(host, timeout=60)
            connection.request(verb, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if faults.lose(verb, self.path):
                self.close_connection = True
                return
            self.reply(answer.status, dict(answer.getheaders()), content)

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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
