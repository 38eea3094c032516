"""Launch a chunk exactly once, even if Dagster's answer is lost or the command is killed.

Each request is recorded in the lake before it is sent. The run has the request's name as a tag. If
the answer was lost, the run is looked up by that name. It is requested again only if Dagster does
not know the name after the time in which every request is processed.
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import (
    TIMEOUT_S,
    Dagster,
    Launched,
    LoadedTable,
    StepFailure,
)
from backfill_assets.dagster_client.names import shadow_asset, step_of
from backfill_assets.dagster_client.requests import reload
from backfill_assets.errors import AnswerLost, ServiceUnavailable, UsageError
from backfill_assets.lake.storage import Paths, uri_of
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import REQUESTED, Plans


def refuse_other_servers(
    loaded: Mapping[str, LoadedTable], names: Collection[str], root: str, url: str
) -> None:
    """Raise UsageError if the webserver has another lake than `root`, or lacks tables."""
    paths = Paths(root)
    # A table elsewhere may have been adopted after the servers were started.
    here = {name: f"{root}/{name}" for name in loaded}
    in_lake = {name: uri_of(folder) for name, folder in here.items() if paths.table(name) == folder}
    others = [
        loaded[name].uri for name, uri in in_lake.items() if loaded[name].uri not in ("", uri)
    ]
    if others:
        raise UsageError(
            f"The servers at {url} work on another lake: there, a table is at {others[0]}, and "
            f"the lake of this command is {root}.",
            unchanged="Nothing was launched.",
            next_step=(
                "Set BACKFILL_HOME and BACKFILL_LAKE alike for both, or BACKFILL_DAGSTER_URL "
                "to the servers of this lake."
            ),
        )
    if lacking := tables_lacking(loaded, names):
        raise UsageError(
            f"The servers at {url} {lacking}.",
            unchanged="Nothing was launched.",
            next_step=f"{WAY_OUT}. Then type the same command again.",
        )


WAY_OUT = (
    "After an edit, `backfill reload`. Else give both the same project (BACKFILL_PROJECT, or the"
    " folder they are started in): `backfill down`, then `backfill up`"
)


def tables_lacking(loaded: Collection[str], names: Collection[str]) -> str:
    """Say which tables of `names` the webserver has not loaded; "" if it has all of them."""
    lacking = [name for name in names if name not in loaded]
    if not lacking:
        return ""
    return (
        f"have no table {', '.join(lacking)}: they have another project loaded than this command,"
        " or older code"
    )


# A request is processed within the time that this client waits for its answer, or never.
SETTLED_AFTER = timedelta(seconds=TIMEOUT_S + 15)
LAUNCH_POLL_S = 1.0
# In the queue, nightly runs and single runs from the UI go before the runs of plans.
_PRIORITY = "-10"
# Dagster's tag on a run that was interrupted because its servers ended. Its step counts as failed.
INTERRUPTED = {"key": "dagster/failure_reason", "value": "UNEXPECTED_TERMINATION"}
_STEP_ENDED = frozenset({"SUCCESS", "FAILURE", "SKIPPED"})


def utc_now() -> datetime:
    return datetime.now(UTC)


def running_chunks(dagster: Dagster, plan: Plan) -> dict[int, Launched]:
    """The unfinished launches of a plan, by the number of the chunk, from 1."""
    # Someone may have set the plan's tag by hand, on a run without a chunk.
    numbers = {str(chunk.number + 1): chunk.number + 1 for chunk in plan.chunks}
    return {
        numbers[chunk]: launched
        for launched in dagster.launched({tags.PLAN: plan.id})
        if not launched.is_over and (chunk := launched.tags.get(tags.CHUNK, "")) in numbers
    }


@dataclass(frozen=True)
class LaunchedChunk:
    """A running chunk, with the partitions of its launch."""

    launched: Launched
    partitions: Collection[Partition]


@dataclass(frozen=True)
class Launcher:
    """Launches the chunks of one plan in one Dagster, for the user `who`."""

    plan: Plan
    dagster: Dagster
    plans: Plans
    who: str
    sleep: Callable[[float], None]
    now: Callable[[], datetime] = utc_now

    def launch(self, chunk: int, days: Mapping[str, Sequence[date]]) -> Launched:
        """Launch these days of a chunk, numbered from 1.

        Raises UsageError if Dagster refuses, or has other code, tables or another lake. Raises
        ServiceUnavailable if Dagster does not answer.
        """
        loaded = self.dagster.tables()
        refuse_other_servers(loaded, self.plan.code, self.plans.root, self.dagster.url)
        if not loaded.keys() >= {self._asset(table) for table in self.plan.reasons}:
            # A shadow has assets in Dagster only while it is open.
            reload(self.dagster, self.dagster.location_of(next(iter(self.plan.reasons))))
            loaded = self.dagster.tables()
        self.plan.refuse_other_code(
            {name: table.code for name, table in loaded.items()}, loaded_by=self.dagster.url
        )
        # An earlier command may have launched the chunk and been killed before the answer.
        if running := running_chunks(self.dagster, self.plan).get(chunk):
            return running
        name = f"{chunk}-{secrets.token_hex(4)}"
        request = self.plans.note(self.plan.id, REQUESTED, self.now(), chunk=chunk, launch=name)
        try:
            return self.dagster.launch(
                {self._asset(table): table_days for table, table_days in days.items()},
                options=self._options(),
                tags=self._tags(chunk, name),
            )
        except AnswerLost:
            launched = self._launched_as(name, request.at)
            if launched is None:
                # The request never arrived, and may be sent again.
                raise
            return launched

    def _launched_as(self, name: str, requested: datetime) -> Launched | None:
        """Wait for the launch with this name. None if Dagster will never have it."""
        while True:
            late = self.now() - requested > SETTLED_AFTER
            try:
                launched = self.dagster.launched({tags.LAUNCH: name})
            except ServiceUnavailable:
                if late:
                    raise
                launched = []
            if launched or late:
                return launched[0] if launched else None
            self.sleep(LAUNCH_POLL_S)

    def running(self) -> dict[int, Launched]:
        """The chunks of this plan that are running, by number.

        Waits for chunks that a killed command has requested.
        """
        for event in self.plans.events(self.plan.id, REQUESTED):
            # The clock of the killed command may have been ahead.
            requested = min(event.at, self.now())
            if self.now() - requested <= SETTLED_AFTER:
                self._launched_as(event.facts["launch"], requested)
        return running_chunks(self.dagster, self.plan)

    def cancellations(self) -> int:
        """The number of cancellations of this plan. A count is right even if clocks differ."""
        return len(self.plans.events(self.plan.id, "cancelled"))

    def launched(self) -> list[Launched]:
        """All launches of this plan that Dagster has, newest first."""
        return self.dagster.launched({tags.PLAN: self.plan.id})

    def crashed(self, launched: Launched, tables: Collection[str]) -> bool:
        """True if a run was interrupted, or ended before the step of one of these tables ended."""
        runs = self.dagster.runs(launched)
        ended = {
            step["stepKey"]
            for run in runs
            for step in run["stepStats"]
            if step["status"] in _STEP_ENDED
        }
        is_unfinished = any(step_of(self._asset(table)) not in ended for table in tables)
        return not runs or any(
            run["status"] != "SUCCESS" and (is_unfinished or INTERRUPTED in run["tags"])
            for run in runs
        )

    def failures(self, launched: Launched) -> dict[str, StepFailure]:
        """The failed steps of a launched run, by table."""
        tables = {self._asset(table): table for table in self.plan.code}
        return {
            tables[asset]: failure
            for run in self.dagster.runs(launched)
            for asset, failure in self.dagster.failures(run["runId"]).items()
            if asset in tables
        }

    def _asset(self, table: str) -> str:
        """The asset that builds a table of the plan."""
        return shadow_asset(table) if self.plan.is_shadow else table

    def _options(self) -> dict[str, Any]:
        options = self.plan.options
        return {
            "force": False,
            "write_mode": options.write_mode,
            "accept": options.accept,
            "replace_foreign_rows": options.replace_foreign_rows,
            "reason": options.reason,
            "spark_conf": dict(options.spark_conf),
        }

    def _tags(self, chunk: int, name: str) -> dict[str, str]:
        return {
            tags.PLAN: self.plan.id,
            tags.CHUNK: str(chunk),
            tags.LAUNCH: name,
            tags.WHO: self.who,
            "dagster/priority": _PRIORITY,
            # The rebuild launches crashed runs again, after a wait.
            "dagster/max_retries": "0",
        }
