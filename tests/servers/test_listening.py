"""What processes listen on is read from the system, with that of their children."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backfill_assets.servers.child import Child, stop
from backfill_assets.servers.listening import Listener, listeners
from tests.worlds.station import eventually

pytestmark = pytest.mark.servers

# Listens, in a child of its own, at two addresses of IPv4, one of IPv6 and the Unix sockets named;
# nobody waits for the sleep.
LISTENING = """
import os, socket, sys, time
if os.fork():
    time.sleep(600)
os.umask(0)
ports, kept = [], []
for family, address in [
    (socket.AF_INET, ("127.0.0.1", 0)),
    (socket.AF_INET, ("0.0.0.0", 0)),
    (socket.AF_INET6, ("::ffff:127.0.0.1", 0)),
    *((socket.AF_UNIX, path) for path in sys.argv[1:]),
]:
    listening = socket.socket(family)
    listening.bind(address)
    listening.listen()
    kept.append(listening)
    ports += [listening.getsockname()[1]] if family != socket.AF_UNIX else []
client = socket.create_connection(("127.0.0.1", ports[0]))
print(*ports, "ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    """A folder that other users may enter, and one in it that they may not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "own").mkdir(0o700)
        yield Path(name), Path(name) / "own"


def test_every_port_of_a_server_and_its_children_is_listed(tmp_path, folders):
    open_socket, own_socket = (str(folder / "socket") for folder in folders)
    server = Child(
        "server",
        [sys.executable, "-c", LISTENING, open_socket, own_socket],
        dict(os.environ),
        tmp_path / "log",
        tmp_path,
    )
    server.start()
    try:
        eventually(lambda: "ready" in server.log_tail(), what="the server listens", patience=30)
        loopback, everywhere, mapped = map(int, server.log_tail().split()[:3])
        assert listeners({"server": server.pid, "ended": 2**22 + 1}) == sorted(
            [
                Listener("server", "127.0.0.1", loopback, open_to_others=False),
                Listener("server", "0.0.0.0", everywhere, open_to_others=True),
                Listener("server", "127.0.0.1", mapped, open_to_others=False),
                Listener("server", open_socket, 0, open_to_others=True),
                Listener("server", own_socket, 0, open_to_others=False),
            ]
        )
    finally:
        stop([server], patience=0.5)
