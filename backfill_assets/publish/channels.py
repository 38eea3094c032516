"""Which channels get live with its next release, and what keeps the others where they are.

A channel stays behind for two reasons: a person has pointed it at an earlier release, or live still has rows of a plan that
was published to readers of other channels only. Once that is over, it gets what the others get. `stable` is a channel before it
has its first release.
"""

from collections.abc import Collection
from dataclasses import dataclass

from backfill_assets.errors import Guarded
from backfill_assets.lake.release import CANDIDATE, POINTED, STABLE, Release
from backfill_assets.lake.release_commit import release_records
from backfill_assets.lake.release_files import ReleaseFiles
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.store import Plans
from backfill_assets.publish.in_live import is_in_live

NOT_PUBLISHED = "Nothing was published."


@dataclass(frozen=True)
class Behind:
    """What keeps a channel, which gets release `number` (0: none yet), from what live has: `pointed`, the release by which a
    person pointed it there, and the `plans` that only readers of other channels get, those `left` in live although they were
    rolled back; `last` is the release with the newest tables."""

    channel: str
    number: int
    pointed: Release | None
    plans: tuple[str, ...]
    left: tuple[str, ...]
    last: int

    def of_plans(self, name: str = "it") -> list[str]:
        """What is the matter with each of the plans, in words."""
        left = "days of plan {}, which was rolled back, or made from them, are left in live"
        return [left.format(p) if p in self.left else f"plan {p} was not published to {name}" for p in self.plans]

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
        pointed = [f"it was put there: {self.pointed.reason} ({self.pointed.who})"] if self.pointed else []
        stays = f"stays at release {self.number}" if self.number else "has no release yet"
        return f"{self.channel} {stays}: {'; '.join(pointed or self.of_plans())}{self.way_out}"


def behind(root: str, newest: Release | None) -> list[Behind]:
    """The channels of the `newest` release that do not get live with the next one."""
    found = []
    for channel, number in _channels(newest).items():
        if newest and not _is_at_newest(root, newest, number):
            pointed, plans = _pointed_back(root, channel, number), plans_missing(root, newest, channel)
            left, last = tuple(filter(Plans(root).is_rolled_back, plans)), Releases(root).last_of_tables(newest).number
            found += [Behind(channel, number, pointed, plans, left, last)] if pointed or plans else []
    return found


def following(root: str, newest: Release | None) -> list[str]:
    """The channels that a release of live moves; the first release goes to `stable`."""
    staying = {each.channel for each in behind(root, newest)}
    return [channel for channel in _channels(newest) if channel not in staying]


def lagging(root: str, newest: Release | None) -> list[str]:
    """The channels that nothing keeps any more from getting what the `newest` release has, and that do not get it."""
    numbers = _channels(newest)
    return [name for name in following(root, newest) if newest and not _is_at_newest(root, newest, numbers[name])]


def plans_missing(root: str, newest: Release | None, channel: str, given: Release | None = None) -> tuple[str, ...]:
    """The plans of which live, or the release that is `given`, has rows, and which came with a later release than the one that
    readers of `channel` get; of a new channel, as of `stable`."""
    later = Releases(root).all(after=_number(newest, channel))
    named = dict.fromkeys(plan for each in later if not given or each.number <= given.number for plan in each.plans)
    return tuple(plan for plan in named if is_in_live(root, plan, given))


def came_with(root: str, plan: str) -> int:
    """The number of the release that published a plan; 0 if none did, as of one that changed nothing."""
    return ReleaseFiles(release_records(root).files()).with_plan(plan)


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
    """The plans of `together_with` that readers of `channel` get along with `plan`, who are given live, or a release.

    Guarded if they would get still others, or what a person has pointed them back from. `nothing`: what was not done.
    """
    number, missing = _number(newest, channel), [p for p in plans_missing(root, newest, channel, given) if p != plan]
    others = [each for each in missing if each not in together_with]
    if newest and channel in newest.channels and not _is_at_newest(root, newest, number):
        pointed = _pointed_back(root, channel, number)
        if pointed:
            last, other = Releases(root).last_of_tables(newest).number, CANDIDATE if channel == STABLE else STABLE
            raise Guarded(
                f"Readers of {channel} were pointed back to release {number}: {pointed.reason} ({pointed.who}). They would get "
                f"again what they were pointed back from. {nothing} If that is over, point them at release {last} first: "
                f"`backfill rollback --release {last} --channel {channel}`. If the plan mends it, publish it to {other} first "
                f"(`backfill publish {plan} --channel {other}`), then point them at the release of that."
            )
    if others and given and not any(is_in_live(root, each) for each in others):
        raise Guarded(
            f"Release {given.number}, which readers of {channel} would get, has rows of plan {', '.join(others)}, and live "
            f"has none any more, and cannot be released yet: `backfill status` says why. {nothing} Publish again then."
        )
    if others:
        named = " ".join(f"--with {each}" for each in others)
        raise Guarded(
            f"Readers of {channel} would get {len(others)} more plan(s), which were published to other channels only: "
            f"{', '.join(others)}. {nothing} If that is meant: `backfill publish {plan} --channel {channel} {named}`. If "
            f"not, take them back first: `backfill rollback {others[0]}`, and build again what that leaves."
        )
    return [each for each in missing if each in together_with]


def _channels(newest: Release | None) -> dict[str, int]:
    """The release of each channel; 0 for `stable` without one."""
    return {STABLE: 0, **(newest.channels if newest else {})}


def _number(newest: Release | None, channel: str) -> int:
    channels = _channels(newest)
    return channels.get(channel, channels[STABLE])


def _is_at_newest(root: str, newest: Release, number: int) -> bool:
    return number == newest.number or (number > 0 and Releases(root).get(number).tables == newest.tables)


def _pointed_back(root: str, channel: str, number: int) -> Release | None:
    """The release that pointed the channel at `number`, when other tables had been released already; None if it came there
    with that release itself."""
    moved: Release | None = None
    for release in Releases(root).all(after=number - 1):
        if release.channels.get(channel) != number:
            moved = None
        elif moved is None:
            moved = release
    back = moved is not None and moved.kind == POINTED and Releases(root).get(number).tables != moved.tables
    return moved if back else None
