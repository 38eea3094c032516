"""The sensor `release_live`: it releases live, and shows every release on the asset `releases`.

The asset is external: no run materializes it. Its check `live_is_released` fails while days that failed, or that somebody else
wrote to, keep live from being released; runs that go on and open plans do not fail it.
"""

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dagster import (
    AssetCheckResult,
    AssetChecksDefinition,
    AssetSpec,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    asset_check,
    sensor,
)

from backfill_assets.errors import BackfillError
from backfill_assets.lake.release import Release
from backfill_assets.lake.releases import Releases
from backfill_assets.orchestration.release_report import CHECK, RELEASES, days_of, described, evaluation, materialization
from backfill_assets.orchestration.unfinished import unfinished_runs
from backfill_assets.publish.live import last_commits
from backfill_assets.publish.reasons import FAILURES
from backfill_assets.publish.release_live import Decision, Released, Withheld, release_live, why_not_released
from backfill_assets.workspace import Workspace

SENSOR, EVERY_S = "release_live", 30
# A sensor without a cursor, as after Dagster's storage was made anew, reports this many releases and no earlier ones.
REPORTED_AT_FIRST = 20
ASSET = (
    "Which version of every table readers get: `backfill_assets.read`, `backfill releases`. The sensor release_live adds a "
    "release when the tables have changed and nothing is under way, and shows here what others have added."
)
PROMISE = "Everything that was built in live is released: no day that failed, or that somebody else wrote to, withholds it."


@dataclass(frozen=True)
class Cursor:
    """What the sensor knows from before: the commits that it has decided on, the words of its skip, the last release
    that it reported, and the failures (None: never evaluated)."""

    decided: str = ""
    said: str = ""
    reported: int | None = None
    failures: list[str] | None = None

    @classmethod
    def read(cls, text: str | None) -> "Cursor":
        return cls(**json.loads(text)) if text else cls()

    def text(self) -> str:
        return json.dumps(self.__dict__)


def releases_spec() -> AssetSpec:
    """The asset of which every release is a materialization."""
    return AssetSpec(RELEASES, group_name="releases", description=ASSET, kinds={"deltalake"})


def release_check(workspace: Workspace) -> AssetChecksDefinition:
    """The check, which the sensor evaluates; "Execute" in the UI evaluates it too, and releases nothing."""

    @asset_check(asset=RELEASES, name=CHECK, description=PROMISE)
    def live_is_released() -> AssetCheckResult:
        reasons = why_not_released(workspace)
        failures = [str(reason) for reason in reasons if reason.cause in FAILURES]
        return AssetCheckResult(passed=not failures, description=described(failures), metadata=days_of(reasons))

    return live_is_released


def release_sensor(workspace: Workspace) -> SensorDefinition:
    """The sensor, which runs unless someone stops it."""

    @sensor(
        name=SENSOR,
        minimum_interval_seconds=EVERY_S,
        default_status=DefaultSensorStatus.RUNNING,
        description="Releases live when tables have changed, nothing is under way, and no day failed since the last release.",
    )
    def release(context: SensorEvaluationContext) -> SensorResult:
        cursor = Cursor.read(context.cursor)
        commits = last_commits(workspace)
        if commits == cursor.decided:
            return SensorResult(skip_reason=cursor.said, cursor=context.cursor)
        try:
            runs = unfinished_runs(context.instance, workspace.names)
            decision = release_live(workspace, who=f"sensor {SENSOR}", runs=runs)
            new = _to_report(Releases(workspace.lake.root), cursor)
        except BackfillError as error:
            return SensorResult(skip_reason=str(error), cursor=context.cursor)
        return _result(cursor, commits, decision, new)

    return release


def _to_report(releases: Releases, cursor: Cursor) -> list[Release]:
    """The releases that were not reported yet, and the one before them."""
    if cursor.reported is not None:
        return releases.all(after=cursor.reported - 1)
    newest = releases.newest()
    return releases.all(after=newest.number - REPORTED_AT_FIRST - 1) if newest else []


def _result(cursor: Cursor, commits: str, decision: Decision, releases: list[Release]) -> SensorResult:
    last = releases[-1].number if releases else 0
    reported = last - REPORTED_AT_FIRST if cursor.reported is None else cursor.reported
    pairs = pairwise([None, *releases])
    events: list[Any] = [materialization(release, before) for before, release in pairs if release and release.number > reported]
    withheld, failures = decision if isinstance(decision, Withheld) else None, cursor.failures
    if not (withheld and withheld.is_passing):
        failures = [str(reason) for reason in withheld.failures] if withheld else []
        if failures != cursor.failures:
            events.append(evaluation(failures, withheld.reasons if withheld else ()))
    said = _said(decision)
    # What ends by itself is looked at again; so is a release, which is a commit of its own.
    decided = "" if isinstance(decision, Released) or (withheld and withheld.is_passing) else commits
    after = Cursor(decided, said, last or cursor.reported, failures)
    return SensorResult(asset_events=events, skip_reason=None if events else said, cursor=after.text())


def _said(decision: Decision) -> str:
    if isinstance(decision, Withheld):
        return f"Live is not released: {'; '.join(map(str, decision.reasons))}"
    number = decision.release.number if decision.release else None
    return f"Live is as release {number} has it." if number else "There is no table to release yet."
