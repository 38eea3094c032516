"""The bundled project with outages and weather.

Use it with `BACKFILL_PROJECT=backfill_assets.datasets.outages.with_weather`. The service gets no
request before a step builds days of external/weather.
"""

import backfill_assets
from backfill_assets.datasets.outages import tables, weather
from backfill_assets.datasets.outages.agreements import CONSUMERS, RECONCILIATIONS
from backfill_assets.datasets.outages.sample import FIRST_DAY

defs = backfill_assets.definitions(
    tables=[*tables.TABLES, *weather.TABLES],
    first_day=FIRST_DAY,
    reconciliations=RECONCILIATIONS,
    consumers=CONSUMERS,
)
