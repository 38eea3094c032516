"""Which offsets of a topic hold the records of which day: read off the records' own timestamps, each record once.

The index is saved in a file, so that the next process reads only what came since. Losing that file costs time and nothing else.
"""

import json
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from backfill_assets.lake.cache_folder import make_cache
from backfill_assets.lake.documents import write_whole
from backfill_assets.sources.kafka_topic import DAY_MS, GAP, Run, Topic, TopicState

EPOCH = date(1970, 1, 1)
# Of what is saved. Increase it with any change of what is known of a partition.
FORM = 2
# The most ranges of a partition that are read; more only where they are few.
MOST = 8


class Gone(NamedTuple):
    """The days that may have lost records: those up to the day `until`, and `days`."""

    until: int = -1
    days: Collection[int] = frozenset()

    def __contains__(self, day: object) -> bool:
        return isinstance(day, int) and (day <= self.until or day in self.days)


NOTHING_GONE = Gone()


class Known(NamedTuple):
    """What is known of a partition: the records with offsets of at least `first` and below `end`."""

    first: int = 0
    end: int = 0
    runs: Sequence[Run] = ()

    def gone(self, begins: int, today: int) -> Gone:
        """The days of which records may have been deleted: those before the offset `begins`."""
        if not begins or not self.runs or self.first > begins:  # there is a record still, before the first that is known
            return NOTHING_GONE
        deleted = frozenset(run.day for run in self.runs if run.first < begins and run.day <= today)
        if not self.first:
            return Gone(days=deleted)
        # Of what was deleted unseen, the order of time tells the days: by the first record, but of no clock that was ahead.
        return Gone(next((run.day for run in self.runs if run.day <= today), today), deleted)


@dataclass
class Index:
    """The index of one topic, saved at `path`, if it is given."""

    path: Path | None
    topic_id: str = ""
    partitions: dict[int, Known] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            saved = json.loads(self.path.read_text()) if self.path else {}
            if saved["form"] == FORM:
                self.partitions = {
                    int(number): Known(first, end, [Run(*run) for run in runs])
                    for number, (first, end, runs) in saved["partitions"].items()
                }
                self.topic_id = saved["topic"]

    def up_to_now(self, topic: Topic, state: TopicState, day: date) -> Mapping[int, Known]:
        """The partitions, with every record of `day` and later days that the topic has. Only what is new of it is read."""
        with self.lock:
            ends = {number: end for number, (_, end) in state.offsets.items()}
            if self.topic_id != state.id or any(ends.get(number, -1) < known.end for number, known in self.partitions.items()):
                self.topic_id, self.partitions = state.id, {}  # another topic of the same name
            begins = topic.first_at(number_of(day) * DAY_MS, state)
            known = {number: Known(begin, begin) for number, begin in begins.items()}
            # What was deleted before it was read leaves a gap, before which nothing counts.
            known |= {number: each for number, each in self.partitions.items() if each.end >= state.offsets[number][0]}
            before = {number: (begins[number], each.first) for number, each in known.items() if begins[number] < each.first}
            since = {number: (each.end, ends[number]) for number, each in known.items() if each.end < ends[number]}
            for number, runs in topic.runs(before).items():
                known[number] = Known(begins[number], known[number].end, joined(runs, known[number].runs))
            for number, runs in topic.runs(since).items():
                known[number] = Known(known[number].first, ends[number], joined(known[number].runs, runs))
            if known != self.partitions:
                self.partitions = known
                self._save()
            return known

    def _save(self) -> None:
        if self.path:
            with suppress(OSError):
                make_cache(self.path.parent)
                index = {"form": FORM, "topic": self.topic_id, "partitions": self.partitions}
                write_whole(self.path, json.dumps(index))


@cache
def index_at(path: Path | None, topic: Topic) -> Index:
    """The one index of this process that is saved at `path`."""
    return Index(path)


def joined(earlier: Sequence[Run], later: Sequence[Run]) -> list[Run]:
    """Runs of a partition as one list; those of a day that are near each other become one."""
    runs: dict[int, list[Run]] = {}
    for run in [*earlier, *later]:
        of_day = runs.setdefault(run.day, [])
        if of_day and run.first - of_day[-1].end <= GAP:
            before = of_day[-1]
            of_day[-1] = Run(run.day, before.first, run.end, before.records + run.records, before.size + run.size)
        else:
            of_day.append(run)
    return sorted((run for of_day in runs.values() for run in of_day), key=lambda run: run.first)


def ranges(runs: Sequence[Run]) -> list[tuple[int, int]]:
    """The offsets to read for the runs of some days: few ranges, with what lies between runs that are near each other."""
    spans = _merged([(run.first, run.end) for run in runs], 0)
    gaps = sorted((after[0] - span[1] for span, after in pairwise(spans)), reverse=True)
    return _merged(spans, max(GAP, gaps[MOST - 1] if len(gaps) >= MOST else 0))


def _merged(spans: Sequence[tuple[int, int]], near: int) -> list[tuple[int, int]]:
    """Ranges in the order of their beginnings, of which those that are near each other have become one."""
    merged: list[tuple[int, int]] = []
    for first, end in spans:
        if merged and first - merged[-1][1] <= near:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((first, end))
    return merged


def number_of(day: date) -> int:
    return (day - EPOCH).days


def day_of(number: int) -> date:
    return EPOCH + timedelta(days=number)
