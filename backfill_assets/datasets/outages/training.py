"""The outages with training examples and models.

Use it with `BACKFILL_PROJECT=backfill_assets.datasets.outages.training`.
"""

import backfill_assets
from backfill_assets.datasets.outages.agreements import CONSUMERS, RECONCILIATIONS
from backfill_assets.datasets.outages.restoration_examples import restoration_examples
from backfill_assets.datasets.outages.restoration_time import restoration_time
from backfill_assets.datasets.outages.sample import FIRST_DAY
from backfill_assets.datasets.outages.tables import TABLES

defs = backfill_assets.definitions(
    tables=[*TABLES, restoration_examples, restoration_time],
    first_day=FIRST_DAY,
    reconciliations=RECONCILIATIONS,
    consumers=CONSUMERS,
)
