"""The case reports as a project.

Use it with `BACKFILL_PROJECT=backfill_assets.datasets.case_reports.project`.
"""

import backfill_assets
from backfill_assets.datasets.case_reports.sample import FIRST_DAY, LAST_DAY
from backfill_assets.datasets.case_reports.tables import TABLES

defs = backfill_assets.definitions(tables=TABLES, first_day=FIRST_DAY, last_day=LAST_DAY)
