"""The sensor `backfill_release_live`, and the assets that it reports to.

The sensor releases live when tables have changed and no step or run is active. It reports each
release as a materialization of the external asset `backfill/releases`. The check `live_is_released`
fails while live cannot be released because tables disagree or others wrote days. Active runs and
open plans delay a release, but do not fail the check.

After each release the sensor starts the job that writes the page of `backfill report` into the
home.
"""

import json
from collections.abc import Sequence
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
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    asset_check,
    sensor,
)

from backfill_assets.dagster_client.names import OWN, own
from backfill_assets.errors import BackfillError
from backfill_assets.grouping import grouped
from backfill_assets.lake.pointers import pointer_lines
from backfill_assets.lake.releases import Release, Releases
from backfill_assets.orchestration.jobs import VerbJob, VerbRun
from backfill_assets.orchestration.local.implicit_job import OWN_OP
from backfill_assets.orchestration.local.unfinished import unfinished_runs
from backfill_assets.publish.live import last_commits
from backfill_assets.publish.release_live import (
    FAILURES,
    Obstacle,
    Released,
    Withheld,
    release_live,
    why_not_released,
)
from backfill_assets.verbs.lake_report import write_report
from backfill_assets.verbs.options import NoOptions
from backfill_assets.workspace import Workspace

RELEASES = AssetKey([OWN, "releases"])
REPORT = AssetKey([OWN, "report"])
CHECK = "live_is_released"
SENSOR = own("release_live")
EVERY_S = 30
# While live cannot be released, the decision is repeated after this many ticks, even without a
# commit.
TICKS_TO_RETRY = 10
# A sensor without a cursor, as with a new Dagster storage, reports only this many releases.
REPORTED_AT_FIRST = 20
ASSET = (
    "The versions of all tables that readers get (`backfill_assets.read`, `backfill releases`). The"
    " sensor backfill_release_live adds a release when tables have changed and nothing is running."
    " Releases made by commands are shown here too."
)
REPORT_ASSET = (
    "One page about the lake: days, plans, releases, checks, late rows, and who did what. The job"
    " backfill_write_report writes it after each release. The metadata has its file."
)
PROMISE = (
    "Everything built in live can be released: no day is outdated because an input changed since"
    " the last release, and none was written by others."
)


@dataclass(frozen=True)
class Cursor:
    """The sensor's state between ticks.

    `decided` are the commits of the last decision, and `skip_reason` is its text. `reported` is the
    last release that was reported. `shown` is the check's description; None before its first
    evaluation. `ticks_left` counts the ticks to the next decision without a commit; 0 means never.
    """

    decided: str = ""
    skip_reason: str = ""
    reported: int | None = None
    shown: str | None = None
    ticks_left: int = 0

    @classmethod
    def read(cls, text: str | None) -> "Cursor":
        """Read the state from `text`. From an older version's text, only `reported` is used."""
        values = json.loads(text) if text else {}
        names = {field.name for field in fields(cls)}
        return cls(**values) if values.keys() == names else cls(reported=values.get("reported"))

    def text(self) -> str:
        return json.dumps(self.__dict__)


