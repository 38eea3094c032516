"""The power outages as a project of its own: the code location that is loaded where no other is named."""

import backfill_assets
from backfill_assets.datasets.outages.sample import FIRST_DAY
from backfill_assets.datasets.outages.tables import TABLES

defs = backfill_assets.definitions(tables=TABLES, first_day=FIRST_DAY)
