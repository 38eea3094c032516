"""Asks for days in a process of its own: `python -m tests.sources.asker LAKE URL UNITS SECONDS WAY DAY...`.

The way `ask` is that of a step; `requests` sends one after the other without the lock that lets one process ask at a time.
"""

import sys
from pathlib import Path
from typing import Any

from backfill_assets.calendar import as_day
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.ask import ask
from backfill_assets.sources.asking import Asking, Patience
from backfill_assets.sources.open_meteo import OpenMeteo
from tests.sources.weather_service import UNITS

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
    area, patience = area_of(Path(lake), url), Patience(longest=2.0)
    if way == "ask":
        ask(source, area, [as_day(day) for day in days], patience)
    else:
        (query,) = source.queries()
        with Asking(source, area, patience) as asking:
            for day in days:
                asking(query, [as_day(day)])
