"""The sensor `release_live`, and the asset `releases` that it reports to.

The sensor releases live when tables have changed and nothing is running. It reports each release as
a materialization of the external asset `releases`. The check `live_is_released` fails while live
cannot be released because days failed or were written by others. Active runs and open plans delay
a release, but do not fail the check.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetKey,
    AssetMaterialization,
    AssetSpec,
    DefaultSensorStatus,
    MetadataValue,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    asset_check,
    sensor,
)

from backfill_assets.errors import BackfillError
from backfill_assets.lake.releases import Release, Releases
from backfill_assets.orchestration.local.unfinished import unfinished_runs
from backfill_assets.publish.channels import behind
from backfill_assets.publish.live import last_commits
from backfill_assets.publish.release_live import (
    FAILURES,
    Decision,
    Reason,
    Released,
    Withheld,
    release_live,
    why_not_released,
)
from backfill_assets.workspace import Workspace

RELEASES = AssetKey("releases")
CHECK = "live_is_released"


def materialization(release: Release, before: Release | None) -> AssetMaterialization:
    """The materialization of a release."""
    metadata: dict[str, Any] = {
        "release": release.number,
        "kind": release.kind,
        "who": release.who,
        "reason": release.reason,
        "changed tables": MetadataValue.json(release.changed(before)),
        "tables": MetadataValue.json(
            {name: version.version for name, version in release.tables.items()}
        ),
        "switches": MetadataValue.json(dict(release.switches)),
        "channels": MetadataValue.json(dict(release.channels)),
        "released at": MetadataValue.timestamp(release.at),
    }
    return AssetMaterialization(RELEASES, description=release.reason, metadata=metadata)


def evaluation(
    failures: list[str], lagging: list[str], reasons: Iterable[Reason]
) -> AssetCheckEvaluation:
    """The check's evaluation: it fails if there are `failures`.

    `reasons` have the days of the failures. `lagging` are the channels that stay behind.
    """
    return AssetCheckEvaluation(
        asset_key=RELEASES,
        check_name=CHECK,
        passed=not failures,
        description=described(failures, lagging),
        metadata=days_of(reasons),
    )


def described(failures: list[str], lagging: list[str]) -> str:
    """The description of the check's result."""
    if not failures:
        return " ".join(
            [
                "No failed day keeps live from being released.",
                *(f"The channel {channel}." for channel in lagging),
            ]
        )
    return (
        f"Live is not released. Readers still get the latest release. {'; '.join(failures)}. Build"
        " these days, or release live without them: `backfill release --reason ...`."
    )


def days_of(reasons: Iterable[Reason]) -> dict[str, Any]:
    """Metadata with the days of failures by table."""
    days = {
        reason.table: [str(day) for day in reason.days]
        for reason in reasons
        if reason.cause in FAILURES and reason.table
    }
    return {"days": MetadataValue.json(days)} if days else {}


SENSOR = "release_live"
EVERY_S = 30
# While live cannot be released, the decision is made again after this many ticks, even if nothing
# was committed.
LOOKED_AT_AGAIN = 10
# A sensor without a cursor, as with a new Dagster storage, reports only this many releases.
REPORTED_AT_FIRST = 20
ASSET = (
    "The versions of all tables that readers get (`backfill_assets.read`, `backfill releases`). The"
    " sensor release_live adds a release when tables have changed and nothing is running. Releases"
    " made by commands are shown here too."
)
PROMISE = (
    "Everything built in live can be released: no failed day, and no day written by others,"
    " prevents it."
)


@dataclass(frozen=True)
class Cursor:
    """The sensor's state between ticks.

    `decided` are the commits of the last decision, and `said` is its skip reason. `reported` is the
    last release that was reported. `shown` is what the check shows; None before its first
    evaluation. `again` counts the ticks to the next decision without a commit; 0 is never.
    """

    decided: str = ""
    said: str = ""
    reported: int | None = None
    shown: list[str] | None = None
    again: int = 0

    @classmethod
    def read(cls, text: str | None) -> "Cursor":
        values = json.loads(text) if text else {}
        names = [field.name for field in fields(cls) if field.name in values]
        return cls(**{name: values[name] for name in names})

    def text(self) -> str:
        return json.dumps(self.__dict__)


