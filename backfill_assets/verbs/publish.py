"""Preview, publish, rebase or discard a plan built in its shadow. No server is needed."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from backfill_assets.calendar import Partition, TextByPartition, ranges
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.requests import report
from backfill_assets.errors import BackfillError
from backfill_assets.grouping import grouped
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.pointers import pointer_lines, read_preview
from backfill_assets.lake.releases import Release
from backfill_assets.plan.lifecycle import resolve_shadow_id
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Readers, readers_left, readers_lines
from backfill_assets.plan.store import Plans
from backfill_assets.publish import shadows
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.publish.guards import examples
from backfill_assets.publish.pointers import preview
from backfill_assets.publish.publish import DecidedPublication, Publication, Published
from backfill_assets.publish.release_live import PASSING, Obstacle, Runs
from backfill_assets.publish.waiting import Patience, writers_to_live
from backfill_assets.rebuild.carry_out import after_publication
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.verbs.downstream import downstream_line
from backfill_assets.verbs.options import PreviewOptions, PublishOptions
from backfill_assets.verbs.report import Line, Report, TableContents, by_partition, table_of
from backfill_assets.verify.verify import require_verified
from backfill_assets.workspace import Workspace


def plan_in_shadow(plan_id: str, workspace: Workspace) -> Plan:
    """Return the plan with this id, or without an id the only plan in a shadow."""
    plans = Plans(workspace.lake.root)
    return plans.read(resolve_shadow_id(plan_id, plans))


@dataclass(frozen=True)
class PreviewReport(Report):
    preview: Release
    channel: str

    def lines(self) -> Iterator[Line]:
        preview = self.preview
        partitions = sum(len(of_table.days) for of_table in preview.previewed.values())
        readers = f" Readers of {self.channel} get it now." if self.channel else ""
        yield (
            f"The preview of plan {preview.preview} is release {preview.number} with {partitions}"
            f" partition(s) from its shadow.{readers} Nothing of it is in live."
        )
        how = f'channel="{self.channel}"' if self.channel else f'preview="{preview.preview}"'
        yield f"Read it with `backfill_assets.read(..., {how})`."

    def as_json(self) -> Mapping[str, Any]:
        previewed = self.preview.previewed.items()
        return {
            "plan": self.preview.preview,
            "channel": self.channel,
            "release": self.preview.number,
            "days": {name: sorted(of_table.days) for name, of_table in previewed},
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


def rows_by_kind(
    kinds: Sequence[str], days: Iterable[tuple[str, date, str]]
) -> list[tuple[str, ...]]:
    """Return a row per table, with the days of each kind. `days` are tables, days and kinds."""
    found = grouped(((table, kind), day) for table, day, kind in days)
    names = dict.fromkeys(table for table, _ in found)
    return [(name, *(ranges(found.get((name, kind), [])) for kind in kinds)) for name in names]


def _published_table(builds: Iterable[Build]) -> TableContents:
    """Return a row per table: the days with new rows, and the days with the same rows in live."""
    days = ((build.table, build.day, build.outcome) for build in builds)
    columns = ("table", "new rows", "live had the same")
    return columns, rows_by_kind(["accepted", "unchanged"], days)


def withheld_lines(withheld: Sequence[Obstacle]) -> Iterator[str]:
    """Say why readers do not get the result yet, and when they will."""
    if withheld:
        why = "; ".join(map(str, withheld))
        is_passing = any(reason.cause in PASSING for reason in withheld)
        by_hand = "" if is_passing else ", or now with `backfill release --reason 'why'`"
        yield (
            f"Live cannot be released now: {why}. Readers get this with its next release{by_hand}."
        )


def published_lines(plan_id: str, published: Published) -> Iterator[str]:
    """Yield sentences on the result of a publication."""
    where = " in part" if published.left else ""
    where += f" as release {published.release.number}" if published.release else ""
    if published.builds:
        unchanged = published.count("unchanged")
        same = f", {unchanged} had the same already" if unchanged else ""
        yield (
            f"Plan {plan_id} is published{where}: {published.count('accepted')} partition(s) have"
            f" new rows in live{same}."
        )
    else:
        yield f"Plan {plan_id} is in live{where}."
    yield from withheld_lines(published.withheld)
    yield from _left_lines(published.left)
    if published.left:
        yield (
            f"To publish the rest: `backfill rebase {plan_id}`, then verify and publish again. With"
            " `--keep live`, live keeps its newer rows."
        )
    yield f"To take it back: `backfill rollback {plan_id}`."


def _left_lines(left: TextByPartition) -> Iterator[str]:
    """Yield the partitions that a publication in part leaves in the shadow, with the reason."""
    if left:
        yield f"{len(left)} partition(s) stay in the shadow:"
        yield examples(left)


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
        return _published_table(self.published.builds)

    def lines(self) -> Iterator[Line]:
        yield from published_lines(self.plan_id, self.published)
        yield from self.not_following
        if self.not_reported:
            yield self.not_reported
        yield from readers_lines(self.readers, self.ask_above_days)

    def as_json(self) -> Mapping[str, Any]:
        release = self.published.release
        return {
            "plan": self.plan_id,
            "release": release.number if release else None,
            "withheld": list(map(vars, self.published.withheld)),
            "accepted": self.published.count("accepted"),
            "unchanged": self.published.count("unchanged"),
            "left": by_partition(self.published.left),
            "outdated_now": self.readers.outdated,
            "downstream": self.readers.downstream,
            "not_reported": self.not_reported,
        }


@dataclass(frozen=True)
class DecisionReport(Report):
    """The act of a publication now, and the runs for which the publication would wait."""

    plan_id: str
    decided: DecidedPublication
    writers: Sequence[Obstacle]

    @property
    def builds(self) -> list[Build]:
        return self.decided.act.builds

    def lines(self) -> Iterator[Line]:
        in_part = " in part" if self.decided.left else ""
        yield f"Plan {self.plan_id} can be published{in_part}. Nothing was changed."
        yield table_of(*_published_table(self.builds))
        yield from _left_lines(self.decided.left)
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
            "waits_for": self.writers,
        }


def decide_publication(
    plan: Plan, workspace: Workspace, runs: Runs, options: PublishOptions, *, who: str
) -> DecisionReport:
    """Check and decide about a publication. Nothing is changed."""
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

    `runs` names the unfinished runs of live. The publication waits with `patience` for runs that
    have written to live. If Dagster answers, a run updates its record afterwards.
    """
    publication = Publication(plan, workspace, who, options.reason, options.without_conflicts)
    approve = require_verified(plan, workspace)
    published = publication.publish(
        approve, runs=runs, allow_breaking=options.allow_breaking, patience=patience
    )
    not_following = pointer_lines(workspace.lake.root)
    readers = readers_left(plan, workspace, published.kept)
    not_reported = report_to_dagster(plan, published.left, readers, dagster)
    line = downstream_line(plan, readers, workspace, dagster, launch=options.downstream, who=who)
    readers = replace(readers, downstream=line)
    ask_above = workspace.settings.ask_above_days
    return PublishReport(plan.id, published, not_following, readers, not_reported, ask_above)


