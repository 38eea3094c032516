"""The bundled project of power outages. Commands use it if no other project is named."""

import backfill_assets
from backfill_assets.datasets.outages.agreements import CONSUMERS, RECONCILIATIONS
from backfill_assets.datasets.outages.sample import FIRST_DAY
from backfill_assets.datasets.outages.tables import TABLES

defs = backfill_assets.definitions(
    tables=TABLES, first_day=FIRST_DAY, reconciliations=RECONCILIATIONS, consumers=CONSUMERS
)
