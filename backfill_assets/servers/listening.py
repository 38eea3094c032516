"""What the servers listen on, as the system tells it of their processes: nothing is left out, and nothing is assumed."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import psutil

from backfill_assets.servers.child import process_tree


@dataclass(frozen=True, order=True)
class Listener:
    """A server that listens at an IP address and port, or at a Unix socket: its path, and no port."""

    server: str
    address: str
    port: int | None = None

    def __str__(self) -> str:
        return f"{self.server} at {self.address}" + (f" port {self.port}" if self.port else "")

    @property
    def open_to_others(self) -> bool:
        """Whether other machines can connect, or, to a Unix socket, other users of this machine."""
        if self.port is not None:
            return not ip_address(self.address.partition("%")[0]).is_loopback
        path = Path(self.address)
        return not any(is_private(each) for each in (path, *path.parents))


def is_private(path: Path) -> bool:
    """Whether only its owner (and root) may read, enter or change the file or folder."""
    return not path.stat().st_mode & 0o077


def listeners(servers: Mapping[str, int]) -> list[Listener]:
    """Everything that these processes, ids by the names of servers, and their children listen on."""
    return sorted({listener for name, pid in servers.items() for listener in _of_process(name, pid)})


def _of_process(name: str, pid: int) -> Iterator[Listener]:
    with suppress(psutil.Error):  # it has ended
        for process in process_tree(pid):
            for connection in process.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    yield Listener(name, connection.laddr.ip, connection.laddr.port)
            for connection in process.net_connections("unix"):
                if connection.laddr and connection.type == socket.SOCK_STREAM and Path(connection.laddr).exists():
                    yield Listener(name, connection.laddr)
