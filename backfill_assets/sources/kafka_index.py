"""Which offsets of a topic hold the records of which day: read off the records' own timestamps, each record once.

The index is saved in a file, so that the next process reads only what came since. Losing that file costs time and nothing else.
"""

import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from backfill_assets.lake.cache_folder import make_cache
from backfill_assets.sources.kafka_topic import DAY_MS, Held, Run, Topic

EPOCH = date(1970, 1, 1)
# Of what is saved. Increase it with any change of what is known of a partition.
FORM = 1
# Records of other days between two of a day are read along, rather than asking twice; and so many times at most.
GAP, MOST = 10_000, 8


class Known(NamedTuple):
    """What is known of a partition: the records with offsets of at least `first` and below `end`."""

    first: int = 0
    end: int = 0
    runs: Sequence[Run] = ()

    def gone_until(self, begins: int) -> int | None:
        """The last day of which records may have been deleted: those before the offset `begins`; None if there are none."""
        if not begins or self.first > begins:  # an earlier day's record is still held before the first that is known
            return None
        deleted = [run.day for run in self.runs if run.first < begins]
        return max(deleted) if deleted else self.runs[0].day if self.runs else None


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

    def up_to_now(self, topic: Topic, held: Held, day: date) -> Mapping[int, Known]:
        """The partitions, with every record of `day` and later days that the topic holds. Only what is new of it is read."""
        with self.lock:
            ends = {number: end for number, (_, end) in held.offsets.items()}
            if self.topic_id != held.id or any(ends.get(number, -1) < known.end for number, known in self.partitions.items()):
                self.topic_id, self.partitions = held.id, {}  # another topic of the same name
            begins = topic.first_at(number_of(day) * DAY_MS, held)
            known = {number: Known(begin, begin) for number, begin in begins.items()}
            # What was deleted before it was read leaves a gap, before which nothing counts.
            known |= {number: each for number, each in self.partitions.items() if each.end >= held.offsets[number][0]}
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
                draft = self.path.with_suffix(f".{os.getpid()}")
                draft.write_text(json.dumps({"form": FORM, "topic": self.topic_id, "partitions": self.partitions}))
                draft.replace(self.path)


@cache
def index_at(path: Path | None, topic: Topic) -> Index:
    """The one index of this process that is saved at `path`."""
    return Index(path)


def joined(earlier: Sequence[Run], later: Sequence[Run]) -> list[Run]:
    """Runs that follow each other as one list; two of one day where they meet become one."""
    if earlier and later and earlier[-1].day == later[0].day:
        a, b = earlier[-1], later[0]
        return [*earlier[:-1], Run(a.day, a.first, b.end, a.records + b.records, a.size + b.size), *later[1:]]
    return [*earlier, *later]


def ranges(runs: Sequence[Run]) -> list[tuple[int, int]]:
    """The offsets to read for the runs of some days: few ranges, with what lies between runs that are near each other."""
    gaps = sorted((after.first - run.end for run, after in pairwise(runs)), reverse=True)
    near = max(GAP, gaps[MOST - 1] if len(gaps) >= MOST else 0)
    spans: list[tuple[int, int]] = []
    for run in runs:
        if spans and run.first - spans[-1][1] <= near:
            spans[-1] = (spans[-1][0], run.end)
        else:
            spans.append((run.first, run.end))
    return spans


def number_of(day: date) -> int:
    return (day - EPOCH).days


def day_of(number: int) -> date:
    return EPOCH + timedelta(days=number)
