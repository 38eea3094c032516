"""Plans in the lake: `_plans/<id>.json`, and the events of each in `_plans/<id>/`.

Acts (`lake/recorded_acts.py`) record that a plan was published or rolled back. Its events record
the rest.

The open plans are noted in `_plans/_unsettled`, so that they are found without reading all plans.

A file is written once and never changed, so writers never overwrite each other. The names of the
files answer most questions, so a file that cannot be read affects only its own plan.
"""

import heapq
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from backfill_assets.calendar import ranges
from backfill_assets.errors import NOTHING_CHANGED, RefusedByGuard, UsageError
from backfill_assets.grouping import grouped
from backfill_assets.lake.leases import LockHeld
from backfill_assets.lake.locks import lock
from backfill_assets.lake.recorded_acts import FOREIGN, ActEntry, Acts
from backfill_assets.lake.storage import STAMP, Documents, Paths, name_after
from backfill_assets.plan.plan import Plan, read_plan

EVENT = re.compile(r"\d{8}T\d{12}-(started|requested|ended|cancelled|discarded)-[0-9a-f]+\.json")


def without_ending(name: str) -> str:
    return name.removesuffix(".json")


def events_among(names: Iterable[str]) -> list[str]:
    return [name for name in names if EVENT.fullmatch(name)]


def last_of(files: Sequence[str], among: Collection[str]) -> tuple[str, str]:
    """The kind and the file of the last event `among` these kinds; "" without one."""
    kinds = [(file.split("-")[1], file) for file in files]
    return next(((kind, file) for kind, file in reversed(kinds) if kind in among), ("", ""))


PLANNED = "planned"
OPEN = "open"
ROLLED_BACK = "rolled_back"
PUBLISHED = "published"
DISCARDED = "discarded"
# The kind of an act that leaves days of the plan in its shadow. The state of the plan stays.
PUBLISHED_IN_PART = "published_in_part"
# The event recorded before a chunk is launched.
REQUESTED = "requested"
# In these states the builds of a plan were taken back, moved or deleted. So its days do not show
# its progress.
CLOSED = (ROLLED_BACK, PUBLISHED, DISCARDED)
# The events that change the state of a plan.
STATES = ("started", "ended", "cancelled", DISCARDED)
# The folder of the notes of open plans.
_UNSETTLED = "_unsettled"
_STATE_AFTER = {"publish": PUBLISHED, "rollback": ROLLED_BACK}


@dataclass(frozen=True)
class Event:
    """An event of a plan.

    The kinds are `started`, `requested` (a chunk, recorded before its launch is sent), `ended`,
    `cancelled`, and `discarded` (its shadow was deleted). In a history, acts are events too:
    `published` (from a shadow to live), `published_in_part` and `rolled_back`.
    """

    at: datetime
    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)


_EVENT = TypeAdapter(Event)


