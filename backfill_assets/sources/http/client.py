"""Request the missing days of a service, within its budget, and store the answers.

On a local disk one process asks at a time; another process that needs the same days finds them
stored. Each answer is stored at once, so a killed process loses at most one answer, and finished
days do not wait for other days.

A used-up budget or a service that is down is not a fault of the day: a later run asks again. If a
request for several days is refused, its first, last and other days are requested separately,
because a service may not have all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from backfill_assets.calendar import consecutive
from backfill_assets.errors import Conflict, NotFetchedYet, SourceError
from backfill_assets.lake.locks import writing
from backfill_assets.lake.storage import ANSWERS, Paths
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.http.budget import Budget, Limit, Moment, Slot, current_moment
from backfill_assets.sources.http.source import AnswerStore, HttpSource, Query, Row

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
# With these answers, a service may refuse a single day that it does not have among several.
_OUT_OF_RANGE = (400, 404, 422)
# The longest pause that is obeyed. A longer one may be a mistake. A request a week later does no
# harm.
_LONGEST_PAUSE_S = 7 * 86_400.0
# After this many refusals in a row, the reason is not the requested days.
_MAX_REFUSALS = 4


def fetch_days(
    source: HttpSource, area: LandingArea, days: Sequence[date], policy: RetryPolicy | None = None
) -> dict[date, SourceError]:
    """Request the `days` that lack answers, and store the answers.

    Returns the error of each day that still lacks one: NotFetchedYet, or SourceError for a wrong
    answer.
    """
    answers = AnswerStore(area, source.name)
    queries = source.queries_in(area.zone)
    errors = dict[date, SourceError]()
    missing = [day for day in days if day not in answers.stored(queries)]
    batches = [
        span[n : n + source.at_once]
        for span in consecutive(missing)
        for n in range(0, len(span), source.at_once)
    ]
    requests = [(query, batch) for batch in batches for query in queries]
    refusals = 0
    with rate_limited_client(source, area, policy or RetryPolicy()) as client:
        while requests:
            query, batch = requests.pop(0)
            try:
                with writing(area.lake, f"{ANSWERS}/{source.name}"):
                    unanswered = [day for day in batch if day not in answers.stored([query])]
                    rows_by_day = client.request(query, unanswered) if unanswered else {}
                    for day, rows in rows_by_day.items():
                        answers.write(query, day, rows)
            except (NotFetchedYet, Conflict) as error:  # no other request can be sent now either
                waiting = NotFetchedYet(
                    error.what, unchanged=error.unchanged, next_step=error.next_step
                )
                stored = answers.stored(queries)
                return {**{day: waiting for day in missing if day not in stored}, **errors}
            except SourceError as error:
                refusals += 1
                if (
                    isinstance(error, RequestRefused)
                    and len(unanswered) > 1
                    and refusals < _MAX_REFUSALS
                ):
                    parts = (unanswered[:1], unanswered[-1:], unanswered[1:-1])
                    requests[:0] = [(query, part) for part in parts if part]
                else:
                    errors |= dict.fromkeys(unanswered, error)
            else:
                refusals = 0 if rows_by_day else refusals
                for day in unanswered:
                    if day not in rows_by_day:
                        no_data = NotFetchedYet(f"{source.name} has no data for {day} yet")
                        errors.setdefault(day, no_data)
    return errors


@dataclass(frozen=True)
class RetryPolicy:
    """The limits of waiting for an answer.

    attempts      how often a request is sent
    pause         seconds before the second attempt, doubled for each further one, unless the
                  service names a time
    longest_wait  the most seconds that a run waits for its budget or for the service. After that,
                  the days wait for a later run
    silence       seconds without a byte after which a request is given up
    longest       the most seconds that a request may take
    largest       the most bytes of an answer, because an endless one would fill the memory
    """

    attempts: int = 4
    pause: float = 1.0
    longest_wait: float = 120.0
    silence: float = 20.0
    longest: float = 60.0
    largest: int = 64 * 2**20
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    clock: Callable[[], Moment] = field(default=current_moment, repr=False)


class RequestRefused(SourceError):
    """The service refuses the requested days. It may accept fewer days."""


class RetryableError(Exception):
    """A request that may be sent again. `last_error` is raised after the last attempt."""

    def __init__(self, last_error: SourceError) -> None:
        super().__init__(str(last_error))
        self.last_error = last_error


def budget_of(source: HttpSource, area: LandingArea, policy: RetryPolicy) -> Budget:
    """The budget of a service, shared by all processes."""
    paths = Paths(area.lake)
    address = f"{paths.answers(source.name)}/_budget.sqlite"
    path = Path(address) if paths.is_local else address
    limits = [Limit(*limit) for limit in source.limits]
    return Budget(path, limits, policy.longest, policy.clock)


@contextmanager
def rate_limited_client(
    source: HttpSource, area: LandingArea, policy: RetryPolicy
) -> Iterator[RateLimitedClient]:
    """Provide a client of the service within the block."""
    budget = budget_of(source, area, policy)
    with httpx.Client(timeout=policy.silence) as client:
        yield RateLimitedClient(source, area, policy, budget, client)


@dataclass(frozen=True)
class RateLimitedClient:
    """A client that sends requests within the budget of a service, with retries."""

    source: HttpSource
    area: LandingArea
    policy: RetryPolicy
    budget: Budget
    client: httpx.Client

    def request(self, query: Query, days: Sequence[date]) -> Mapping[date, Sequence[Row]]:
        """Return the rows of `days` in the service's answer.

        Raises NotFetchedYet if the service cannot be reached now, and SourceError for a wrong
        answer.
        """
        policy = self.policy
        retrying = Retrying(
            retry=retry_if_exception_type(RetryableError),
            stop=stop_after_attempt(policy.attempts),
            wait=wait_exponential(policy.pause, max=policy.longest_wait),
            sleep=policy.sleep,
            reraise=True,
        )
        try:
            return retrying(self._request_once, query, days)
        except RetryableError as error:
            raise error.last_error from None

    def _request_once(self, query: Query, days: Sequence[date]) -> Mapping[date, Sequence[Row]]:
        source = self.source
        about = f"{source.name} for {days[0]}..{days[-1]}"
        slot = self._slot(source.units(query, (days[-1] - days[0]).days + 1))
        try:
            response = self._sent({**query, **source.of_days(days[0], days[-1])})
        except httpx.RequestError as error:
            # The request may have reached the service, so its slot stays as it is.
            raise RetryableError(
                NotFetchedYet(f"{about}: no complete answer came ({type(error).__name__}: {error})")
            ) from error
        with suppress(NotFetchedYet):  # without this record, the slot only counts for longer
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
        except Exception as error:  # an answer of unknown form may raise any error
            name = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            raise RetryableError(
                SourceError(f"{about} cannot be used: the answer is wrong: {name}{error}")
            ) from error

    def _slot(self, units: int) -> Slot:
        """Wait until a request may be sent. Raises NotFetchedYet if the wait is too long."""
        name = self.source.name
        try:
            while (slot := self.budget.take(units)).wait > 0:
                if slot.wait > self.policy.longest_wait:
                    until = datetime.fromtimestamp(self.policy.clock().wall + slot.wait, UTC)
                    raise NotFetchedYet(
                        f"{name} gets no request before {until:%Y-%m-%d %H:%M:%S} UTC: {slot.why}"
                    )
                self.policy.sleep(slot.wait)
        except ValueError as error:
            raise SourceError(f"{name} cannot be read: {error}") from None
        return slot

    def _sent(self, params: Mapping[str, Any]) -> httpx.Response:
        """Return the response with its complete body, within the time limit of a request."""
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
        for name in ("Content-Encoding", "Content-Length"):  # they describe the packed body
            response.headers.pop(name, None)
        return httpx.Response(response.status_code, content=bytes(body), headers=response.headers)

    def _pause(self, response: httpx.Response) -> None:
        """Make all processes wait as long as the service asks.

        After a 429 without a time, the wait is the shortest span of a limit.
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
