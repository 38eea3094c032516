"""Dagster's webserver, with a check of each request and plots that end with the calendar.

Start it with `python -m backfill_assets.orchestration.local.webserver -p 3000 -w FILE`. Dagster's
own webserver takes mutations by GET and from any origin, so that any web page in the user's browser
could start runs. The check lets pages of this server and programs pass. It is no login: anyone who
can reach the port may do everything.
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
    """Let partition keys be paged backwards from the last partition, in this process.

    Dagster 1.13 starts at the current day, whatever the end of the partitions is: the plots of a
    calendar that ended years ago show a hundred days that have no partition.
    """
    TimeWindowPartitionsDefinition.get_paginated_partition_keys = from_the_last(  # type: ignore[method-assign]
        TimeWindowPartitionsDefinition.get_paginated_partition_keys
    )


def from_the_last(paginate: Paginate) -> Paginate:
    """Dagster's own `paginate`, asked as of the end of the partitions if that is over."""

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


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80  # which browsers leave out
# A form, or a script of another page, can send other content types without asking; these only to
# its own server.
CONTENT_TYPES = ("application/json", "application/graphql")


@dataclass(frozen=True)
class RequestCheck:
    """ASGI middleware: HTTP and websocket requests are passed on to `app`, or refused with a
    sentence as plain text.

    `allowed_hosts` are served besides this machine's own names, each as `name` or `name:port`.
    """

    app: ASGIApp
    allowed_hosts: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] in ("http", "websocket"):
            hosts = own_hosts(scope["server"][1]) | {host.lower() for host in self.allowed_hosts}
            refusal = refusal_of(HTTPConnection(scope), hosts)
        await (refusal or self.app)(scope, receive, send)


def own_hosts(port: int) -> set[str]:
    """The values of the header Host by which this machine names its own port."""
    return {f"{name}:{port}" for name in LOOPBACK} | (set(LOOPBACK) if port == HTTP_PORT else set())


def refusal_of(request: HTTPConnection, hosts: Collection[str]) -> PlainTextResponse | None:
    """The response that refuses the request; None for one that may pass."""
    origins = {f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts}
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if host.lower() not in hosts:
        # Perhaps a name of an attacker's own, which he lets point to this machine.
        remedy = (
            "If that is your proxy or tunnel, add it to BACKFILL_ALLOWED_HOSTS and start `backfill"
            " up` again."
        )
        return _refusal(
            403,
            f"This request is addressed to {host or 'no host'}, which is no name of this server.",
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
            "A mutation is not taken from an address.",
            "Send it in the body of a POST.",
            Allow="POST",
        )
    content_type = request.headers.get("content-type")
    if (
        content_type is not None
        and content_type.partition(";")[0].strip().lower() not in CONTENT_TYPES
    ):
        return _refusal(
            415, f"The content type {content_type} is not taken.", f"Send {CONTENT_TYPES[0]}."
        )
    return None


def has_mutation(query: str) -> bool:
    """Whether a GraphQL document has a mutation. One that cannot be parsed has none, and Dagster
    says what is wrong with it.
    """
    try:
        definitions = parse(query).definitions
    except GraphQLError:
        return False
    return any(
        isinstance(each, OperationDefinitionNode) and each.operation == OperationType.MUTATION
        for each in definitions
    )


def _refusal(status: int, reason: str, remedy: str, **headers: str) -> PlainTextResponse:
    headers = {"X-Content-Type-Options": "nosniff", **headers}
    return PlainTextResponse(f"{reason} Nothing was done. {remedy}\n", status, headers)


class CheckedWebserver(DagsterWebserver):
    """Dagster's webserver, whose requests are checked and whose pages no other page may show in a
    frame.
    """

    def build_middleware(self) -> list[Middleware]:
        return [
            Middleware(RequestCheck, read_settings().allowed_hosts),
            *super().build_middleware(),
        ]

    def make_security_headers(self) -> dict[str, str]:
        return super().make_security_headers() | {"X-Frame-Options": "DENY"}


def check_requests() -> None:
    """Let Dagster's command serve `CheckedWebserver` in this process; it has no option for that."""
    app.DagsterWebserver = CheckedWebserver  # type: ignore[misc]


if __name__ == "__main__":
    check_requests()
    page_from_the_last_day()
    main()