def release_sensor(workspace: Workspace) -> SensorDefinition:
    """The sensor that releases live. It runs unless someone stops it."""

    @sensor(
        name=SENSOR,
        job_name=own(REPORT_JOB.name),
        minimum_interval_seconds=EVERY_S,
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            "Releases live when tables have changed, nothing is running, and no day is outdated"
            " because an input changed since the last release."
        ),
    )
    def release(context: SensorEvaluationContext) -> SensorResult:
        cursor = Cursor.read(context.cursor)
        commits = last_commits(workspace)
        if commits == cursor.decided and cursor.ticks_left != 1:
            waiting = replace(cursor, ticks_left=max(cursor.ticks_left - 1, 0))
            return SensorResult(skip_reason=cursor.skip_reason, cursor=waiting.text())
        try:
            runs = partial(unfinished_runs, context.instance, workspace.names)
            decision = release_live(workspace, who=f"sensor {SENSOR}", runs=runs)
            reports, reported = _reports(workspace.lake.releases, cursor.reported)
        except BackfillError as error:
            return SensorResult(skip_reason=str(error), cursor=context.cursor)
        events: list[Any] = [*reports]
        reasons = decision.reasons if isinstance(decision, Withheld) else ()
        is_passing = isinstance(decision, Withheld) and decision.is_passing
        shown = cursor.shown
        if not is_passing:
            result = _check_result(reasons, workspace)
            shown = result.description
            if shown != cursor.shown:
                events.append(
                    AssetCheckEvaluation(
                        RELEASES, CHECK, result.passed, result.metadata, description=shown
                    )
                )
        if isinstance(decision, Withheld):
            skip_reason = f"Live is not released: {'; '.join(map(str, reasons))}"
        elif decision.release:
            skip_reason = f"No changes since release {decision.release.number}."
        else:
            skip_reason = "There is no table to release yet."
        # A passing reason is checked again. So is a release, since it is a commit too.
        decided = "" if is_passing or isinstance(decision, Released) else commits
        # A failure may be fixed without a commit: by other code, or in the files of a table.
        ticks_left = TICKS_TO_RETRY if reasons else 0
        return SensorResult(
            [RunRequest(f"release {reported}")] if reports else None,
            asset_events=events,
            skip_reason=None if events else skip_reason,
            cursor=Cursor(decided, skip_reason, reported, shown, ticks_left).text(),
        )

    return release


def _reports(
    releases: Releases, reported: int | None
) -> tuple[list[AssetMaterialization], int | None]:
    """The materializations of releases after the one `reported`, and the number of the last."""
    if reported is None:
        newest = releases.newest()
        if newest is None:
            return [], None
        reported = newest.number - REPORTED_AT_FIRST
    found = releases.all(after=reported - 1)
    reports = [
        release_materialization(release, before)
        for before, release in pairwise([None, *found])
        if release and release.number > reported
    ]
    return reports, found[-1].number if found else reported


def release_materialization(release: Release, before: Release | None) -> AssetMaterialization:
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
        "released at": MetadataValue.timestamp(release.at),
    }
    return AssetMaterialization(RELEASES, description=release.reason, metadata=metadata)


def _write_report(run: VerbRun, _: NoOptions) -> None:
    home = run.workspace.settings.home
    report = write_report(run.workspace, home / "report.html")
    metadata: dict[str, Any] = {"report": MetadataValue.path(report.file), "bytes": report.size}
    run.context.log_event(AssetMaterialization(REPORT, metadata=metadata))
    run.show_report(report, metadata)


REPORT_JOB = VerbJob(
    "write_report",
    "write_page",
    NoOptions,
    _write_report,
    "Write the page of `backfill report` into the home. The sensor backfill_release_live starts it"
    " after each release.",
)


def release_specs() -> list[AssetSpec]:
    """The assets with a materialization for each release: the releases, and the report."""
    return [
        AssetSpec(RELEASES, group_name=OWN, description=ASSET, kinds={"deltalake"}),
        AssetSpec(REPORT, deps=[RELEASES], group_name=OWN, description=REPORT_ASSET),
    ]


def release_check(workspace: Workspace) -> AssetChecksDefinition:
    """The check of the releases. The sensor evaluates it, and "Execute" in the UI does too."""

    @asset_check(asset=RELEASES, name=CHECK, description=PROMISE, op_tags=OWN_OP)
    def live_is_released() -> AssetCheckResult:
        return _check_result(why_not_released(workspace), workspace)

    return live_is_released


def _check_result(reasons: Sequence[Obstacle], workspace: Workspace) -> AssetCheckResult:
    """The check fails for reasons that are failures. Its text names readers who do not follow."""
    failures = [reason for reason in reasons if reason.cause in FAILURES]
    if failures:
        named = "; ".join(map(str, failures))
        description = (
            f"Live is not released. Readers still get the latest release. {named}. Build these"
            " days, or release live as it is: `backfill release --reason 'why'`."
        )
    else:
        not_following = [f"The channel {line}" for line in pointer_lines(workspace.lake.root)]
        description = " ".join(["No day keeps live from being released.", *not_following])
    days = grouped((failure.table, str(day)) for failure in failures for day in failure.days)
    return AssetCheckResult(
        passed=not failures,
        description=description,
        metadata={"days": MetadataValue.json(days)} if days else {},
    )