@dataclass(frozen=True)
class Plans:
    """The plans of the lake at `root`, a directory or an object-store prefix."""

    root: str

    def keep(self, plan: Plan) -> None:
        """Write a plan atomically. A plan with the same id has the same contents."""
        try:
            self.read(plan.id)
        except UsageError:  # unknown, or no longer as stored
            self._documents.write(f"{plan.id}.json", plan.contents())

    def read(self, plan_id: str) -> Plan:
        """Return the plan with that id.

        Raises UsageError if there is none, or if its file was changed.
        """
        try:
            contents = self._documents.read(f"{plan_id}.json")
        except OSError:  # most reads find the plan, and need no listing of all plans
            self.refuse_unknown(plan_id)
            raise
        return read_plan(contents, plan_id)

    def refuse_unknown(self, plan_id: str) -> None:
        """Raise UsageError, with the ids of all plans, for an unknown id."""
        known = self.ids()
        if plan_id not in known:
            plans = (
                f"Its plans are {', '.join(known)}"
                if known
                else "It has none yet: `backfill plan` makes one"
            )
            raise UsageError(
                f"There is no plan {plan_id} in this lake.",
                unchanged="Nothing was done.",
                next_step=f"{plans}.",
            )

    def full_id(self, beginning: str) -> str:
        """Return the id that begins with this text.

        Raises UsageError if no id does, if several do, or if the text is empty.
        """
        if not beginning.strip():
            raise UsageError(
                "Which plan?",
                unchanged="Nothing was done.",
                next_step="Name one; `backfill list` shows them.",
            )
        matching = [plan_id for plan_id in self.ids() if plan_id.startswith(beginning)]
        if len(matching) > 1:
            raise UsageError(
                f"Which plan? {', '.join(matching)} begin with {beginning}.",
                unchanged="Nothing was done.",
                next_step="Type more of it.",
            )
        self.refuse_unknown(matching[0] if matching else beginning)
        return matching[0]

    def state(self, plan_id: str, files: Sequence[str] | None = None) -> str:
        """Return the state of a plan: `planned`, `open`, or how it ended last.

        An open plan was started and has not ended.

        `files` are the plan's files from `newest_first`.
        """
        kind, file = self.last_change(plan_id, files)
        if kind == "ended":
            return str(self._event(plan_id, file).facts.get("ending", kind))
        return OPEN if kind == "started" else kind or PLANNED

    def last_change(self, plan_id: str, files: Sequence[str] | None = None) -> tuple[str, str]:
        """The kind of the last act or event that changed the state of a plan; "" without one.

        An event also has its file. `files` are the plan's files from `newest_first`.
        """
        act = self.last_act(plan_id)
        if act and not act.left:
            return _STATE_AFTER[act.kind], ""
        return last_of(self.files_of(plan_id) if files is None else files, STATES)

    def open(self) -> list[str]:
        """Return the ids of the open plans.

        Only names of files are read, so a file that cannot be read affects only its own plan.
        """
        return [
            plan_id
            for plan_id, files in self._unsettled().items()
            if last_of(files, STATES)[0] == "started"
        ]

    def last_events(self) -> list[str]:
        """Return names that change when a plan opens or ends."""
        return [
            f"{plan_id}/{last_of(files, STATES)[1]}" for plan_id, files in self._unsettled().items()
        ]

    def _unsettled(self) -> dict[str, list[str]]:
        """The event files of the plans that may be open.

        Each has a note, named after the event that opened the plan.
        """
        notes = self._documents.names(_UNSETTLED)
        ids = sorted({note.partition("-")[0] for note in notes})
        return {plan_id: self.files_of(plan_id) for plan_id in ids}

    def is_rolled_back(self, plan_id: str) -> bool:
        """True if the last act of a plan is its rollback."""
        act = self.last_act(plan_id)
        return act is not None and act.kind == "rollback"

    def note(self, plan_id: str, kind: str, at: datetime, **facts: Any) -> Event:
        """Record an event of a plan after the events recorded before.

        The name of the file has the order and its contents have the time, so that the order is
        right even if another host's clock is ahead.
        """
        event = Event(at.astimezone(UTC), kind, facts)
        contents = _EVENT.dump_json(event)
        name = name_after(self.files_of(plan_id), event.at, kind)
        if kind == "started":
            # The note comes first: a killed process may leave an extra note, but never misses one.
            self._documents.write(f"{_UNSETTLED}/{plan_id}-{name}", "{}")
        self._documents.write(f"{plan_id}/{name}", contents)
        if kind in STATES and kind != "started":
            self._settle(plan_id)
        return event

    def _settle(self, plan_id: str) -> None:
        """Remove the notes of a plan that is not open.

        A note without its event stays: another process is about to record the event.
        """
        files = self.files_of(plan_id)
        if last_of(files, STATES)[0] == "started":
            return
        for note in self._documents.names(_UNSETTLED):
            of, _, file = note.partition("-")
            if of == plan_id and file in files:
                self._documents.delete(f"{_UNSETTLED}/{note}")

    def events(
        self, plan_id: str, kind: str = "", files: Sequence[str] | None = None
    ) -> list[Event]:
        """Return the events of a plan, or those of one kind, in the order of recording.

        `files` are the plan's files from `newest_first`.
        """
        files = self.files_of(plan_id) if files is None else files
        return [self._event(plan_id, file) for file in files if f"-{kind}" in file]

    def history(self, plan_id: str) -> list[Event]:
        """Return the events and acts of a plan, in the order of time."""
        acts = map(_event_of, Acts(self.root).of_plan(plan_id))
        return list(heapq.merge(self.events(plan_id), acts, key=lambda event: event.at))

    def left(self, plan_id: str) -> int:
        """Return the number of partitions that a plan's last publication left in its shadow.

        0 if the plan was never published in part, or was published or rolled back since.
        """
        act = self.last_act(plan_id)
        return act.left if act else 0

    def last_act(self, plan_id: str) -> ActEntry | None:
        """Return the decided act that published a plan, or a part of it, or rolled it back last."""
        return Acts(self.root).last_of_plans().get(plan_id)

    def files_of(self, plan_id: str) -> list[str]:
        """Return the names of the event files of one plan."""
        return events_among(self._documents.names(plan_id))

    def newest_first(self) -> dict[str, list[str]]:
        """Return the names of the event files of each plan, from one listing.

        The plan with the newest event, act or creation comes first.
        """
        listed = self._documents.by_folder()
        made = {without_ending(name): file.mtime for name, file in listed[""].items()}
        files = {plan_id: events_among(listed.get(plan_id, ())) for plan_id in made}
        acts = Acts(self.root).last_of_plans()

        def last(plan_id: str) -> str:
            times = [made[plan_id], *([acts[plan_id].at] if plan_id in acts else [])]
            # The name of an event begins with its time.
            return max([*files[plan_id][-1:], *(f"{at.astimezone(UTC):{STAMP}}" for at in times)])

        return {plan_id: files[plan_id] for plan_id in sorted(files, key=last, reverse=True)}

    def _event(self, plan_id: str, file: str) -> Event:
        try:
            return _EVENT.validate_json(self._documents.read(f"{plan_id}/{file}"))
        except ValueError:
            raise UsageError(
                f"{Paths(self.root).plans}/{plan_id}/{file} cannot be read.",
                unchanged="Nothing was done.",
                next_step=(
                    "Delete that file: it says only when and by whom a plan was started or ended."
                ),
            ) from None

    @contextmanager
    def exclusive(self, plan_id: str) -> Iterator[Callable[[], None]]:
        """Hold the lock of a plan: only one command at a time launches, publishes or changes it."""
        try:
            with lock(self.root, f"plan.{plan_id}") as refuse_lost:
                yield refuse_lost
        except LockHeld:
            # A lease in an object store ends later than its process.
            was_killed = "" if Paths(self.root).is_local else ", or ended a minute ago at most"
            raise RefusedByGuard(
                f"Another command is carrying out plan {plan_id}{was_killed}.",
                unchanged=NOTHING_CHANGED,
                next_step=(
                    f"`backfill watch {plan_id}` follows it. Type the same again when it has ended."
                ),
            ) from None

    def ids(self) -> list[str]:
        return list(map(without_ending, self._documents.names()))

    @cached_property
    def _documents(self) -> Documents:
        return Documents(Paths(self.root).plans)


