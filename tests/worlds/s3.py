"""An S3 with conditional writes: versitygw over a folder. `faulty_s3` puts faults before it.

versitygw is one binary of Go. It is taken from the path or from Go's folder, or built once.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import obstore
import pytest
from filelock import FileLock
from obstore.store import S3Store

from backfill_assets.servers.child import free_port
from tests.worlds.started import listening

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
CACHE = Path.home() / ".cache" / "backfill-tests"
KEY = "tester"
SECRET = "of tester"
REGION = "us-east-1"
BUCKET = "tests"


@cache
def versitygw() -> str:
    """The path of the server. Skips the test if it does not exist and cannot be built."""
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
        """The variables of its clients, also of clients that use a proxy at `endpoint`."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
        }

    def upload(self, folder: Path, name: str) -> str:
        """Put the files of a folder below an address in the bucket, and return the address."""
        store = S3Store.from_url(
            self.place(name),
            endpoint=self.endpoint,
            region=REGION,
            access_key_id=KEY,
            secret_access_key=SECRET,
            client_options={"allow_http": True},
        )
        for file in folder.rglob("*"):
            if file.is_file():
                obstore.put(store, file.relative_to(folder).as_posix(), file.read_bytes())
        return self.place(name)

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
    """The purpose of an object."""
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
    with listening(command, port, folder / "server.log"):
        yield S3(f"http://127.0.0.1:{port}", data, log)
