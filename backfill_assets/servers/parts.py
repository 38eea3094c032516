"""The servers that run here, and their addresses."""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address

from backfill_assets.servers.child import USUAL_PORT
from backfill_assets.settings import LOOPBACK

# The addresses that stand for all addresses of a machine, with the host by which its own programs
# reach them.
_ANY = {"0.0.0.0": LOOPBACK, "::": "::1"}


class Part(StrEnum):
    """A server that `backfill up --only` runs alone."""

    WEBSERVER = "webserver"
    DAEMON = "daemon"
    CODE = "code"
    ENGINE = "engine"


NAMES = {part: "code server" if part == Part.CODE else str(part) for part in Part}
USUAL_PORTS = {
    Part.WEBSERVER: USUAL_PORT,
    Part.DAEMON: 0,  # it does not listen
    Part.CODE: 4000,
    Part.ENGINE: 15002,
}
# The code server's address for a webserver or a daemon that runs alone, without a setting.
USUAL_CODE_SERVER = f"{LOOPBACK}:{USUAL_PORTS[Part.CODE]}"


@dataclass(frozen=True)
class ServerPlace:
    """Which servers run here, and where they listen.

    Without `only`, all servers run here, and `host`, `port` and `path_prefix` are the webserver's.
    """

    port: int
    host: str = LOOPBACK
    path_prefix: str = ""
    only: Part | None = None

    def has(self, part: Part) -> bool:
        return self.only in (None, part)

    @property
    def is_named(self) -> bool:
        """True if the host is a name, not an address."""
        try:
            return not ip_address(self.host)
        except ValueError:
            return True

    @property
    def reached_at(self) -> str:
        """The host by which programs of this machine reach a server that listens here."""
        return _ANY.get(self.host, self.host)

    @property
    def server(self) -> str:
        """The host and port by which programs of this machine reach the server, as in a URL."""
        return f"{in_url(self.reached_at)}:{self.port}"

    @property
    def url(self) -> str:
        """The webserver's address for programs of this machine."""
        return f"http://{self.server}{self.path_prefix}"


def in_url(host: str) -> str:
    """A host in a URL: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host
