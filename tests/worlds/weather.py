"""A weather service on a port of this machine, and what is kept of its answers.

The service answers as Open-Meteo's archive does, counts its requests, and misbehaves on demand. Its
values follow from the place and the day. `python -m tests.worlds.weather LAKE URL UNITS SECONDS WAY
DAY...` asks for days in its own process: the way `ask` is the way of a step; `requests` sends one
request after another without the lock that lets one process ask at a time.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from random import Random
from threading import Event, Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from backfill_assets.calendar import as_day, between
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.http.budget import Moment
from backfill_assets.sources.http.client import RetryPolicy, fetch_days, rate_limited_client
from backfill_assets.sources.http.open_meteo import OpenMeteo
from backfill_assets.sources.http.source import AnswerStore
from backfill_assets.sources.protocol import Delivery
from tests.worlds.http_server import Request, http_server

UNITS = {"temperature_2m_max": "°C", "precipitation_sum": "mm"}


def value(name: str, latitude: float, longitude: float, day: date) -> float:
    """The service's value of a variable."""
    return round((latitude * 7 + longitude * 3 + day.toordinal() % 11 + len(name)) % 40, 1)


@dataclass
class WeatherService:
    """`faults` are what goes wrong with the next requests, one each. `newest`: later days are null.
    `has`: requests for other days are refused; of all, if not given. `delayed`: the most seconds
    that a request is on its way before it is counted. `log` has the time and the places of every
    request, `asked` its query; `held` is the first day of the one that is not answered before
    `release`.
    """

    faults: list[str] = field(default_factory=list)
    units: Mapping[str, str] = field(default_factory=lambda: UNITS)
    newest: date = date.max
    has: Sequence[date] | None = None
    delayed: float = 0.0
    limit: tuple[int, float] = (10**9, 1.0)
    log: list[tuple[float, int]] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    refused: int = 0
    held: str = ""
    holding: Event = field(default_factory=Event)
    release: Event = field(default_factory=Event)
    lock: Any = field(default_factory=Lock)
    random: Random = field(default_factory=lambda: Random(15))
    url: str = ""

    def count(self, query: dict[str, str]) -> bool:
        """Record a request. Return whether it is within the limit."""
        time.sleep(self.random.uniform(0, self.delayed))
        with self.lock:
            now, (units, seconds) = time.time(), self.limit
            self.asked.append(query)
            self.log.append((now, query["latitude"].count(",") + 1))
            within = sum(places for at, places in self.log if at > now - seconds) <= units
            self.refused += not within
            return within

    def may_ask(self, query: dict[str, str]) -> bool:
        return self.has is None or {
            *between(as_day(query["start_date"]), as_day(query["end_date"]))
        } <= {*self.has}

    def most(self, seconds: float) -> int:
        """The most places that were requested in any span of this many seconds."""
        return max(
            sum(places for at, places in self.log if end - seconds < at <= end)
            for end, _ in self.log
        )

    def days(self) -> list[tuple[str, str]]:
        """The first and the last day of each request, in order."""
        return [(query["start_date"], query["end_date"]) for query in self.asked]

    def answer(self, query: dict[str, str], fault: str) -> Any:
        names = query["daily"].split(",")
        days = [*between(as_day(query["start_date"]), as_day(query["end_date"]))]
        if fault == "a missing day":
            days = days[:-1]
        places = zip(
            map(float, query["latitude"].split(",")),
            map(float, query["longitude"].split(",")),
            strict=True,
        )
        answers: list[dict[str, Any]] = [
            {
                "latitude": latitude + (5 if fault == "another place" else 0.03),
                "longitude": longitude - 0.04,
                "generationtime_ms": time.perf_counter(),
                "daily_units": {
                    "time": "iso8601",
                    **{
                        name: "°F" if fault == "other units" else self.units[name] for name in names
                    },
                },
                "daily": (
                    {"time": [str(day) for day in days]}
                    | {
                        name: [
                            value(name, latitude, longitude, d) if d <= self.newest else None
                            for d in days
                        ]
                        for name in names
                    }
                ),
            }
            for latitude, longitude in places
        ]
        if fault == "a place less":
            answers.pop()
        if fault == "text for a number":
            answers[0]["daily"][names[0]][0] = "warm"
        if fault == "a value less":
            answers[0]["daily"][names[0]].pop()
        if fault == "no days":
            del answers[0]["daily"]
        if fault == "no column":
            answers[0]["daily"][names[0]] = None
        if fault == "400 digits":
            answers[0]["daily"][names[0]][0] = 10**400
        if fault == "no place":
            answers[0]["latitude"] = float("nan")
        if fault == "a day twice":
            answers[0]["daily"]["time"][-1] = answers[0]["daily"]["time"][0]
        return answers if len(answers) != 1 else answers[0]


