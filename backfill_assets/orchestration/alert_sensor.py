"""The sensor `backfill_alerts`: it tells people about incidents."""

from functools import partial

from dagster import DefaultSensorStatus, SensorDefinition, SensorEvaluationContext

from backfill_assets.dagster_client.names import own
from backfill_assets.errors import BackfillError
from backfill_assets.orchestration.local.unfinished import unfinished_runs
from backfill_assets.orchestration.pace import paced
from backfill_assets.verbs.alerts import send_alerts
from backfill_assets.verbs.report import sentences
from backfill_assets.workspace import Workspace

_EVERY_S = 30


def alert_sensor(workspace: Workspace) -> SensorDefinition:
    """The sensor that looks for incidents and sends them. It runs if BACKFILL_ALERTS is set."""

    def look(context: SensorEvaluationContext) -> str:
        runs = partial(unfinished_runs, context.instance, workspace.names)
        try:
            return sentences(send_alerts(workspace, runs=runs).lines())
        except (BackfillError, OSError) as error:
            return str(error)

    return SensorDefinition(
        name=own("alerts"),
        evaluation_fn=paced(look),
        minimum_interval_seconds=_EVERY_S,
        default_status=(
            DefaultSensorStatus.RUNNING
            if workspace.settings.alerts
            else DefaultSensorStatus.STOPPED
        ),
        description=(
            "Tells the URLs of BACKFILL_ALERTS which incidents are new, changed or over. `backfill"
            " alerts` lists them. No run waits for it."
        ),
    )
