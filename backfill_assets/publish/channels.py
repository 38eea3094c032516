"""Channels that do not get live with the next release, and the cause.

A channel lags for two reasons. A person has pointed it at an earlier release. Or live still has
rows of a plan that was published only to other channels, or rows that were computed from them.
After that it gets the same as the others. `stable` is a channel before its first release.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.calendar import Partition
from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake.history import latest, origin_builds
from backfill_assets.lake.ledger import COMMITTED, Build, Ledger, from_arrow
from backfill_assets.lake.releases import CANDIDATE, POINTED, STABLE, Release, Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans

LINEAGE_COLUMNS = (
    "table",
    "day",
    "outcome",
    "run",
    "fingerprint",
    "day_fingerprints",
    "inputs",
    "delta_version",
    "plan",
    "at",
)
# A table, and a day of it as inputs name it.
Input = tuple[str, str]


def has_derived_rows(root: str, plan: Plan, release: Release | None = None) -> bool:
    """True if live, or a release, has rows that were computed from rows of the plan.

    Only rows of the plan that live no longer has are followed, directly and through later tables.
    """
    ledger = Ledger(root)
    days = {name: plan.days_of(name) for name in plan.reasons}
    wrote = [
        b
        for b in ledger.builds(days, LINEAGE_COLUMNS)
        if b.plan == plan.id and b.outcome == "accepted"
    ]
    until = {name: version.version for name, version in release.tables.items()} if release else None
    now = latest(
        ledger, days, LINEAGE_COLUMNS, until=until, recorded=release.recorded if release else None
    ).accepted
    gone: dict[Input, set[str]] = {}
    for build in wrote:
        there = now.get((build.table, build.day))
        gone.setdefault(_as_input(build), set()).update(
            _fingerprints(build) - (_fingerprints(there) if there else set())
        )
    if not any(gone.values()):
        return False
    later = ledger.files().rows(LINEAGE_COLUMNS, after=min(build.at for build in wrote))
    reached = gone
    followed = set[str]()
    while further := {day for _, day in reached} - followed:
        followed |= further
        builds = [
            build for build in from_arrow(_that_read(later, followed)) if _is_in(build, release)
        ]
        reached, made = _followed(gone, sorted(builds, key=lambda build: build.at))
    return any(made.values())


def _that_read(rows: pa.Table, days: Collection[str]) -> pa.Table:
    """Return the builds of partitions that have ever read one of these days.

    Builds of other years are not parsed.
    """
    reading = rows.filter(pc.match_substring_regex(rows["inputs"], "|".join(sorted(days))))
    of_table, of_day = (
        pc.is_in(rows[name], value_set=pc.unique(reading[name])) for name in ("table", "day")
    )
    return rows.filter(pc.and_(of_table, of_day))


def _followed(
    gone: Mapping[Input, Collection[str]], builds: Iterable[Build]
) -> tuple[dict[Input, set[str]], dict[Input, bool]]:
    """Follow fingerprints that are gone from live through later `builds`, which are in order.

    Returns the fingerprints reached by partition, and whether each partition now has such rows.
    """
    reached = {each: set(fingerprints) for each, fingerprints in gone.items()}
    made = dict[Input, bool]()
    for build in builds:
        this = _as_input(build)
        inputs = ((name, day) for name, of in build.inputs.items() for day in of)
        from_gone = any(
            build.inputs[name][day] in reached.get((name, day), ()) for name, day in inputs
        )
        # Rows that were the same before are not made from it.
        made[this] = from_gone and (build.outcome != "unchanged" or made.get(this, False))
        if made[this]:
            reached.setdefault(this, set()).update(_fingerprints(build))
        elif this in reached and this not in gone:
            reached[this].clear()
    return reached, made


def _is_in(build: Build, release: Release | None) -> bool:
    if not build.succeeded or release is None:
        return build.succeeded
    version = release.tables.get(build.table)
    recorded = release.recorded.get(build.table, datetime.max.replace(tzinfo=UTC))
    known = build.outcome in COMMITTED or build.at <= recorded
    return version is not None and build.delta_version <= version.version and known


def _as_input(build: Build) -> Input:
    return build.table, build.day.isoformat()


def _fingerprints(build: Build) -> set[str]:
    """Return the fingerprints that readers record for a day: of all rows, or per event day."""
    return {build.fingerprint, *build.day_fingerprints.values()} - {""}


LIVE_COLUMNS = (
    "table",
    "day",
    "outcome",
    "run",
    "fingerprint",
    "delta_version",
    "data_files",
    "plan",
    "at",
)


def plan_has_rows_in(root: str, plan_id: str, release: Release | None = None) -> bool:
    """True if live, or a release, has rows of this plan, or rows computed from them.

    Rows of the plan count even if another build restored them or found the same. A plan that cannot
    be read counts as in live.
    """
    try:
        plan = Plans(root).read(plan_id)
    except UsageError:
        return True
    return bool(written_by(root, plan, release)) or has_derived_rows(root, plan, release)


def written_by(root: str, plan: Plan, release: Release | None = None) -> list[Build]:
    """The builds of a plan whose rows live, or a release, still has."""
    ledger = Ledger(root)
    days = {name: plan.days_of(name) for name in plan.reasons}
    until = {name: version.version for name, version in release.tables.items()} if release else None
    now = latest(
        ledger, days, LIVE_COLUMNS, until=until, recorded=release.recorded if release else None
    ).accepted
    before: dict[Partition, list[Build]] = {}
    for build in ledger.builds(days, LIVE_COLUMNS):
        if build.succeeded:
            before.setdefault((build.table, build.day), []).append(build)
    wrote = [
        origin_builds([*(b for b in before.get(p, ()) if b.at < build.at), build])[-1]
        for p, build in now.items()
    ]
    return [build for build in wrote if build.plan == plan.id and build.outcome == "accepted"]


NOT_PUBLISHED = "Nothing was published."


@dataclass(frozen=True)
class LaggingChannel:
    """A channel at release `number` (0: none yet) that does not follow live, and the cause.

    `pointed` is the release by which a person pointed it there. `plans` are in live and only
    readers of other channels get them. `left` are plans among them that were rolled back and left
    rows. `last` is the release with the newest tables.
    """

    channel: str
    number: int
    pointed: Release | None
    plans: tuple[str, ...]
    left: tuple[str, ...]
    last: int

    def of_plans(self, name: str = "it") -> list[str]:
        """Return a clause per plan that says why the channel lacks it."""
        left = "days of plan {}, which was rolled back, or made from them, are left in live"
        return [
            left.format(p) if p in self.left else f"plan {p} was not published to {name}"
            for p in self.plans
        ]

    @property
    def way_out(self) -> str:
        """The command after which it gets what the others get."""
        to = "" if self.channel == STABLE else f" --channel {self.channel}"
        if not self.pointed and not self.left:
            return f" ({'; '.join(f'`backfill publish {plan}{to}`' for plan in self.plans)})"
        if self.channel == STABLE:
            built = "Build again what is outdated, or " if self.left and not self.pointed else ""
            return f". {built}`backfill release --reason ...` releases live to stable"
        return f". `backfill rollback --release {self.last}{to}` gives it what was released last"

    def __str__(self) -> str:
        pointed = (
            [f"it was put there: {self.pointed.reason} ({self.pointed.who})"]
            if self.pointed
            else []
        )
        stays = f"stays at release {self.number}" if self.number else "has no release yet"
        return f"{self.channel} {stays}: {'; '.join(pointed or self.of_plans())}{self.way_out}"


def lagging_channels(root: str, newest: Release | None) -> list[LaggingChannel]:
    """Return the channels of the `newest` release that do not get live with the next one."""
    found = []
    for channel, number in _channels(newest).items():
        if newest and not _is_at_newest(root, newest, number):
            pointed = _pointed_back(root, channel, number)
            plans = plans_missing(root, newest, channel)
            left = tuple(filter(Plans(root).is_rolled_back, plans))
            last = Releases(root).last_of_tables(newest).number
            found += (
                [LaggingChannel(channel, number, pointed, plans, left, last)]
                if pointed or plans
                else []
            )
    return found


def following(root: str, newest: Release | None) -> list[str]:
    """Return the channels that a release of live moves. The first release goes to `stable`."""
    staying = {each.channel for each in lagging_channels(root, newest)}
    return [channel for channel in _channels(newest) if channel not in staying]


def overdue_channels(root: str, newest: Release | None) -> list[str]:
    """Return the channels that could get the `newest` release and do not get it yet."""
    numbers = _channels(newest)
    return [
        name
        for name in following(root, newest)
        if newest and not _is_at_newest(root, newest, numbers[name])
    ]


def plans_missing(
    root: str, newest: Release | None, channel: str, given: Release | None = None
) -> tuple[str, ...]:
    """Return the plans in live, or in the release `given`, that readers of `channel` do not get.

    They came with a later release than the one of the channel. A new channel is treated like
    `stable`.
    """
    later = Releases(root).all(after=_number(newest, channel))
    named = dict.fromkeys(
        plan for each in later if not given or each.number <= given.number for plan in each.plans
    )
    return tuple(plan for plan in named if plan_has_rows_in(root, plan, given))


def release_of_plan(root: str, plan: str) -> int:
    """Return the number of the release that published a plan; 0 if none did."""
    return Releases(root).files().with_plan(plan)


def refuse_others(
    root: str,
    plan: str,
    channel: str,
    newest: Release | None,
    together_with: Collection[str] = (),
    *,
    given: Release | None = None,
    nothing: str = NOT_PUBLISHED,
) -> list[str]:
    """Return the plans of `together_with` that readers of `channel` get along with `plan`.

    `given` is the release that they get, or None for live. `nothing` says what was not done. Raises
    RefusedByGuard if readers would get further plans, or if a person pointed them back.
    """
    number = _number(newest, channel)
    missing = [p for p in plans_missing(root, newest, channel, given) if p != plan]
    others = [each for each in missing if each not in together_with]
    if newest and channel in newest.channels and not _is_at_newest(root, newest, number):
        pointed = _pointed_back(root, channel, number)
        if pointed:
            last = Releases(root).last_of_tables(newest).number
            other = CANDIDATE if channel == STABLE else STABLE
            raise RefusedByGuard(
                f"Readers of {channel} were pointed back to release {number}:"
                f" {pointed.reason} ({pointed.who}). They would get again what they were"
                " pointed back from.",
                unchanged=nothing,
                next_step=(
                    f"If that is over, point them at release {last} first:"
                    f" `backfill rollback --release {last} --channel {channel}`."
                    f" If the plan fixes it, publish it to {other} first"
                    f" (`backfill publish {plan} --channel {other}`), then point"
                    " them at the release of that."
                ),
            )
    if others and given and not any(plan_has_rows_in(root, each) for each in others):
        raise RefusedByGuard(
            f"Release {given.number}, which readers of {channel} would get, has rows of"
            f" plan {', '.join(others)}, and live has none any more, and cannot be"
            " released yet: `backfill status` says why.",
            unchanged=nothing,
            next_step="Publish again then.",
        )
    if others:
        named = " ".join(f"--with {each}" for each in others)
        raise RefusedByGuard(
            f"Readers of {channel} would get {len(others)} more plan(s), which were"
            f" published to other channels only: {', '.join(others)}.",
            unchanged=nothing,
            next_step=(
                f"If that is meant: `backfill publish {plan} --channel {channel}"
                f" {named}`. If not, take them back first: `backfill rollback"
                f" {others[0]}`, and build again what that leaves."
            ),
        )
    return [each for each in missing if each in together_with]


def _channels(newest: Release | None) -> dict[str, int]:
    """The release of each channel; 0 for `stable` without one."""
    return {STABLE: 0, **(newest.channels if newest else {})}


def _number(newest: Release | None, channel: str) -> int:
    channels = _channels(newest)
    return channels.get(channel, channels[STABLE])


def _is_at_newest(root: str, newest: Release, number: int) -> bool:
    return number == newest.number or (
        number > 0 and Releases(root).get(number).tables == newest.tables
    )


def _pointed_back(root: str, channel: str, number: int) -> Release | None:
    """Return the release by which a person pointed the channel at `number`; None if none did."""
    moved: Release | None = None
    for release in Releases(root).all(after=number - 1):
        if release.channels.get(channel) != number:
            moved = None
        elif moved is None:
            moved = release
    back = (
        moved is not None
        and moved.kind == POINTED
        and Releases(root).get(number).tables != moved.tables
    )
    return moved if back else None
