"""Releases as Dagster shows them: a materialization of the asset `releases` each, and evaluations
of its check.

The sensor `release_live`: it releases live, and shows every release on the asset `releases`.

The asset is external: no run materializes it. Its check `live_is_released` fails while days that
failed, or that somebody else wrote to, keep live from being released; runs that go on and open
plans do not fail it.
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
    """A release as Dagster shows it."""
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
    failures: list[str], staying: list[str], reasons: Iterable[Reason]
) -> AssetCheckEvaluation:
    """The check: it fails if there are `failures`, in words; `reasons` have their days. `staying`:
    channels that are behind.
    """
    return AssetCheckEvaluation(
        asset_key=RELEASES,
        check_name=CHECK,
        passed=not failures,
        description=described(failures, staying),
        metadata=days_of(reasons),
    )


def described(failures: list[str], staying: list[str]) -> str:
    """What the check says."""
    if not failures:
        return " ".join(
            [
                "No failed day keeps live from being released.",
                *(f"The channel {each}." for each in staying),
            ]
        )
    return (
        f"Live is not released, and readers get the release before it. {'; '.join(failures)}. Build"
        " these days, or release live in spite of them: `backfill release --reason ...`."
    )


def days_of(reasons: Iterable[Reason]) -> dict[str, Any]:
    """The days of failures by table, as metadata."""
    days = {
        reason.table: [str(day) for day in reason.days]
        for reason in reasons
        if reason.cause in FAILURES and reason.table
    }
    return {"days": MetadataValue.json(days)} if days else {}


SENSOR = "release_live"
EVERY_S = 30
# While live is withheld, it is looked at again after so many ticks, whether anything was committed
# or not.
LOOKED_AT_AGAIN = 10
# A sensor without a cursor, as after Dagster's storage was made anew, reports this many releases
# and no earlier ones.
REPORTED_AT_FIRST = 20
ASSET = (
    "Which version of every table readers get: `backfill_assets.read`, `backfill releases`. The"
    " sensor release_live adds a release when the tables have changed and nothing is under way, and"
    " shows here what others have added."
)
PROMISE = (
    "Everything that was built in live is released: no day that failed, or that somebody else wrote"
    " to, withholds it."
)


@dataclass(frozen=True)
class Cursor:
    """What the sensor knows from before: the commits that it has decided on, the words of its skip,
    the last release that it reported, what the check shows (None: it was never evaluated), and in
    how many ticks it looks again although nothing was committed (0: never).
    """

    decided: str = ""
    said: str = ""
    reported: int | None = None
    shown: list[str] | None = None
    again: int = 0

    @classmethod
    def read(cls, text: str | None) -> "Cursor":
        known = json.loads(text) if text else {}
        return cls(**{each.name: known[each.name] for each in fields(cls) if each.name in known})

    def text(self) -> str:
        return json.dumps(self.__dict__)


def releases_spec() -> AssetSpec:
    """The asset of which every release is a materialization."""
    return AssetSpec(RELEASES, group_name="releases", description=ASSET, kinds={"deltalake"})


def release_check(workspace: Workspace) -> AssetChecksDefinition:
    """The check, which the sensor evaluates; "Execute" in the UI evaluates it too, and releases
    nothing.
    """

    @asset_check(asset=RELEASES, name=CHECK, description=PROMISE)
    def live_is_released() -> AssetCheckResult:
        reasons = why_not_released(workspace)
        failures = [str(reason) for reason in reasons if reason.cause in FAILURES]
        staying = staying_in(workspace)
        return AssetCheckResult(
            passed=not failures, description=described(failures, staying), metadata=days_of(reasons)
        )

    return live_is_released


def release_sensor(workspace: Workspace) -> SensorDefinition:
    """The sensor, which runs unless someone stops it."""

    @sensor(
        name=SENSOR,
        minimum_interval_seconds=EVERY_S,
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            "Releases live when tables have changed, nothing is under way, and no day failed since"
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
        return _result(cursor, commits, decision, new, staying_in(workspace))

    return release


def staying_in(workspace: Workspace) -> list[str]:
    """The channels that do not get live with its next release, and why."""
    root = workspace.lake.root
    return list(map(str, behind(root, Releases(root).newest())))


def _to_report(releases: Releases, cursor: Cursor) -> list[Release]:
    """The releases that were not reported yet, and the one before them."""
    if cursor.reported is not None:
        return releases.all(after=cursor.reported - 1)
    newest = releases.newest()
    return releases.all(after=newest.number - REPORTED_AT_FIRST - 1) if newest else []


def _result(
    cursor: Cursor, commits: str, decision: Decision, releases: list[Release], staying: list[str]
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
        shown = [*failures, *staying]
        if shown != cursor.shown:
            events.append(evaluation(failures, staying, withheld.reasons if withheld else ()))
    said = _said(decision)
    # What ends by itself is looked at again; so is a release, which is a commit of its own.
    decided = (
        "" if isinstance(decision, Released) or (withheld and withheld.is_passing) else commits
    )
    # What failed may be mended without a commit: by other code, a delivery that is put back, a
    # person who points a channel.
    after = Cursor(
        decided, said, last or cursor.reported, shown, LOOKED_AT_AGAIN if withheld else 0
    )
    return SensorResult(
        asset_events=events, skip_reason=None if events else said, cursor=after.text()
    )


def _said(decision: Decision) -> str:
    if isinstance(decision, Withheld):
        return f"Live is not released: {'; '.join(map(str, decision.reasons))}"
    number = decision.release.number if decision.release else None
    return f"Live is as release {number} has it." if number else "There is no table to release yet."