def releases_spec() -> AssetSpec:
    """The asset that has a materialization for each release."""
    return AssetSpec(RELEASES, group_name="releases", description=ASSET, kinds={"deltalake"})


def release_check(workspace: Workspace) -> AssetChecksDefinition:
    """The check of the releases. The sensor evaluates it, and "Execute" in the UI does too."""

    @asset_check(asset=RELEASES, name=CHECK, description=PROMISE)
    def live_is_released() -> AssetCheckResult:
        reasons = why_not_released(workspace)
        failures = [str(reason) for reason in reasons if reason.cause in FAILURES]
        lagging = _lagging_channels(workspace)
        return AssetCheckResult(
            passed=not failures, description=described(failures, lagging), metadata=days_of(reasons)
        )

    return live_is_released


def release_sensor(workspace: Workspace) -> SensorDefinition:
    """The sensor that releases live. It runs unless someone stops it."""

    @sensor(
        name=SENSOR,
        minimum_interval_seconds=EVERY_S,
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            "Releases live when tables have changed, nothing is running, and no day failed since"
            " the last release."
        ),
    )
    def release(context: SensorEvaluationContext) -> SensorResult:
        cursor = Cursor.read(context.cursor)
        commits = last_commits(workspace)
        if commits == cursor.decided and cursor.again != 1:
            waiting = replace(cursor, again=max(cursor.again - 1, 0))
            return SensorResult(skip_reason=cursor.said, cursor=waiting.text())
        try:
            runs = partial(unfinished_runs, context.instance, workspace.names)
            decision = release_live(workspace, who=f"sensor {SENSOR}", runs=runs)
            new = _to_report(workspace.lake.releases, cursor)
        except BackfillError as error:
            return SensorResult(skip_reason=str(error), cursor=context.cursor)
        return _result(cursor, commits, decision, new, _lagging_channels(workspace))

    return release


def _lagging_channels(workspace: Workspace) -> list[str]:
    """The channels that will not get the next release of live, and why."""
    lake = workspace.lake
    return list(map(str, behind(lake.root, lake.releases.newest())))


def _to_report(releases: Releases, cursor: Cursor) -> list[Release]:
    """The releases that were not reported yet, after the one before them."""
    if cursor.reported is not None:
        return releases.all(after=cursor.reported - 1)
    newest = releases.newest()
    return releases.all(after=newest.number - REPORTED_AT_FIRST - 1) if newest else []


def _result(
    cursor: Cursor, commits: str, decision: Decision, releases: list[Release], lagging: list[str]
) -> SensorResult:
    last = releases[-1].number if releases else 0
    reported = last - REPORTED_AT_FIRST if cursor.reported is None else cursor.reported
    pairs = pairwise([None, *releases])
    events: list[Any] = [
        materialization(release, before)
        for before, release in pairs
        if release and release.number > reported
    ]
    withheld = decision if isinstance(decision, Withheld) else None
    shown = cursor.shown
    if not (withheld and withheld.is_passing):
        failures = [str(reason) for reason in withheld.failures] if withheld else []
        shown = [*failures, *lagging]
        if shown != cursor.shown:
            events.append(evaluation(failures, lagging, withheld.reasons if withheld else ()))
    skip_reason = _skip_reason(decision)
    # A reason that passes is checked again. So is a release, since it is a commit too.
    decided = (
        "" if isinstance(decision, Released) or (withheld and withheld.is_passing) else commits
    )
    # A failure may be fixed without a commit: by other code, by a delivery, or by moving a channel.
    after = Cursor(
        decided, skip_reason, last or cursor.reported, shown, LOOKED_AT_AGAIN if withheld else 0
    )
    return SensorResult(
        asset_events=events, skip_reason=None if events else skip_reason, cursor=after.text()
    )


def _skip_reason(decision: Decision) -> str:
    if isinstance(decision, Withheld):
        return f"Live is not released: {'; '.join(map(str, decision.reasons))}"
    number = decision.release.number if decision.release else None
    return f"No changes since release {number}." if number else "There is no table to release yet."
