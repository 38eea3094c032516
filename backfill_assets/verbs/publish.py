"""Verify, publish, rebase or discard a plan built in its shadow. No server is needed."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.pointers import pointer_lines, read_preview
from backfill_assets.lake.releases import Release
from backfill_assets.plan.lifecycle import resolve_shadow_id
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Readers, outdated_lines, readers_left
from backfill_assets.plan.store import Plans
from backfill_assets.publish import shadows, text
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.publish.pointers import preview
from backfill_assets.publish.publish import DecidedPublication, Publication, Published
from backfill_assets.publish.release_live import Obstacle, Runs
from backfill_assets.publish.waiting import Patience, writers_to_live
from backfill_assets.rebuild.carry_out import after_publication
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.reconcile.dagster_record import wipe_shadows
from backfill_assets.verbs.options import PreviewOptions, PublishOptions, VerifyOptions
from backfill_assets.verbs.report import Line, Report, TableContents, by_partition, table_of
from backfill_assets.verbs.status import reason_values
from backfill_assets.verify.checklist import PlanVerdict, verdict_json
from backfill_assets.verify.text import ending_lines, terminal_table
from backfill_assets.verify.verify import Verdicts, require_verified, verify
from backfill_assets.workspace import Workspace


def plan_in_shadow(plan_id: str, workspace: Workspace) -> Plan:
    """Return the plan that is meant: without an id, the only one in a shadow."""
    plans = Plans(workspace.lake.root)
    return plans.read(resolve_shadow_id(plan_id, plans))


@dataclass(frozen=True)
class VerifyReport(Report):
    verdict: PlanVerdict
    # Also list the checks that passed.
    with_all: bool = False

    @property
    def is_complete(self) -> bool:
        return self.verdict.passed

    def lines(self) -> Iterator[Line]:
        if self.with_all:
            yield terminal_table(self.verdict)
        yield from ending_lines(self.verdict)

    def as_json(self) -> Mapping[str, Any]:
        return dict(json.loads(verdict_json(self.verdict)))


def verify_plan(
    plan: Plan, workspace: Workspace, options: VerifyOptions, *, who: str, with_all: bool = False
) -> VerifyReport:
    """Run the checks of a plan, or accept checks of its newest verdict by name."""
    accept = options.accept
    reason = options.reason
    if accept and options.expect != "plan":
        raise UsageError(
            "--accept does not run the checks again, so it takes no --expect.",
            unchanged="Nothing was verified.",
            next_step="Leave one out.",
        )
    if accept:
        verdicts = Verdicts(workspace.lake.root)
        accepted = verdicts.accept(plan.id, accept, who=who, reason=reason, at=utc_now())
        return VerifyReport(accepted, with_all)
    if reason:
        raise UsageError(
            "A reason needs a check that it accepts.",
            unchanged="Nothing was verified.",
            next_step="Type --accept NAME too.",
        )
    verdict = verify(plan, workspace, who=who, now=utc_now, expect=options.expect)
    return VerifyReport(verdict, with_all)


@dataclass(frozen=True)
class PreviewReport(Report):
    preview: Release
    channel: str

    def lines(self) -> Iterator[Line]:
        yield from text.preview_lines(self.preview, self.channel)

    def as_json(self) -> Mapping[str, Any]:
        previewed = self.preview.previewed.items()
        return {
            "plan": self.preview.preview,
            "channel": self.channel,
            "release": self.preview.number,
            "days": {name: sorted(map(str, of_table.days)) for name, of_table in previewed},
        }


def preview_plan(
    plan: Plan, workspace: Workspace, runs: Runs, options: PreviewOptions, *, who: str
) -> PreviewReport:
    """Combine the newest release with the days of a plan's shadow.

    For a channel, the plan must be verified.
    """
    approve = require_verified(plan, workspace)
    channel = options.channel
    made = preview(plan, workspace, channel, approve, who=who, reason=options.reason, runs=runs)
    return PreviewReport(made, channel)


@dataclass(frozen=True)
class PublishReport(Report):
    plan_id: str
    published: Published
    # The channels whose readers do not follow, and so do not get it.
    not_following: Sequence[str]
    readers: Readers
    not_reported: str
    ask_above_days: int

    @property
    def is_complete(self) -> bool:
        return not (self.published.left or self.published.withheld)

    @property
    def table(self) -> TableContents:
        return text.PUBLISHED, text.published_rows(self.published.builds)

    def lines(self) -> Iterator[Line]:
        yield from text.published_lines(self.plan_id, self.published)
        yield from self.not_following
        if self.not_reported:
            yield self.not_reported
        yield from outdated_lines(self.readers.outdated, self.ask_above_days)

    def as_json(self) -> Mapping[str, Any]:
        release = self.published.release
        return {
            "plan": self.plan_id,
            "release": release.number if release else None,
            "withheld": reason_values(self.published.withheld),
            "accepted": self.published.count("accepted"),
            "unchanged": self.published.count("unchanged"),
            "left": by_partition(self.published.left),
            "outdated_now": self.readers.outdated,
            "not_reported": self.not_reported,
        }


@dataclass(frozen=True)
class DecisionReport(Report):
    """What a publication would do now, and the runs that it would wait for."""

    plan_id: str
    decided: DecidedPublication
    writers: Sequence[Obstacle]

    @property
    def builds(self) -> list[Build]:
        return self.decided.act.builds

    def lines(self) -> Iterator[Line]:
        in_part = " in part" if self.decided.left else ""
        yield f"Plan {self.plan_id} can be published{in_part}. Nothing was changed."
        yield table_of(text.PUBLISHED, text.published_rows(self.builds))
        yield from text.left_lines(self.decided.left)
        if self.writers:
            yield f"It would wait first: {'; '.join(map(str, self.writers))}."
        option = " --without-conflicts" if self.decided.left else ""
        yield f"Publish it: `backfill publish {self.plan_id}{option}`."

    def as_json(self) -> Mapping[str, Any]:
        outcomes = [build.outcome for build in self.builds]
        return {
            "plan": self.plan_id,
            "accepted": outcomes.count("accepted"),
            "unchanged": outcomes.count("unchanged"),
            "left": by_partition(self.decided.left),
            "waits_for": list(map(str, self.writers)),
        }


def decide_publication(
    plan: Plan, workspace: Workspace, runs: Runs, options: PublishOptions, *, who: str
) -> DecisionReport:
    """Check and decide about a publication, without changing anything."""
    publication = Publication(plan, workspace, who, options.reason, options.without_conflicts)
    approve = require_verified(plan, workspace)
    decided = publication.decide(approve, allow_breaking=options.allow_breaking)
    return DecisionReport(plan.id, decided, writers_to_live(workspace, runs))


def publish_plan(
    plan: Plan,
    workspace: Workspace,
    dagster: Callable[[], Dagster],
    runs: Runs,
    options: PublishOptions,
    *,
    who: str,
    patience: Patience,
) -> PublishReport:
    """Put the days of a plan's shadow into live and into one release.

    `runs` names the runs of live that are not finished. Those that have written
    to live are waited for with `patience`. Dagster's record follows if it answers.
    """
    publication = Publication(plan, workspace, who, options.reason, options.without_conflicts)
    approve = require_verified(plan, workspace)
    published = publication.publish(
        utc_now, approve, runs=runs, allow_breaking=options.allow_breaking, patience=patience
    )
    not_following = pointer_lines(workspace.lake.root)
    readers = readers_left(plan, workspace, published.kept)
    not_reported = report_to_dagster(plan, published.builds, readers, workspace, dagster)
    ask_above = workspace.settings.ask_above_days
    return PublishReport(plan.id, published, not_following, readers, not_reported, ask_above)


def report_to_dagster(
    plan: Plan,
    builds: Sequence[Build],
    readers: Readers,
    workspace: Workspace,
    dagster: Callable[[], Dagster],
) -> str:
    """Report the days of a publication or a rollback. Return a warning if that fails, or ""."""
    try:
        after_publication(plan, builds, readers, workspace, dagster())
        return ""
    except BackfillError as error:
        return text.not_reported(error)


@dataclass(frozen=True)
class RebaseReport(Report):
    plan: Plan
    state: ShadowState
    preview: Release | None

    def lines(self) -> Iterator[Line]:
        yield from shadows.rebased_lines(self.plan, self.state)
        if self.preview:
            yield from text.rebased_preview_lines(self.preview, self.state)

    def as_json(self) -> Mapping[str, Any]:
        kept = self.state.shadow.base.kept
        return {
            "plan": self.plan.id,
            "conflicts": by_partition(self.state.conflicts),
            "kept": [f"{table} {day}" for table, day in sorted(kept)],
        }


def rebase_plan(
    plan: Plan, workspace: Workspace, who: str, *, keep_live: bool = False
) -> RebaseReport:
    """Let a plan's shadow read live as it is now. A resumed plan builds what is not built then.

    With `keep_live`, the plan gives up the days that were built in live meanwhile.
    """
    state = shadows.rebase(plan, workspace, who, keep_live=keep_live)
    return RebaseReport(plan, state, read_preview(workspace.lake.root, plan.id))


@dataclass(frozen=True)
class DiscardReport(Report):
    plan: str
    # A part of the plan was published before.
    is_in_part: bool = False

    def lines(self) -> Iterator[Line]:
        yield f"Plan {self.plan} is discarded: its shadow is deleted. Live is unchanged."
        if self.is_in_part:
            yield (
                "The part of it that was published stays in live. To take it back: `backfill"
                f" rollback {self.plan}`."
            )


def discard_plan(
    plan: Plan, workspace: Workspace, dagster: Callable[[], Dagster], *, who: str, reason: str
) -> DiscardReport:
    """Delete the shadow of a plan."""
    shadows.discard(plan, workspace, who=who, now=utc_now, reason=reason)
    with suppress(BackfillError):  # the next shadow wipes what Dagster shows of this one
        wipe_shadows(dagster(), workspace.lake.root, workspace.names)
    is_in_part = bool(Plans(workspace.lake.root).left(plan.id))
    return DiscardReport(plan.id, is_in_part)
