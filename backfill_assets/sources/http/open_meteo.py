"""Weather by place and day, from Open-Meteo's archive API or a compatible service.

One request covers many places and days:
`latitude=38.5,38.75&longitude=-122,-121.5&start_date=...&end_date=...&daily=...`. The answer is a
list of objects in the order of the places. A request counts as one call per place and started two
weeks. Open-Meteo answers one request at a time and sends 429 without Retry-After beyond its limits
(open-meteo/open-meteo, issues 438, 439 and 1493). Recent weather that its models have not processed
is null.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from backfill_assets.sources.http.source import HttpSource, Query, Row
from backfill_assets.sources.protocol import uncompared

# The limits of the public service, for non-commercial use.
_FREE_LIMITS = ((600, 60.0), (5_000, 3_600.0), (10_000, 86_400.0))
_TWO_WEEKS = 14
# An answer is for the middle of the nearest cell of a model, half a degree away at most.
_NEAR_DEGREES = 1.0
Place = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class OpenMeteo(HttpSource):
    """Daily weather of `places`: a name with its latitude and longitude in degrees.

    variables  fewer than ten daily variables by Open-Meteo's names, each with its required unit
    grid       the spacing in degrees to which places are rounded. Places of one cell are requested
               once
    at_a_time  the most places in one request

    Rows have `place STRING, latitude DOUBLE, longitude DOUBLE`, as requested, and each variable as
    a DOUBLE. Key: day (in the zone of the project) and place. Every day has a row per place: a day
    is missing while a place has no value at all.
    """

    places: Mapping[str, Place]
    variables: Mapping[str, str]
    url: str = field(
        default="https://archive-api.open-meteo.com/v1/archive", compare=False, repr=False
    )
    limits: Sequence[tuple[int, float]] = uncompared(_FREE_LIMITS)
    at_once: int = uncompared(_TWO_WEEKS)
    grid: float = 0.25
    at_a_time: int = uncompared(100)

    @property
    def columns(self) -> str:
        return ", ".join(
            [
                "place STRING, latitude DOUBLE, longitude DOUBLE",
                *(f"{name} DOUBLE" for name in self.variables),
            ]
        )

    def queries(self) -> list[Query]:
        cells = sorted({self._cell(place) for place in self.places.values()})
        parts = [cells[n : n + self.at_a_time] for n in range(0, len(cells), self.at_a_time)]
        return [
            {
                "latitude": ",".join(f"{latitude:.10g}" for latitude, _ in part),
                "longitude": ",".join(f"{longitude:.10g}" for _, longitude in part),
                "daily": ",".join(self.variables),
                "timezone": "UTC",
            }
            for part in parts
        ]

    def queries_in(self, zone: str) -> list[Query]:
        return [{**query, "timezone": zone} for query in self.queries()]

    def of_days(self, first: date, last: date) -> Query:
        return {"start_date": first.isoformat(), "end_date": last.isoformat()}

    def units(self, query: Query, days: int) -> int:
        return len(_cells(query)) * math.ceil(days / _TWO_WEEKS)

    def parsed(self, query: Query, answer: Any, days: Sequence[date]) -> dict[date, list[Row]]:
        answers = answer if isinstance(answer, list) else [answer]
        cells = _cells(query)
        if len(answers) != len(cells):
            raise ValueError(f"it has {len(answers)} places instead of {len(cells)}")
        values = [self._values(cell, of_cell) for cell, of_cell in zip(cells, answers, strict=True)]
        return {
            day: [[*cell, *of_cell[day]] for cell, of_cell in zip(cells, values, strict=True)]
            for day in days
            if all(any(value is not None for value in of_cell.get(day, ())) for of_cell in values)
        }

    def _values(self, cell: Place, answer: Any) -> dict[date, list[float | None]]:
        """Return the values of the variables in one cell by day, in their order."""
        try:
            is_near = all(
                abs(answer[axis] - at) <= _NEAR_DEGREES
                for axis, at in zip(("latitude", "longitude"), cell, strict=True)
            )
            days = [date.fromisoformat(text) for text in answer["daily"]["time"]]
            units = {name: answer["daily_units"][name] for name in self.variables}
            columns = {name: answer["daily"][name] for name in self.variables}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"it does not have the expected form ({type(error).__name__}: {error})"
            ) from None
        if not is_near:
            raise ValueError(f"it is about another place than {cell}")
        if units != self.variables:
            raise ValueError(f"its units are {units} instead of {dict(self.variables)}")
        if len(set(days)) < len(days):
            raise ValueError("it has a day twice")
        for name, column in columns.items():
            if len(column) != len(days) or not all(_is_value(value) for value in column):
                raise ValueError(f"{name} does not have one number or null per day")
        return {day: [columns[name][n] for name in self.variables] for n, day in enumerate(days)}

    def rows(self, answered: Iterable[Row]) -> list[Row]:
        by_cell = {(row[0], row[1]): row[2:] for row in answered}
        cells = [(name, self._cell(place)) for name, place in self.places.items()]
        return [
            (name, *cell, *(v if v is None else float(v) for v in by_cell[cell]))
            for name, cell in cells
        ]

    def _cell(self, place: Place) -> Place:
        latitude, longitude = (
            round(round(degrees / self.grid) * self.grid, 6) for degrees in place
        )
        return latitude, longitude


def _cells(query: Query) -> list[Place]:
    latitudes, longitudes = (
        map(float, query[axis].split(",")) for axis in ("latitude", "longitude")
    )
    return list(zip(latitudes, longitudes, strict=True))


def _is_value(value: Any) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )
