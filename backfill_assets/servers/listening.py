"""The addresses and sockets of the servers, as the operating system reports them."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import psutil

from backfill_assets.servers.child import process_tree

# A user who may write to a Unix socket can connect to it.
_MAY_CONNECT = 0o022


@dataclass(frozen=True, order=True)
class Listener:
    """A server that listens at an IP address and port, or at a Unix socket.

    For a socket, `address` is its path and `port` is 0. `open_to_others` means that other machines
    can connect, or, for a socket, other users.
    """

    server: str
    address: str
    port: int
    open_to_others: bool

    def __str__(self) -> str:
        return f"{self.server} at {self.address}" + (f" port {self.port}" if self.port else "")


def listeners(servers: Mapping[str, int]) -> list[Listener]:
    """Every listener of these servers and their children. `servers` has process ids by name."""
    return sorted({listener for name, pid in servers.items() for listener in _of_server(name, pid)})


def is_private(path: Path) -> bool:
    """True if only the owner and root may read, enter or change the path.

    Raises OSError if it does not exist.
    """
    return not path.stat().st_mode & 0o077


def _of_server(name: str, pid: int) -> Iterator[Listener]:
    # The process may have ended, or removed its socket.
    with suppress(psutil.Error, OSError):
        for process in process_tree(pid):
            for connection in process.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    # Java listens on an IPv4 address as `::ffff:127.0.0.1`.
                    address = connection.laddr.ip.removeprefix("::ffff:")
                    yield Listener(
                        name, address, connection.laddr.port, not ip_address(address).is_loopback
                    )
            for connection in process.net_connections("unix"):
                path = Path(str(connection.laddr))
                if connection.laddr and connection.type == socket.SOCK_STREAM and path.is_socket():
                    private = any(is_private(folder) for folder in path.parents)
                    yield Listener(
                        name, str(path), 0, bool(path.stat().st_mode & _MAY_CONNECT) and not private
                    )
