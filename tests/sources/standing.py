"""A clock that stands still but for what is slept on it."""

from dataclasses import dataclass, field

from backfill_assets.sources.budget import Moment


@dataclass
class Clock:
    """`now`: the time as it passes. `set_by`: how many seconds the machine's time was set forward. `boot`: its last start."""

    now: float = 1_566_000_000.0
    set_by: float = 0.0
    boot: str = "a start"
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> Moment:
        return Moment(self.boot, self.now - 1_000_000.0, self.now + self.set_by)

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += seconds
