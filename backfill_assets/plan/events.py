"""The events of a plan in words, and how it ended by them: what was recorded then, whatever has become of its days since."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backfill_assets.plan.store import PUBLISHED, PUBLISHING, REQUESTED, ROLLED_BACK, Event

OUTCOME_COLUMNS = ("table", "days", "computed", "up to date", "failed", "blocked", "not run")


def in_words(name: str) -> str:
    """A state or a kind of event as people say it."""
    return name.replace("_", " ")


def event_words(event: Event) -> str:
    """What happened, who did it, and why."""
    facts = event.facts
    by = f" by {facts['who']}" if facts.get("who") else ""
    why = f": {facts['reason']}" if facts.get("reason") else ""
    if event.kind == REQUESTED:
        return f"chunk {facts.get('chunk', '?')} was requested"
    if event.kind == "ended":
        return f"ended: {facts.get('ending', '')}" + (f", {facts['why']}" if facts.get("why") else "")
    if event.kind == PUBLISHING:
        to = f" to {facts['channel']}" if facts.get("channel") else ""
        return f"publication{to} begun{by}{why}"
    if event.kind == PUBLISHED:
        return f"published{by} as release {facts.get('release', '?')}{why}"
    if event.kind == ROLLED_BACK:
        stays = f", {facts['left']} stay" if facts.get("left") else ""
        return f"rolled back{by}{why} ({facts.get('restored', 0)} partition(s) put back{stays})"
    return f"{in_words(event.kind)}{by}{why}"


@dataclass(frozen=True)
class Ended:
    """How a plan ended, after how many seconds, and the counts of each of its tables then (old records have none)."""

    ending: str
    why: str
    seconds: float
    tables: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    early_stops: Sequence[str] = ()

    def rows(self) -> list[tuple[str, ...]]:
        """A row a table, of `OUTCOME_COLUMNS`."""
        return [
            (name, *map(str, (t["days"], t["done"] - t["saved"], t["saved"], t["failed"], t["blocked"], t["pending"])))
            for name, t in self.tables.items()
        ]

    def line(self, plan_id: str) -> str:
        stopped = f" Stopped: {self.why.rstrip('.')}." if self.why else ""
        return f"Plan {plan_id}: {self.ending} after {self.seconds:.0f} s.{stopped}"


def how_ended(events: Sequence[Event]) -> Ended | None:
    """How the last command's work on a plan ended, counted from when that was started; None if none has."""
    last = next((n for n in reversed(range(len(events))) if events[n].kind == "ended"), None)
    if last is None:
        return None
    end, before = events[last], [event for event in events[:last] if event.kind == "started"]
    seconds = (end.at - before[-1].at).total_seconds() if before else 0.0
    ending, why, tables = end.facts.get("ending", ""), end.facts.get("why", ""), end.facts.get("tables", {})
    return Ended(ending, why, seconds, tables, end.facts.get("early_stops", ()))
