"""The answer of a webserver to a request: its data, or the error that the user gets."""

from collections.abc import Mapping
from typing import Any

import httpx

from backfill_assets.errors import AnswerLost, ServiceUnavailable, UsageError

NOT_LAUNCHED = "Nothing was launched by this request."
# The code server is being restarted: the error says nothing about the code.
UNREACHABLE = ("DagsterUserCodeUnreachableError", "DagsterUserCodeUnreachableTimeoutError")


def data_of(response: httpx.Response, url: str) -> dict[str, Any]:
    """The data of a GraphQL response from `url`. Raises as `Dagster.ask`."""
    answer = body_of(response)
    if not answer and response.status_code in _REFUSED:
        raise _of_a_proxy(response, url)
    if not answer:
        raise AnswerLost(
            f"{url} answers (HTTP {response.status_code}), but not as a Dagster webserver.",
            unchanged="It is not known whether the request was carried out.",
            next_step="Correct BACKFILL_DAGSTER_URL.",
        )
    # Unknown days come back as HTTP 500 with the reason in the body.
    if answer.get("errors"):
        messages = "; ".join(str(error.get("message")) for error in answer["errors"])
        _refuse_unreachable(messages)
        if not _OF_A_DATABASE.isdisjoint(map(_class_of, answer["errors"])):
            raise AnswerLost(
                f"Dagster's database does not answer: {messages}.",
                unchanged="It is not known whether the request was carried out.",
                next_step="See `backfill list`.",
            )
        raise UsageError(f"Dagster refuses: {messages}.", unchanged=NOT_LAUNCHED)
    return dict(answer["data"])


def refuse_login(response: httpx.Response, url: str) -> None:
    """Raise ServiceUnavailable if a proxy before `url` answered with a redirect or a page."""
    if response.is_redirect or (response.is_success and _kind_of(response) == "text/html"):
        raise _of_a_proxy(response, url)


def _of_a_proxy(response: httpx.Response, url: str) -> ServiceUnavailable:
    """The error for an answer by a proxy: the webserver did not get the request."""
    return ServiceUnavailable(
        f"{url} answers with {_shown(response)}, not as a Dagster webserver.",
        unchanged=NOT_LAUNCHED,
        next_step=(
            "If a proxy there asks for a login, set BACKFILL_DAGSTER_TOKEN to a token that"
            " it accepts; else correct BACKFILL_DAGSTER_URL."
        ),
    )


def body_of(response: httpx.Response) -> dict[str, Any]:
    """The body of a GraphQL response, with its data or its errors. Empty for any other body."""
    try:
        body = response.json()
    except ValueError:
        return {}
    if not isinstance(body, dict):
        return {}
    errors = body.get("errors") or []
    are_errors = isinstance(errors, list) and all(isinstance(error, dict) for error in errors)
    return dict(body) if are_errors and (errors or isinstance(body.get("data"), dict)) else {}


# The classes of errors that Dagster raises while its database is away or locked.
_OF_A_DATABASE = frozenset(
    {
        "DagsterPostgresException",
        "DatabaseError",
        "DBAPIError",
        "InterfaceError",
        "OperationalError",
        "TimeoutError",
    }
)


def _class_of(error: Mapping[str, Any]) -> str:
    """The class of an error that Dagster raised. "" if its request was not valid."""
    info = (error.get("extensions") or {}).get("errorInfo") or {}
    return str(info.get("cls_name", ""))


def _kind_of(response: httpx.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0]


_REFUSED = (401, 403, 407)
_SHOWN_CHARACTERS = 200


def _shown(response: httpx.Response) -> str:
    """The answer of a proxy, without query parameters, which may hold secrets."""
    if response.has_redirect_location:
        location = response.url.join(response.headers["location"])
        return f"a redirect to {location.copy_with(query=None, fragment=None, userinfo=b'')}"
    kind = _kind_of(response)
    if kind == "text/html":
        return f"a web page (HTTP {response.status_code})"
    text = response.text.strip() if kind == "text/plain" else ""
    return f"HTTP {response.status_code}" + (f" ({text[:_SHOWN_CHARACTERS]})" if text else "")


def _refuse_unreachable(message: str) -> None:
    """Raise ServiceUnavailable if Dagster's message says that its code server does not answer."""
    # A selection of assets that cannot be resolved gives the reason only in its message.
    if any(name in message for name in UNREACHABLE):
        raise ServiceUnavailable(
            "The code server of Dagster does not answer.",
            unchanged=NOT_LAUNCHED,
            next_step="Wait for it to start, or see `backfill doctor`.",
        )


def payload(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a request.

    Raises UsageError or AnswerLost for an error type, and ServiceUnavailable if the code server
    does not answer.
    """
    kind = str(answer.get("__typename", ""))
    if kind == "PythonError":
        # A locked database, or a code location that is being loaded: the request may be valid.
        raise AnswerLost(
            f"Dagster failed to answer: {str(answer.get('message')).strip()}.",
            unchanged="It is not known whether the request was carried out.",
            next_step="See `backfill list`.",
        )
    if kind.endswith(("Error", "Invalid", "Conflict", "Failure")):
        message = (
            answer.get("message")
            or answer.get("errors")
            or {k: v for k, v in answer.items() if k != "__typename"}
        )
        _refuse_unreachable(str(message))
        raise UsageError(
            f"Dagster refuses ({kind}): {str(message).strip()}.",
            unchanged=NOT_LAUNCHED,
        )
    return dict(answer)
