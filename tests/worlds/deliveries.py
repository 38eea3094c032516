"""Deliveries: the days of the sample by number, changes in the source's form, files, and random
histories.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from backfill_assets.errors import SourceError
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery, Source

FIRST = date(2019, 8, 15)


def day(number: int) -> date:
    """The calendar's day `number`, counted from 0."""
    return FIRST + timedelta(days=number)


def days(*numbers: int) -> list[date]:
    return [day(number) for number in numbers]


def change(outage: str = "1", **fields: Any) -> dict[str, Any]:
    """A delivered change of an outage. Fields with None are left out."""
    known = {
        "outageNumber": outage,
        "outageStartTime": "1565870400",
        "lastUpdateTime": "1565870500",
        "cause": "Unknown",
        "crewCurrentStatus": "on its way",
        "estCustAffected": "5",
        "hazardFlag": "0",
        "latitude": "38.5",
        "longitude": "-122.5",
        "regionName": "Napa",
        "n_devices": 1,
        "_op": "I",
        "_captured_at": "2019-08-15T12:01:00Z",
        "_commit": "abc",
    }
    return {name: value for name, value in (known | fields).items() if value is not None}


def arriving(at: int, *numbers: int, began: int, **fields):
    """Changes that arrive on one day, about outages that began on another."""
    epoch = 1565827200 + began * 86400 + 3600
    seen = f"{day(at)}T20:00:00Z"
    return [
        change(str(100 * began + n), outageStartTime=str(epoch), _captured_at=seen, **fields)
        for n in numbers
    ]


LINE = '{"outageNumber": "1"}\n'


def put(root: Path, name: str, text: str | bytes = LINE) -> Path:
    """Write a file with this text. It is packed if its name says so and the text is not bytes."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(text, str):
        text = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    path.write_bytes(text)
    return path


def delivery_of(source: Source, area: LandingArea, at: date = FIRST) -> Delivery:
    """A day's delivery, which must be usable."""
    delivery = source.delivered(area, [at])[at]
    assert isinstance(delivery, Delivery), delivery
    return delivery


def refusal_of(source: Source, area: LandingArea, at: date = FIRST) -> SourceError:
    """The reason why a day's delivery cannot be used."""
    refusal = source.delivered(area, [at])[at]
    assert isinstance(refusal, SourceError), refusal
    return refusal


ARRIVALS = days(*range(4))
NAMES = ("a.jsonl.gz", "b.jsonl.gz")


@dataclass(frozen=True)
class Row:
    """A change of an outage that began this many days before its arrival, at `minute`."""

    began_before: int
    outage: int
    minute: int
    change: str

    def line(self, arrival: int) -> str:
        began = arrival - self.began_before
        epoch = 1565827200 + began * 86400
        customers = str(1 + self.minute)
        at = f"{day(arrival)}T10:{self.minute:02}:00Z"
        named = change(
            f"{began}/{self.outage}",
            outageStartTime=str(epoch),
            estCustAffected=customers,
            _captured_at=at,
        )
        return json.dumps(named | {"_op": self.change})


@dataclass(frozen=True)
class Published:
    """A file of an arrival day, with these rows in this order. A file with the same name replaces
    it.
    """

    arrival: int
    name: str
    rows: tuple[Row, ...]

    @property
    def day(self) -> date:
        return day(self.arrival)

    def lines(self) -> list[str]:
        return [row.line(self.arrival) for row in self.rows]

    def deliver(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.name).write_bytes(
            gzip.compress("".join(f"{line}\n" for line in self.lines()).encode(), mtime=0)
        )


def rows() -> st.SearchStrategy[Row]:
    return st.builds(
        Row, st.integers(0, 3), st.integers(0, 2), st.integers(0, 3), st.sampled_from("IUD")
    )


def publications() -> st.SearchStrategy[Published]:
    # From few different rows, so that rows repeat within a file and across files.
    some = st.lists(rows(), min_size=1, max_size=5).map(tuple)
    return st.builds(Published, st.integers(0, 3), st.sampled_from(NAMES), some)


def with_every_day(history: Sequence[Sequence[Published]]) -> list[list[Published]]:
    """The same history, after a file for each day, so that no day lacks another."""
    first = [Published(n, "first.jsonl.gz", (Row(0, 0, 0, "I"),)) for n in range(len(ARRIVALS))]
    return [[*first, *history[0]], *map(list, history[1:])]


def histories() -> st.SearchStrategy[Sequence[Sequence[Published]]]:
    """The publications between successive builds."""
    return st.lists(st.lists(publications(), min_size=1, max_size=4), min_size=1, max_size=4)


def standing(history: Sequence[Sequence[Published]]) -> dict[tuple[date, str], Published]:
    """The files that exist at the end."""
    return {(each.day, each.name): each for batch in history for each in batch}
