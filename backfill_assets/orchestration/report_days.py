"""The job `backfill_report_days`: report days that no run of Dagster built in live.

Commands launch it and do not wait for it. Its run reports the days as the ledger has them then, in
one batch of events for each table, and wipes the assets of ended shadows.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from backfill_assets.calendar import fixed_days
from backfill_assets.dagster_client.requests import REPORT, REPORT_STEP
from backfill_assets.errors import ServiceUnavailable
from backfill_assets.lake.ledger import BUILD_SCHEMA
from backfill_assets.orchestration.assets import asset_key
from backfill_assets.orchestration.jobs import VerbJob, VerbRun
from backfill_assets.orchestration.local.step_events import materialization_events
from backfill_assets.orchestration.report import materialization
from backfill_assets.orchestration.shown_status import source_keys
from backfill_assets.plan.request import option
from backfill_assets.reconcile.dagster_record import wipe_shadows


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The days to report."""

    days: Mapping[str, str] = option(
        dict, "The days of each table, such as 2019-09-01..2019-09-07."
    )


def _report(run: VerbRun, options: ReportOptions) -> None:
    """Report the accepted builds of these days, inputs first."""
    workspace = run.workspace
    named = {name: fixed_days(typed) for name, typed in options.days.items()}
    sources = source_keys(workspace.tables)
    count = 0
    for table in workspace.tables:
        if table.name not in named:
            continue
        # Dagster calls a day stale if an input has a later event with other rows. The builds are
        # read after it, so that an event that was not seen is later.
        pointer = run.context.instance.event_log_storage.get_maximum_record_id()
        days = {table.name: named[table.name]}
        accepted = workspace.lake.latest(days, BUILD_SCHEMA.names).accepted
        reported = [
            materialization(
                asset_key(table),
                table,
                accepted[partition],
                new=True,
                pointer=pointer,
                source=sources.get(table.name),
            )
            for partition in sorted(accepted)
        ]
        # Each event is stored when it is made.
        deque(materialization_events(run.context, reported), maxlen=0)
        count += len(reported)
    # Without a webserver, the next report does it.
    with suppress(ServiceUnavailable):
        wipe_shadows(run.dagster(), workspace.lake.root, workspace.names)
    run.show(f"{count} day(s) reported.", {"days": count})


REPORT_JOB = VerbJob(
    REPORT,
    REPORT_STEP,
    ReportOptions,
    _report,
    "Report days to Dagster as the ledger has them, after a publication, a rollback or a repair."
    " Builds nothing.",
)
