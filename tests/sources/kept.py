"""What is kept of a service that is asked, and what should be."""

from datetime import date, timedelta

from backfill_assets.sources.answers import Answers
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.open_meteo import OpenMeteo
from backfill_assets.sources.protocol import Delivery
from tests.sources.asker import CELLS
from tests.sources.weather_service import UNITS, value

FIRST = date(2019, 8, 15)
DAYS = [FIRST + timedelta(days=n) for n in range(20)]


def delivered(source: OpenMeteo, area: LandingArea) -> list[date]:
    return [day for day, each in source.delivered(area, DAYS).items() if isinstance(each, Delivery)]


def rows(source: OpenMeteo, area: LandingArea, day: date) -> set[tuple]:
    """What is kept of a day, as rows of the source."""
    answers = Answers(area, source.name)
    of_day = answers.stored(source.queries())[day]
    return set(map(tuple, source.rows([row for each in of_day for row in answers.read(each)])))


def expected(day: date) -> set[tuple]:
    return {(name, *cell, *(value(variable, *cell, day) for variable in UNITS)) for name, cell in CELLS.items()}
