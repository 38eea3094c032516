"""Request the missing days of a service, within its budget, and store the answers.

On a local disk one process asks at a time; another that needs the same days finds them stored. Each
answer is stored at once, so a killed process loses at most one, and finished days do not wait for
others.

A used-up budget or a service that is down is not a fault of the day: a later run asks again. If a
request for several days is refused, its first, last and other days are requested separately,
because a service may not have all of them.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from backfill_assets.calendar import consecutive
from backfill_assets.errors import Conflict, NotFetchedYet, SourceError
from backfill_assets.lake.storage import ANSWERS, Paths, writing
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.http.budget import Budget, Limit, Moment, Slot, current_moment
from backfill_assets.sources.http.source import AnswerStore, HttpSource, Query, Row

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
# What a service is asked for may be what it refuses: one of the days may be outside of what it has.
_OUT_OF_RANGE = (400, 404, 422)
# Whatever a service says: so long it may be a mistake, and who asks again a week later does no
# harm.
_LONGEST_PAUSE_S = 7 * 86_400.0
# If so many requests are refused and nothing was answered between them, it is not the days.
_MAX_REFUSALS = 4


def fetch_days(
    source: HttpSource, area: LandingArea, days: Sequence[date], policy: RetryPolicy | None = None
) -> dict[date, SourceError]:
    """Request those of `days` that lack answers, and store what arrives.

    Returns the error of each day that still lacks one: NotFetchedYet, or SourceError for a wrong
    answer.
    """
    answers = AnswerStore(area, source.name)
    why = dict[date, SourceError]()
    missing = [day for day in days if day not in answers.stored(source.queries())]
    batches = [
        span[n : n + source.at_once]
        for span in consecutive(missing)
        for n in range(0, len(span), source.at_once)
    ]
    left = [(query, batch) for batch in batches for query in source.queries()]
    refusals = 0
    with RateLimitedClient(source, area, policy or RetryPolicy()) as asking:
        while left:
            query, batch = left.pop(0)
            try:
                with writing(area.lake, f"{ANSWERS}/{source.name}"):
                    unanswered = [day for day in batch if day not in answers.stored([query])]
                    said = asking(query, unanswered) if unanswered else {}
                    for day, rows in said.items():
                        answers.keep(query, day, rows)
            except (NotFetchedYet, Conflict) as error:  # nor can anything else be asked for now
                waiting = [day for day in missing if day not in answers.stored(source.queries())]
                return {**dict.fromkeys(waiting, _as_waiting(error)), **why}
            except SourceError as error:
                refusals += 1
                if (
                    isinstance(error, RequestRefused)
                    and len(unanswered) > 1
                    and refusals < _MAX_REFUSALS
                ):
                    left[:0] = [
                        (query, part)
                        for part in (unanswered[:1], unanswered[-1:], unanswered[1:-1])
                        if part
                    ]
                else:
                    why |= dict.fromkeys(unanswered, error)
            else:
                refusals = 0 if said else refusals
                why |= {
                    d: NotFetchedYet(f"{source.name} has no data for {d} yet")
                    for d in unanswered
                    if d not in said and d not in why
                }
    return why


def _as_waiting(error: NotFetchedYet | Conflict) -> NotFetchedYet:
    return NotFetchedYet(error.what, unchanged=error.unchanged, next_step=error.next_step)


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait for an answer.

    attempts      how often a request is sent
    between       seconds before the second attempt, doubled for each further one, unless the
                  service names a time
    longest_wait  the most seconds that a run waits for its budget or for the service. After that,
                  the days wait for a later run
    silence       seconds without a byte after which a request is given up
    longest       the most seconds that a request may take
    largest       the most bytes of an answer, because an endless one would fill the memory
    """

    attempts: int = 4
    between: float = 1.0
    longest_wait: float = 120.0
    silence: float = 20.0
    longest: float = 60.0
    largest: int = 64 * 2**20
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    clock: Callable[[], Moment] = field(default=current_moment, repr=False)


class RequestRefused(SourceError):
    """The service refuses the requested days. It may accept fewer days."""


class RetryableError(Exception):
    """A request that may be sent again. `given_up` is the error after the last attempt."""

    def __init__(self, given_up: SourceError) -> None:
        super().__init__(str(given_up))
        self.given_up = given_up


