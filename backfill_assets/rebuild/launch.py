"""Launching a chunk, once: whatever becomes of the answer, or of this command.

What is about to be asked is written down before it is asked, under a name that the backfill carries as a tag. A launch
whose answer was lost is looked for by that name; only one that the server does not know, after any request would have been
dealt with, is asked for again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import OVER, TIMEOUT_S, Dagster
from backfill_assets.errors import AnswerLost, ServiceUnavailable
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans

# A request that was sent is dealt with, or never will be, within the time in which this client would wait for the answer.
SETTLED_AFTER = timedelta(seconds=TIMEOUT_S + 15)
LOOK_EVERY_S = 1.0
# Above the runs of plans in the queue come those that nobody planned: nightly ones, and single ones from the UI.
PRIORITY = "-10"
RUN_OVER = frozenset({"SUCCESS", "FAILURE", "CANCELED"})


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Launcher:
    """Launches the chunks of one plan in one Dagster, in somebody's name. `now` and `sleep` are the clock's."""

    plan: Plan
    dagster: Dagster
    plans: Plans
    who: str
    sleep: Callable[[float], None]
    now: Callable[[], datetime] = utc_now

    def launch(self, chunk: int, days: Mapping[str, Sequence[date]]) -> str:
        """Ask for these days of a chunk, numbered from 1; the backfill's id.

        UsageError if the server refuses, or runs other code; ServiceUnavailable if it is gone before it was asked, or does
        not come back after.
        """
        self.plan.refuse_other_code(self.dagster.code())
        known = [each for each in self.launched() if each["tags"].get(tags.CHUNK) == str(chunk) and each["status"] not in OVER]
        if known:  # asked for before, by a command that did not live to hear of it, or before the server went silent
            return str(known[0]["id"])
        name = f"{chunk}-{secrets.token_hex(4)}"
        asked = self.plans.note(self.plan.id, "asked", self.now(), chunk=chunk, launch=name)
        try:
            return self.dagster.launch(days, options=self._options(), tags=self._tags(chunk, name), title=self._title(chunk))
        except AnswerLost:
            found = self.found(name, asked.at)
            if not found:  # it never arrived, and may be asked for again
                raise
            return found

    def found(self, name: str, asked: datetime) -> str:
        """The backfill that was launched under this name, as soon as it is there; nothing if it never was."""
        while True:
            late = self.now() - asked > SETTLED_AFTER
            try:
                known = self.dagster.backfills({tags.LAUNCH: name})
            except ServiceUnavailable:
                if late:
                    raise
                known = []
            if known or late:
                return str(known[0]["id"]) if known else ""
            self.sleep(LOOK_EVERY_S)

    def running(self) -> dict[int, str]:
        """The backfills of this plan that are not over yet, by chunk: also what a command asked for that was then killed."""
        known = {each["tags"].get(tags.LAUNCH) for each in self.launched()}
        for event in self.plans.events(self.plan.id, "asked"):
            if event.facts["launch"] not in known:
                self.found(event.facts["launch"], event.at)
        return {int(each["tags"][tags.CHUNK]): str(each["id"]) for each in self.launched() if each["status"] not in OVER}

    def launched(self) -> list[dict[str, Any]]:
        """Every backfill of this plan that Dagster knows, newest first."""
        return self.dagster.backfills({tags.PLAN: self.plan.id})

    def runs_over(self, backfill_id: str) -> bool:
        runs = self.dagster.runs(backfill_id)
        return bool(runs) and all(run["status"] in RUN_OVER for run in runs)

    def crashed(self, backfill_id: str) -> bool:
        """Whether some run ended without a step of it having failed: it was killed, or never came to begin."""
        runs = self.dagster.runs(backfill_id)
        return not runs or any(
            run["status"] != "SUCCESS" and not any(step["status"] == "FAILURE" for step in run["stepStats"]) for run in runs
        )

    def complaint(self, backfill_id: str) -> str:
        """What the runs of a backfill said of why they built nothing."""
        said = [text for run in self.dagster.runs(backfill_id) for text in self.dagster.failures(run["runId"]).values()]
        return said[0].strip() if said else f"the runs of backfill {backfill_id} ended without building it"

    def _options(self) -> dict[str, Any]:
        options = self.plan.options
        more = {"spark_conf": dict(options.spark_conf)} if options.spark_conf else {}
        return {"force": False, "write_mode": options.write_mode, "reason": options.reason, **more}

    def _tags(self, chunk: int, name: str) -> dict[str, str]:
        return {
            tags.PLAN: self.plan.id,
            tags.CHUNK: str(chunk),
            tags.LAUNCH: name,
            tags.WHO: self.who,
            "dagster/priority": PRIORITY,
            "dagster/max_retries": "0",  # crashed runs are launched again by the rebuild, after a while
        }

    def _title(self, chunk: int) -> str:
        return f"plan {self.plan.id}, chunk {chunk} of {len(self.plan.chunks)}"
