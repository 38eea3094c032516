"""The code location: every asset, job, schedule and sensor of a workspace."""

import os
import warnings

from dagster import BetaWarning, Definitions, PreviewWarning, define_asset_job

from backfill_assets.dagster_client.names import IO_MANAGER, OPTIONS, SPARK, own
from backfill_assets.orchestration.alert_sensor import alert_sensor
from backfill_assets.orchestration.assets import (
    asset_of,
    executor,
    live_assets,
    partitions_of,
    shadow_assets,
)
from backfill_assets.orchestration.io_manager import io_manager_of
from backfill_assets.orchestration.jobs import jobs_of
from backfill_assets.orchestration.local.implicit_job import run_own_assets_in
from backfill_assets.orchestration.other_assets import (
    archive_assets,
    late_reports,
)
from backfill_assets.orchestration.plan_jobs import PLAN_JOBS
from backfill_assets.orchestration.rebuild_sensors import (
    late_rows_sensor,
    source_changes_sensor,
)
from backfill_assets.orchestration.release_sensor import (
    REPORT_JOB,
    release_check,
    release_sensor,
    release_specs,
)
from backfill_assets.orchestration.report_days import REPORT_JOB as DAYS_JOB
from backfill_assets.orchestration.run import (
    RebuildOptions,
    SparkResource,
    for_each_run,
    spark_resource,
)
from backfill_assets.orchestration.schedules import (
    nightly_schedule,
    own_schedules,
    weekly_maintenance,
)
from backfill_assets.orchestration.shown_status import STATUS_JOB, source_specs, status_sensor
from backfill_assets.orchestration.verb_jobs import VERB_JOBS
from backfill_assets.verbs.materialized import asking_dagster
from backfill_assets.workspace import Workspace

# Otherwise Dagster writes each event in its own transaction (orchestration/local/event_log.py).
os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "1000")

# Partitioned checks are a preview in Dagster 1.13. Tests cover the parts in use.
warnings.filterwarnings("ignore", category=PreviewWarning)
warnings.filterwarnings("ignore", category=BetaWarning)

REBUILD = (
    "Builds all tables for the selected days, upstream first, in one run. Days that are up to date"
    " are not computed again unless `force` is set (resources: backfill_options: config). The"
    " job backfill_make_plan previews what would be built, and why."
)


def definitions_of(workspace: Workspace, spark: SparkResource | None = None) -> Definitions:
    """The Dagster definitions of a workspace.

    `spark` replaces the session that the settings describe.
    """
    run_own_assets_in(executor)
    workspace = asking_dagster(workspace)
    spark = spark or spark_resource(workspace.settings, workspace.packages)
    return Definitions(
        assets=[
            *(asset_of(table, workspace) for table in workspace.tables),
            *shadow_assets(workspace),
            *archive_assets(workspace),
            *source_specs(workspace.tables, partitions_of(workspace.calendar)),
            *release_specs(),
            *late_reports(workspace),
        ],
        asset_checks=[release_check(workspace)],
        jobs=[
            define_asset_job(
                own("rebuild"),
                live_assets(workspace.tables),
                description=REBUILD,
                # The launchpad opens with these options. Other options have their defaults.
                config={"resources": {OPTIONS: {"config": {"force": False, "reason": ""}}}},
                executor_def=executor,
            ),
            *jobs_of((*PLAN_JOBS, *VERB_JOBS, DAYS_JOB, STATUS_JOB, REPORT_JOB), workspace),
        ],
        schedules=[
            nightly_schedule(workspace),
            *own_schedules(workspace),
            weekly_maintenance(workspace.calendar.zone),
        ],
        sensors=[
            release_sensor(workspace),
            status_sensor(workspace),
            late_rows_sensor(workspace),
            source_changes_sensor(workspace),
            alert_sensor(workspace),
        ],
        resources={
            SPARK: for_each_run(spark),
            OPTIONS: RebuildOptions(),
            IO_MANAGER: io_manager_of(workspace),
        },
    )