def report_to_dagster(
    plan: Plan, left: Collection[Partition], readers: Readers, dagster: Callable[[], Dagster]
) -> str:
    """Launch the report of a publication or rollback. Return a warning if that fails, or ""."""
    try:
        after_publication(plan, left, readers, dagster())
        return ""
    except BackfillError as error:
        reason = error.what.rstrip(".")
        return (
            f"Dagster still shows these days as the plan built them: {reason}. Once its webserver"
            " runs, type `backfill reconcile --repair`."
        )


@dataclass(frozen=True)
class RebaseReport(Report):
    plan: Plan
    state: ShadowState
    preview: Release | None

    def lines(self) -> Iterator[Line]:
        state = self.state
        if state.conflicts:
            count = len(state.conflicts)
            yield f"Live has changed under {count} partition(s) of plan {self.plan.id}:"
            yield examples(state.conflicts)
        if given_up := state.conflicts.keys() & state.shadow.base.kept:
            yield f"Live keeps its rows of {len(given_up)} of them."
        if state.unbuilt:
            yield f"{len(state.unbuilt)} partition(s) are built again."
        elif state.conflicts:
            yield (
                "The shadow now reads live as it is, and all its days are up to date. Verify it"
                " again, then publish."
            )
        else:
            yield f"Plan {self.plan.id} is built on what live holds. Nothing was changed."
        if self.preview and state.unbuilt:
            yield (
                f"Its preview stays on release {self.preview.number}. Once these days are built and"
                f" verified, type `backfill preview {self.plan.id} --channel candidate`."
            )
        elif self.preview:
            yield f"Its preview is on release {self.preview.number}."

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
    """Let a plan's shadow read the current live. A resumed plan then builds the missing days.

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
    with suppress(BackfillError):  # the next report wipes Dagster's record of the shadow
        report(dagster(), (), f"plan {plan.id} was discarded", plan.reasons)
    is_in_part = bool(Plans(workspace.lake.root).left(plan.id))
    return DiscardReport(plan.id, is_in_part)
