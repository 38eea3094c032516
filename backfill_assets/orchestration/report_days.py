"""The job `backfill_report_days`: report days that no run of Dagster built in live.

Commands launch it and do not wait for it. Its run reports the days as the ledger has them then, in
one batch of events for each table, and wipes the assets of ended shadows.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from backfill_assets.calendar import fixed_days
from backfill_assets.dagster_client.requests import REPORT, REPORT_STEP
from backfill_assets.grouping import grouped
from backfill_assets.lake.history import Latest
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
    """Report the accepted builds of these days, inputs first. An audit has refused none of them."""
    workspace = run.workspace
    days = {name: fixed_days(typed) for name, typed in options.days.items()}
    latest = workspace.lake.latest(days, BUILD_SCHEMA.names) if days else Latest()
    right = grouped(latest.accepted.keys() - latest.refused())
    sources = source_keys(workspace.tables)
    for table in workspace.tables:
        # Dagster calls a day stale if an input has a later event with other rows.
        pointer = run.context.instance.event_log_storage.get_maximum_record_id()
        reported = [
            materialization(
                asset_key(table),
                table,
                latest.accepted[table.name, day],
                new=True,
                pointer=pointer,
                source=sources.get(table.name),
            )
            for day in sorted(right.get(table.name, ()))
        ]
        # Each event is stored when it is made.
        deque(materialization_events(run.context, reported), maxlen=0)
    wipe_shadows(run.dagster(), workspace.lake.root, workspace.names)
    count = sum(map(len, right.values()))
    run.show(f"{count} day(s) reported.", {"days": count})


REPORT_JOB = VerbJob(
    REPORT,
    REPORT_STEP,
    ReportOptions,
    _report,
    "Report days to Dagster as the ledger has them, after a publication, a rollback or a repair."
    " Builds nothing.",
)