@dataclass(frozen=True)
class RateLimitedClient:
    """A client that sends requests within the budget of a service, and retries them."""

    source: HttpSource
    area: LandingArea
    policy: RetryPolicy
    client: httpx.Client = field(init=False)
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        paths = Paths(self.area.lake)
        name = self.source.name
        policy = self.policy
        # An object store locks nothing: one budget a home.
        elsewhere = self.area.cache or Path(tempfile.gettempdir())
        place = (
            Path(paths.answers(name), "_budget.sqlite")
            if paths.is_local
            else elsewhere / f"{name}.sqlite"
        )
        budget = Budget(
            place, [Limit(*limit) for limit in self.source.limits], policy.longest, policy.clock
        )
        object.__setattr__(self, "budget", budget)
        object.__setattr__(self, "client", httpx.Client(timeout=policy.silence))

    def __enter__(self) -> RateLimitedClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def __call__(self, query: Query, days: Sequence[date]) -> Mapping[date, Sequence[Row]]:
        """Return the rows of `days` in the service's answer.

        Raises NotFetchedYet if it cannot be asked now, SourceError if its answer is wrong.
        """
        policy = self.policy
        again = Retrying(
            retry=retry_if_exception_type(RetryableError),
            stop=stop_after_attempt(policy.attempts),
            wait=wait_exponential(policy.between, max=policy.longest_wait),
            sleep=policy.sleep,
            reraise=True,
        )
        try:
            return again(self._once, query, days)
        except RetryableError as error:
            raise error.given_up from None

    def _once(self, query: Query, days: Sequence[date]) -> Mapping[date, Sequence[Row]]:
        source = self.source
        about = f"{self.source.name} for {days[0]}..{days[-1]}"
        slot = self._slot(source.units(query, (days[-1] - days[0]).days + 1))
        try:
            response = self._sent({**query, **source.of_days(days[0], days[-1])})
        except (
            httpx.RequestError
        ) as error:  # whether the service had it is not known: the slot stays as it is
            raise RetryableError(
                NotFetchedYet(f"{about}: no complete answer came ({type(error).__name__}: {error})")
            ) from error
        with suppress(NotFetchedYet):  # the answer is there; its slot counts for longer then
            self.budget.answered(slot)
        if response.status_code == _TOO_MANY_REQUESTS or response.status_code >= _SERVER_ERROR:
            self._pause(response)
            raise RetryableError(
                NotFetchedYet(
                    f"{about}: the service answered {response.status_code} {response.reason_phrase}"
                )
            )
        if response.status_code != httpx.codes.OK:
            refused = RequestRefused if response.status_code in _OUT_OF_RANGE else SourceError
            raise refused(
                f"{about} is not available: the service answered {response.status_code}:"
                f" {response.text[:300]}"
            )
        try:
            return source.parsed(query, json.loads(response.content), days)
        except (
            Exception
        ) as error:  # of an answer of a form that nobody thought of, anything may be raised
            what = (
                str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            )
            raise RetryableError(
                SourceError(f"{about} cannot be used: the answer is wrong: {what}")
            ) from error

    def _slot(self, units: int) -> Slot:
        """Wait until a request may be sent. Raises NotFetchedYet if that takes too long."""
        while (slot := self._taken(units)).wait > 0:
            if slot.wait > self.policy.longest_wait:
                until = datetime.fromtimestamp(self.policy.clock().wall + slot.wait, UTC)
                why = (
                    f"its budget of {slot.limit} is used up"
                    if slot.limit
                    else "the service asked to wait"
                )
                raise NotFetchedYet(
                    f"{self.source.name} is not asked before {until:%Y-%m-%d %H:%M:%S} UTC: {why}"
                )
            self.policy.sleep(slot.wait)
        return slot

    def _taken(self, units: int) -> Slot:
        try:
            return self.budget.take(units)
        except ValueError as error:
            raise SourceError(f"{self.source.name} cannot be asked: {error}") from None

    def _sent(self, params: Mapping[str, Any]) -> httpx.Response:
        """Return the response with its complete body, within the time that a request may take."""
        url = httpx.URL(self.area.urls.get(self.source.name, self.source.url))
        started = time.monotonic()
        with self.client.stream("GET", url.copy_merge_params(params)) as response:
            body = bytearray()
            for part in response.iter_bytes():
                body += part
                if len(body) > self.policy.largest:
                    raise httpx.DecodingError(f"more than {self.policy.largest:,} bytes")
                if time.monotonic() - started > self.policy.longest:
                    raise httpx.ReadTimeout(f"not complete after {self.policy.longest:g} s")
        return httpx.Response(
            response.status_code,
            content=bytes(body),
            headers=_headers_of_unpacked(response.headers),
        )

    def _pause(self, response: httpx.Response) -> None:
        """Make all processes wait as long as the service asks.

        After a 429 without a time, that is the shortest span of a limit.
        """
        after = seconds_after(response.headers.get("Retry-After", ""), self.policy.clock().wall)
        if after is None and response.status_code == _TOO_MANY_REQUESTS:
            after = min(seconds for _, seconds in self.source.limits)
        if after:
            self.budget.pause(after)


def seconds_after(value: str, now: float) -> float | None:
    """Return the seconds in a Retry-After header, a number or a time, at most a week.

    Returns None for any other value.
    """
    try:
        seconds = (
            float(value)
            if value.strip().isdigit()
            else parsedate_to_datetime(value).timestamp() - now
        )
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), _LONGEST_PAUSE_S)


def _headers_of_unpacked(headers: httpx.Headers) -> httpx.Headers:
    """Return the headers without those about the packed body."""
    return httpx.Headers(
        [
            (n, v)
            for n, v in headers.items()
            if n.lower() not in ("content-encoding", "content-length")
        ]
    )