def respond_for(service: WeatherService) -> Callable[[Request], None]:
    def respond(request: Request) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        within = service.count(query)
        with service.lock:
            fault = service.faults.pop(0) if service.faults else ""
        if fault == "held":
            service.held = query["start_date"]
            service.holding.set()
            service.release.wait(30)
        later = {"Retry-After": fault[4:]} if fault[4:] else {}
        if not within or fault.startswith("429"):
            return request.answer(429, b'{"error": true, "reason": "limit exceeded"}', **later)
        is_wrong = fault.startswith(("5", "4")) and fault != "400 digits"
        if is_wrong or not service.may_ask(query):
            status = int(fault[:3] or 400)
            return request.answer(status, b'{"error": true, "reason": "Out of range"}', **later)
        body = json.dumps(service.answer(query, fault)).encode()
        if fault == "cut off":
            send(request, body, body[: len(body) // 2])
            return request.cut()
        if fault == "slow":  # until the asker has had enough
            return send(request, body, *(body[n : n + 1] for n in range(len(body))))
        if fault == "too deep":
            body = b"[" * 100_000
        if fault == "not JSON":
            body = body[:20]  # within the first place, before what each answer has of its own
        return request.answer(200, body)

    return respond


def send(request: Request, body: bytes, *parts: bytes) -> None:
    """Send these parts of a body one after another."""
    request.send_response(200)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    for part in parts:
        request.wfile.write(part)
        request.wfile.flush()
        time.sleep(0.02)


@contextmanager
def running(faults: Sequence[str] = (), **given: Any) -> Iterator[WeatherService]:
    """A service while the block runs."""
    service = WeatherService([*faults], **given)
    with http_server(respond_for(service)) as address:
        service.url = f"{address}/v1/archive"
        try:
            yield service
        finally:
            service.release.set()


@dataclass
class Clock:
    """`now` is the passing time. `set_by`: the seconds by which the machine's time was set forward.

    `boot`: its last start.
    """

    now: float = 1_566_000_000.0
    set_by: float = 0.0
    boot: str = "a start"
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> Moment:
        return Moment(self.boot, self.now - 1_000_000.0, self.now + self.set_by)

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += seconds


FIRST = date(2019, 8, 15)
DAYS = [FIRST + timedelta(days=n) for n in range(20)]


def delivered(source: OpenMeteo, area: LandingArea) -> list[date]:
    return [day for day, each in source.delivered(area, DAYS).items() if isinstance(each, Delivery)]


def rows(source: OpenMeteo, area: LandingArea, day: date) -> set[tuple]:
    """The stored rows of a day, as rows of the source."""
    answers = AnswerStore(area, source.name)
    of_day = answers.stored(source.queries())[day]
    return set(map(tuple, source.rows([row for each in of_day for row in answers.read(each)])))


def expected(day: date) -> set[tuple]:
    return {
        (name, *cell, *(value(variable, *cell, day) for variable in UNITS))
        for name, cell in CELLS.items()
    }


PLACES = {"Acampo": (38.19, -121.16), "Lodi": (38.13, -121.27), "Eureka": (40.8, -124.16)}
# Acampo and Lodi are in one cell.
CELLS = {"Acampo": (38.25, -121.25), "Lodi": (38.25, -121.25), "Eureka": (40.75, -124.25)}


def service(limits: tuple[tuple[int, float], ...], **given: Any) -> OpenMeteo:
    return OpenMeteo("weather", places=PLACES, variables=UNITS, limits=limits, **given)


def area_of(lake: Path, url: str) -> LandingArea:
    return LandingArea(lake / "landing", lake=str(lake), urls={"weather": url})


if __name__ == "__main__":
    lake, url, units, seconds, way, *days = sys.argv[1:]
    source = service(((int(units), float(seconds)),), at_once=1)
    area = area_of(Path(lake), url)
    policy = RetryPolicy(longest=2.0)
    if way == "ask":
        fetch_days(source, area, [as_day(day) for day in days], policy)
    else:
        (query,) = source.queries()
        with rate_limited_client(source, area, policy) as client:
            for day in days:
                client.request(query, [as_day(day)])
