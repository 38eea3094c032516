"""Dagster's webserver, with a check of each request and plots that end with the calendar.

Start it with `python -m backfill_assets.orchestration.local.webserver -p 3000 -w FILE`. Dagster's
own webserver takes mutations by GET and from any origin, so that any web page in the user's browser
could start runs. The check lets pages of this server, and programs, pass. It is not a login: anyone
who can reach the port may do everything.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from dagster import TimeWindowPartitionsDefinition
from dagster._core.definitions.partitions.context import PartitionLoadingContext
from dagster._core.types.pagination import PaginatedResults
from dagster_webserver import app
from dagster_webserver.cli import main
from dagster_webserver.webserver import DagsterWebserver
from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from backfill_assets.settings import read_settings

Paginate = Callable[..., PaginatedResults[str]]


def page_from_the_last_day() -> None:
    """Page partition keys backwards from the last partition, in this process.

    Dagster 1.13 starts at the current day, even if the partitions ended years ago. Its plots then
    show a hundred days that have no partition.
    """
    paginate = TimeWindowPartitionsDefinition.get_paginated_partition_keys
    patched = "get_paginated_partition_keys"
    setattr(TimeWindowPartitionsDefinition, patched, from_the_last(paginate))


def from_the_last(paginate: Paginate) -> Paginate:
    """Wrap Dagster's `paginate` to start at the last partition, if that day has passed."""

    def paginate_from_the_last(
        partitions: TimeWindowPartitionsDefinition,
        context: PartitionLoadingContext,
        limit: int,
        ascending: bool,
        cursor: str | None = None,
    ) -> PaginatedResults[str]:
        end: datetime | None = partitions.end
        if not ascending and end and end < context.effective_dt:
            context = context.updated(effective_dt=end, dynamic_partitions_store=None)
        return paginate(
            partitions, context=context, limit=limit, ascending=ascending, cursor=cursor
        )

    return paginate_from_the_last


_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80  # browsers omit it for the origin
# Forms and scripts of other pages can send other content types without the server's consent.
CONTENT_TYPES = ("application/json", "application/graphql")


@dataclass(frozen=True)
class RequestCheck:
    """ASGI middleware that passes a request on to `app`, or refuses it with plain text.

    `allowed_hosts` are served in addition to this machine's own names, as `name` or `name:port`.
    """

    app: ASGIApp
    allowed_hosts: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] in ("http", "websocket"):
            hosts = own_hosts(*scope["server"]) | {host.lower() for host in self.allowed_hosts}
            refusal = refusal_of(HTTPConnection(scope), hosts)
        await (refusal or self.app)(scope, receive, send)


def own_hosts(address: str, port: int) -> set[str]:
    """The values of the header Host for this machine and port.

    `address` is the address at which the request arrived. An attacker can only point a name at it.
    """
    names = {*_LOOPBACK, f"[{address}]" if ":" in address else address}
    return {f"{name}:{port}" for name in names} | (names if port == HTTP_PORT else set())


def refusal_of(request: HTTPConnection, hosts: Collection[str]) -> PlainTextResponse | None:
    """The response that refuses the request; None if the request may pass."""
    origins = {f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts}
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if host.lower() not in hosts:
        # An attacker's name may resolve to this machine.
        remedy = (
            "If that is your proxy or tunnel, add it to BACKFILL_ALLOWED_HOSTS and start `backfill"
            " up` again."
        )
        return _refusal(
            403,
            f"This request is addressed to {host or 'no host'}, not to a name of this server.",
            remedy,
        )
    if origin is not None and origin.lower() not in origins:
        remedy = (
            "If it may start runs, add its host and port to BACKFILL_ALLOWED_HOSTS and start"
            " `backfill up` again."
        )
        return _refusal(403, f"A web page of {origin} sent this request.", remedy)
    if any(has_mutation(query) for query in request.query_params.getlist("query")):
        return _refusal(
            405,
            "A mutation in an address is not accepted.",
            "Send it in the body of a POST.",
            Allow="POST",
        )
    content_type = request.headers.get("content-type")
    if (
        content_type is not None
        and content_type.partition(";")[0].strip().lower() not in CONTENT_TYPES
    ):
        return _refusal(
            415, f"The content type {content_type} is not accepted.", f"Send {CONTENT_TYPES[0]}."
        )
    return None


def has_mutation(query: str) -> bool:
    """True if a GraphQL document has a mutation. Dagster reports documents that do not parse."""
    try:
        definitions = parse(query).definitions
    except GraphQLError:
        return False
    return any(
        isinstance(definition, OperationDefinitionNode)
        and definition.operation == OperationType.MUTATION
        for definition in definitions
    )


def _refusal(status: int, reason: str, remedy: str, **headers: str) -> PlainTextResponse:
    headers = {"X-Content-Type-Options": "nosniff", **headers}
    return PlainTextResponse(f"{reason} Nothing was done. {remedy}\n", status, headers)


class CheckedWebserver(DagsterWebserver):
    """Dagster's webserver with checked requests. Other pages cannot show its pages in a frame."""

    def build_middleware(self) -> list[Middleware]:
        return [
            Middleware(RequestCheck, read_settings().allowed_hosts),
            *super().build_middleware(),
        ]

    def make_security_headers(self) -> dict[str, str]:
        return super().make_security_headers() | {"X-Frame-Options": "DENY"}


def check_requests() -> None:
    """Make Dagster's command serve `CheckedWebserver`. The command has no option for that."""
    app.DagsterWebserver = CheckedWebserver  # type: ignore[misc]


if __name__ == "__main__":
    check_requests()
    page_from_the_last_day()
    main()
