"""An object store: moto's S3 over HTTP in a process of its own, a bucket in it, and a landing area
there.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.servers.child import free_port, is_taken
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.copies import LocalCopies
from backfill_assets.sources.object_store import ObjectStore

REQUEST = re.compile(r'"(?:\x1b\[[\d;]*m)*(?P<verb>[A-Z]+) (?P<path>\S*)')
# Whom the library that reads takes for its user; nothing is asked of the one that writes here.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server at `endpoint`, whose requests are noted in `log`."""

    endpoint: str
    name: str
    log: Path

    @property
    def place(self) -> str:
        return f"s3://{self.name}/landed"

    def put(self, name: str, content: bytes) -> None:
        """An object below `place`."""
        self._send("PUT", f"/landed/{name}", content)

    def put_all(self, folder: Path) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(path.relative_to(folder).as_posix(), path.read_bytes())

    def delete(self, name: str) -> None:
        self._send("DELETE", f"/landed/{name}")

    def make(self) -> "Bucket":
        self._send("PUT", "")
        return self

    def _send(self, verb: str, path: str, content: bytes = b"") -> None:
        url = f"{self.endpoint}/{self.name}{quote(path)}"
        known = {"Authorization": "AWS key:unsigned"}
        httpx.request(verb, url, content=content, headers=known).raise_for_status()

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """The requests during a block: how often the bucket was listed, and how often each object
        was read, by its name.
        """
        before = len(self._requests())
        counted = Counter[str]()
        yield counted
        for verb, path in self._requests()[before:]:
            counted[
                "lists" if "list-type=" in path else f"{verb} {path.partition('/landed/')[2]}"
            ] += 1

    def _requests(self) -> list[tuple[str, str]]:
        return [
            (found["verb"], found["path"])
            for line in self.log.read_text().splitlines()
            if (found := REQUEST.search(line))
        ]


@contextmanager
def moto_server(folder: Path) -> Iterator[str]:
    """The address of a server, which is ended with the block."""
    port = free_port()
    with (folder / "moto.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        Retrying(
            stop=stop_after_delay(60),
            wait=wait_fixed(0.05),
            retry=retry_if_result(lambda up: not up),
        )(is_taken, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def area_at(place: str, tmp_path: Path) -> LandingArea:
    """Without trying again where a store does not answer, which takes half a minute."""
    files = ObjectStore(place, LocalCopies(tmp_path / "copies"), retries=0)
    return LandingArea(Path(), tmp_path / "landed", lake=str(tmp_path / "lake"), files=files)
