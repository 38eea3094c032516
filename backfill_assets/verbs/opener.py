"""The Spark session of a command that computes a few days itself."""

from collections.abc import Callable
from typing import Any

from backfill_assets.errors import NOTHING_CHANGED, UsageError
from backfill_assets.settings import executors_elsewhere
from backfill_assets.workspace import Workspace


def opener_of(workspace: Workspace) -> Callable[[], Any]:
    """Start Spark, and return a function that opens a session when it is needed.

    Raises UsageError if Spark's executors do not see folders of this machine.
    """
    settings = workspace.settings
    if executors_elsewhere(settings):
        raise UsageError(
            "Days are built in a folder of this machine, and Spark's executors are on others.",
            unchanged=NOTHING_CHANGED,
            next_step="Type this without BACKFILL_SPARK_MASTER and BACKFILL_SPARK_REMOTE.",
        )
    from backfill_assets.lake.spark.session import SHORT, opener

    conf = SHORT | settings.spark_conf
    return opener(settings.model_copy(update={"spark_conf": conf}), workspace.packages)