OUTCOME_COLUMNS = ("table", "days", "computed", "up to date", "failed", "blocked", "not run")


def in_words(name: str) -> str:
    """A state or a kind of event in words."""
    return name.replace("_", " ")


def _event_of(act: ActEntry) -> Event:
    facts: dict[str, Any] = {"who": act.who, "reason": act.reason, **act.counts}
    if act.kind == "publish":
        days = grouped(act.foreign)
        withheld = [f"{table} {ranges(of)}: {FOREIGN}" for table, of in days.items()]
        facts |= {"release": act.release, "withheld": "; ".join(withheld)}
    return Event(act.at, PUBLISHED_IN_PART if act.left else _STATE_AFTER[act.kind], facts)


def event_words(event: Event) -> str:
    """Return a sentence: the event, who caused it, and why."""
    facts = event.facts
    by = f" by {facts['who']}" if facts.get("who") else ""
    why = f": {facts['reason']}" if facts.get("reason") else ""
    if event.kind == REQUESTED:
        return f"chunk {facts.get('chunk', '?')} was requested"
    if event.kind == "ended":
        return f"ended: {facts.get('ending', '')}" + (
            f", {facts['why']}" if facts.get("why") else ""
        )
    if event.kind in (PUBLISHED, PUBLISHED_IN_PART):
        release = f" as release {facts['release']}" if facts.get("release") else ""
        withheld = f", without a release ({facts['withheld']})" if facts.get("withheld") else ""
        part = f" ({_of_part(facts)})" if event.kind == PUBLISHED_IN_PART else ""
        return f"{in_words(event.kind)}{by}{release}{withheld}{why}{part}"
    if event.kind == ROLLED_BACK:
        removed = f", {facts['removed']} removed" if facts.get("removed") else ""
        stays = f", {facts['left']} stay" if facts.get("left") else ""
        counts = f"{facts['restored']} partition(s) restored{removed}{stays}"
        return f"rolled back{by}{why} ({counts})"
    return f"{in_words(event.kind)}{by}{why}"


def _of_part(facts: Mapping[str, Any]) -> str:
    """The counts of a publication in part."""
    partitions = facts["published"] + facts["left"]
    return f"{facts['published']} of {partitions} partition(s), {facts['left']} stay in the shadow"


@dataclass(frozen=True)
class Ended:
    """The recorded end of a plan, with its seconds and the counts of each of its tables.

    Old records have no counts.
    """

    ending: str
    why: str
    seconds: float
    tables: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    early_stops: Sequence[str] = ()

    def rows(self) -> list[tuple[object, ...]]:
        """A row for each table, with the columns `OUTCOME_COLUMNS`."""
        names = ("saved", "failed", "blocked", "pending")
        return [
            (name, count["days"], count["done"] - count["saved"], *map(count.__getitem__, names))
            for name, count in self.tables.items()
        ]

    def line(self, plan_id: str) -> str:
        stopped = f" Stopped: {self.why.rstrip('.')}." if self.why else ""
        return f"Plan {plan_id}: {self.ending} after {self.seconds:.0f} s.{stopped}"


def how_ended(events: Sequence[Event]) -> Ended | None:
    """Return the end of the last command's work on a plan; None if there was none."""
    last = next((n for n in reversed(range(len(events))) if events[n].kind == "ended"), None)
    if last is None:
        return None
    end = events[last]
    before = [event for event in events[:last] if event.kind == "started"]
    seconds = (end.at - before[-1].at).total_seconds() if before else 0.0
    ending = end.facts.get("ending", "")
    why = end.facts.get("why", "")
    tables = end.facts.get("tables", {})
    return Ended(ending, why, seconds, tables, end.facts.get("early_stops", ()))
