"""Which channels get live with its next release, and what keeps the others where they are.

A channel stays behind for two reasons: a person has pointed it at an earlier release, or a plan was published to readers of
other channels only. Once that is over, it gets what the others get. `stable` is a channel before it has its first release.
"""

from collections.abc import Collection
from dataclasses import dataclass

from backfill_assets.errors import Guarded
from backfill_assets.lake.release import POINTED, STABLE, Release
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.store import PUBLISHED, Plans

NOT_PUBLISHED = "Nothing was published."


@dataclass(frozen=True)
class Behind:
    """What keeps a channel, which gets release `number` (0: none yet), from what live has: `pointed`, the release by which a
    person pointed it there, and the `plans` that only readers of other channels get."""

    channel: str
    number: int
    pointed: Release | None
    plans: tuple[str, ...]

    def __str__(self) -> str:
        causes = [f"it was put there: {self.pointed.reason} ({self.pointed.who})"] if self.pointed else []
        to = "" if self.channel == STABLE else f" --channel {self.channel}"
        causes += [f"plan {plan} was not published to it (`backfill publish {plan}{to}`)" for plan in self.plans]
        stays = f"stays at release {self.number}" if self.number else "has no release yet"
        return f"{self.channel} {stays}: {'; '.join(causes)}"


def behind(root: str, newest: Release | None) -> list[Behind]:
    """The channels of the `newest` release that do not get live with the next one."""
    found = []
    for channel, number in _channels(newest).items():
        if newest and not _is_at_newest(root, newest, number):
            of_channel = Behind(channel, number, _pointed_back(root, channel, number), plans_missing(root, newest, channel))
            found += [of_channel] if of_channel.pointed or of_channel.plans else []
    return found


def following(root: str, newest: Release | None) -> list[str]:
    """The channels that a release of live moves; the first release goes to `stable`."""
    staying = {each.channel for each in behind(root, newest)}
    return [channel for channel in _channels(newest) if channel not in staying]


def lagging(root: str, newest: Release | None) -> list[str]:
    """The channels that nothing keeps any more from getting what the `newest` release has, and that do not get it."""
    numbers = _channels(newest)
    return [name for name in following(root, newest) if newest and not _is_at_newest(root, newest, numbers[name])]


def plans_missing(root: str, newest: Release | None, channel: str) -> tuple[str, ...]:
    """The published plans that readers of other channels get, and those of `channel` do not; of a new one, as of `stable`."""
    number, plans = _number(newest, channel), Plans(root)
    first = {plan: plans.events(plan, PUBLISHED)[0] for plan in plans.ids() if plans.state(plan) == PUBLISHED}
    return tuple(plan for plan, published in first.items() if int(published.facts["release"]) > number)


def refuse_others(root: str, plan: str, channel: str, together_with: Collection[str] = ()) -> None:
    """Guarded if readers of `channel` would get more than `plan` and what is in `together_with`: other plans, or what a person
    has pointed them back from."""
    newest = Releases(root).newest()
    number = _number(newest, channel)
    others = [each for each in plans_missing(root, newest, channel) if each not in (plan, *together_with)]
    if newest and channel in newest.channels and not _is_at_newest(root, newest, number):
        pointed = _pointed_back(root, channel, number)
        if pointed:
            last = Releases(root).last_of_tables(newest).number
            raise Guarded(
                f"Readers of {channel} were pointed back to release {number}: {pointed.reason} ({pointed.who}). They would get "
                f"again what they were pointed back from. {NOT_PUBLISHED} If that is over, point them at release {last} first: "
                f"`backfill rollback --release {last} --channel {channel}`."
            )
    if others:
        named = " ".join(f"--with {each}" for each in others)
        raise Guarded(
            f"Readers of {channel} would get {len(others)} more plan(s), which were published to other channels only: "
            f"{', '.join(others)}. {NOT_PUBLISHED} If that is meant: `backfill publish {plan} --channel {channel} {named}`. If "
            f"not, take them back first: `backfill rollback {others[0]}`."
        )


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
