"""The tables of the outages, inputs before the tables that read them."""

from backfill_assets.datasets.outages.features import region_daily, region_history
from backfill_assets.datasets.outages.features_v2 import region_daily_v2
from backfill_assets.datasets.outages.lateness import late_arrivals
from backfill_assets.datasets.outages.raw import outage_events, rejected_lines
from backfill_assets.datasets.outages.staging import outage_updates, outages

TABLES = (
    rejected_lines,
    outage_events,
    outage_updates,
    outages,
    region_daily,
    region_daily_v2,
    region_history,
    late_arrivals,
)
