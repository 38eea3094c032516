"""The code location: composition only."""

import os
import warnings
from collections.abc import Sequence

# Without it Dagster writes each event by itself; see event_log.py. It is read at every event, so it may be set here.
os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "1000")

from dagster import AssetSelection, Definitions, define_asset_job
from dagster_shared.utils.warnings import BetaWarning, PreviewWarning

# Partitioned checks are a preview in this Dagster; the tests hold what is used of them.
warnings.filterwarnings("ignore", category=PreviewWarning)
warnings.filterwarnings("ignore", category=BetaWarning)

from backfill_assets.datasets.outages.tables import TABLES  # noqa: E402
from backfill_assets.lake.session import SparkResource, spark_resource  # noqa: E402
from backfill_assets.orchestration.assets import RebuildOptions, asset_of, executor  # noqa: E402
from backfill_assets.orchestration.jobs import plan_jobs  # noqa: E402
from backfill_assets.orchestration.schedules import nightly_schedule  # noqa: E402
from backfill_assets.settings import Settings, settings  # noqa: E402
from backfill_assets.table.declaration import Table  # noqa: E402


def definitions_for(chosen: Settings, tables: Sequence[Table] = TABLES, spark: SparkResource | None = None) -> Definitions:
    """Everything Dagster sees, for these settings."""
    code = {table.name: table.version for table in tables}
    every_table = define_asset_job("rebuild", AssetSelection.all())
    return Definitions(
        assets=[asset_of(table, chosen, code) for table in tables],
        jobs=[every_table, *plan_jobs(chosen)],
        schedules=[nightly_schedule(chosen, lambda: [table.name for table in tables])],
        resources={"spark": spark or spark_resource(chosen), "options": RebuildOptions()},
        executor=executor,
    )


defs = definitions_for(settings())
