"""Lakes that versions of the package have written, each with what must come out of it."""

import json
import tarfile
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb

from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import field
from backfill_assets.sources.files.formats import Csv
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.http.source import AnswerStore
from tests.worlds.small_lake import SmallLake

GOLDEN_LAKES = Path(__file__).resolve().parents[1] / "lake" / "golden_lakes"
ARCHIVES = sorted(GOLDEN_LAKES.glob("*.tar.xz"))
Values = dict[date, int]
# What sources keep in a lake: files of several days by day, archives, and a service's answers.
SALES = Landing("sales", format=Csv(), day="at", overlap="all", fields=[field("n BIGINT")])
PAST = Archive("past", day="at")
WEATHER = "weather"
QUERY = {"city": "Turin"}


@dataclass(frozen=True)
class GoldenLake:
    """A lake that was unpacked, and its oracle: plain values by the script that made the lake."""

    lake: SmallLake
    oracle: dict[str, Any]

    @property
    def area(self) -> LandingArea:
        return area_of(Path(self.lake.root).parent)

    @property
    def answers(self) -> AnswerStore:
        return AnswerStore(self.area, WEATHER)

    def values(self, *names: str) -> Values:
        """The value of each day that the oracle has under these names."""
        found: Any = self.oracle
        for name in names:
            found = found[name]
        return {date.fromisoformat(at): value for at, value in found.items()}


def area_of(folder: Path) -> LandingArea:
    """The landing area next to the lake in a folder."""
    return LandingArea(folder / "landing", lake=str(folder / "lake"))


def unpacked(archive: Path, folder: Path) -> GoldenLake:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    oracle = json.loads((folder / "oracle.json").read_text())
    # Later runs have other names.
    return GoldenLake(SmallLake(folder / "lake", runs=Counter(run=100)), oracle)


def rows_at(table: Path, version: int) -> Values:
    """The value of each day of a Delta table at a version, by DuckDB, from its log and its files.

    Nothing of the package reads them.
    """
    files: set[str] = set()
    for number in range(version + 1):
        for line in (table / "_delta_log" / f"{number:020d}.json").read_text().splitlines():
            action = json.loads(line)
            files -= {action["remove"]["path"]} if "remove" in action else set()
            files |= {action["add"]["path"]} if "add" in action else set()
    rows = duckdb.execute(
        "SELECT day, min(n), max(n), count(*) FROM read_parquet(?, hive_partitioning = true)"
        " GROUP BY day ORDER BY day",
        [[str(table / unquote(path)) for path in sorted(files)]],
    ).fetchall()
    assert all(least == most == count for _, least, most, count in rows), rows
    return {date.fromisoformat(str(at)): int(least) for at, least, _, _ in rows}


def newest_rows(table: Path) -> Values:
    commits = (table / "_delta_log").glob("*.json")
    return rows_at(table, max(int(commit.stem) for commit in commits))
