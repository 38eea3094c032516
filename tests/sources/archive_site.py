"""A landing area with archives, and the lake that they are taken into."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.lake.archived import archived
from backfill_assets.sources.archive import Archive
from backfill_assets.sources.archive_lines import Line, Reading
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.load_slice import LoadResult
from backfill_assets.sources.take_in import take_in
from tests.deliveries import day
from tests.sources.files import put

PAST = Archive("past", day="at")
DAYS = [day(n) for n in range(4)]


def rows(*days: date, **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, "at": f"{at}T12:00:00Z", **more} for n, at in enumerate(days)]


def lines(*rows: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@dataclass
class Site:
    """A landing area with archives, and the lake that they are taken into."""

    root: Path
    archive: Archive = PAST

    @property
    def area(self) -> LandingArea:
        return LandingArea(self.root / "landing", lake=str(self.root / "lake"))

    def put(self, name: str, text: str | bytes) -> Path:
        return put(self.area.root, f"past/{name}", text)

    def run(self, **given: Any) -> dict[str, LoadResult]:
        return {each.name: each for each in take_in(self.archive, self.area, **given)}

    def held(self) -> dict[date, list[str]]:
        """The lines of each day, read without the code under test but for which files are of which day."""
        folder = self.root / "lake" / "_archived" / "past"
        return {
            at: sorted(
                line
                for files in of_day.values()
                for file in files
                for line in pq.read_table(folder / file.path)["line"].to_pylist()
            )
            for at, of_day in archived(str(folder)).days().items()
        }

    def version(self) -> int:
        return archived(str(self.root / "lake" / "_archived" / "past")).version


def expected(*rows: dict[str, Any]) -> dict[date, list[str]]:
    days: dict[date, list[str]] = {}
    for row in rows:
        days.setdefault(date.fromisoformat(row["at"][:10]), []).append(json.dumps(row))
    return {at: sorted(of_day) for at, of_day in days.items()}


class Killed(BaseException):
    pass


class KilledAfter(Reading):
    """A reading that is killed before its eighth line."""

    def lines(self) -> Iterator[Line]:
        for n, line in enumerate(super().lines()):
            if n == 7:
                raise Killed
            yield line


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()
