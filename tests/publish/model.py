"""Publications in memory: what live, releases and channels hold after any acts, in plain Python."""

from dataclasses import dataclass, field
from datetime import date

from backfill_assets.plan.plan import Plan


@dataclass
class ShadowPlan:
    """A plan, what its shadow holds, and what live held of its days when it was opened, or moved."""

    plan: Plan
    values: dict[date, int]
    opened: dict[date, int]

    def conflicts(self, live: dict[date, int]) -> set[date]:
        """The days of which live has other rows than when it was opened, and than the shadow."""
        return {day for day, value in self.values.items() if live[day] not in (self.opened[day], value)}


@dataclass
class Model:
    """Live by day, who wrote which value in order, and whose rows these were; releases as the values of all days; which one
    each channel has.

    Readers of the channels in `switched` get the other table, which nobody writes to. `first`: of each plan that is published,
    the release that it came with.
    """

    wrote: dict[date, list[tuple[str, int, str]]] = field(default_factory=dict)
    commits: int = 0
    releases: list[tuple[int, dict[date, int]]] = field(default_factory=list)
    channels: dict[str, int] = field(default_factory=dict)
    switched: set[str] = field(default_factory=set)
    first: dict[str, int] = field(default_factory=dict)
    rolled_back: set[str] = field(default_factory=set)

    @property
    def live(self) -> dict[date, int]:
        return {day: of[-1][1] for day, of in self.wrote.items()}

    def write(self, values: dict[date, int], who: str, whose: dict[date, str] | None = None) -> None:
        changed = {day: value for day, value in values.items() if self.live.get(day) != value}
        self.commits += bool(changed)
        for day, value in changed.items():
            self.wrote.setdefault(day, []).append((who, value, (whose or {}).get(day, who)))

    def release(self, channels: list[str]) -> None:
        self.releases.append((self.commits, self.live))
        if "stable" in self.switched:
            self.switched |= set(channels) - set(self.channels)
        self.channels |= dict.fromkeys(channels, len(self.releases) - 1)

    def at_newest(self, channel: str) -> bool:
        return self.releases[self.channels[channel]][0] == self.releases[-1][0]

    def missing(self, channel: str) -> set[str]:
        """The published plans of which live has rows, and that readers of a channel have not got."""
        number = self.channels.get(channel, self.channels.get("stable", -1))
        in_live = {of[-1][2] for of in self.wrote.values()}
        return {plan for plan, first in self.first.items() if first > number and plan in in_live}

    def following(self) -> list[str]:
        return [name for name in self.channels if self.at_newest(name) or not self.missing(name)]

    def has(self, channel: str) -> bool:
        """Whether readers of the channel get live as it is."""
        return channel in self.channels and self.releases[self.channels[channel]][0] == self.commits

    def release_live(self) -> None:
        if not self.releases or self.releases[-1][0] != self.commits or not all(map(self.at_newest, self.following())):
            self.release(self.following() if self.releases else ["stable"])
