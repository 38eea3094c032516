"""An archive of a year, taken in, beside a hand-written script that splits the same one: `python -m
tests.benchmarks.archive`.

The script reads the archive line by line, gathers lines by day, and writes them to a Delta table
partitioned by day, in one commit. It hashes nothing, counts nothing, and holds the whole year in
memory. Each is a process of its own, in turn.
"""

import argparse
import gzip
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

FIRST = date(2019, 1, 1)
DAYS = 365
NAME = "past/2019.jsonl.gz"


def make(path: Path, rows: int) -> None:
    """An archive of so many rows a day, in the order of their days."""
    chance = random.Random(1)
    path.parent.mkdir(parents=True)
    with gzip.open(path, "wt", compresslevel=6) as file:
        for n in range(DAYS):
            for at in range(rows):
                row = {
                    "captured_at": f"{FIRST + timedelta(days=n)}T{at * 24 // rows:02}:00:00Z",
                    "number": f"{n}-{at}",
                    "region": chance.choice(
                        ["North Coast", "Sierra", "Central Valley", "Bay Area"]
                    ),
                    "customers": chance.randrange(10_000),
                    "latitude": round(chance.uniform(35, 42), 6),
                    "longitude": round(chance.uniform(-124, -119), 6),
                    "cause": chance.choice(
                        ["Planned", "Unknown", "Equipment", "Weather, assessed by a crew on site"]
                    ),
                }
                file.write(f"{json.dumps(row)}\n")


def by_hand(root: Path) -> dict[str, object]:
    import pyarrow as pa
    from deltalake import write_deltalake

    days: dict[str, list[str]] = {}
    with gzip.open(root / "landing" / NAME, "rt") as file:
        for line in file:
            days.setdefault(json.loads(line)["captured_at"][:10], []).append(line.rstrip("\n"))
    table = pa.table(
        {
            "day": pa.array([day for day, lines in days.items() for _ in lines]).cast(pa.date32()),
            "source_file": [NAME] * sum(map(len, days.values())),
            "line": [line for lines in days.values() for line in lines],
        }
    )
    write_deltalake(str(root / "by_hand"), table, partition_by=["day"])
    return {"rows": table.num_rows}


def taken_in(root: Path) -> dict[str, object]:
    from backfill_assets.sources.archives.archive import Archive
    from backfill_assets.sources.archives.loading import take_in
    from backfill_assets.sources.area import LandingArea

    archive = Archive("past", day="captured_at")
    area = LandingArea(root / "landing", lake=str(root / "lake"))
    (taken,) = take_in(archive, area)
    begun = time.perf_counter()
    again = list(take_in(archive, area))
    idle = time.perf_counter() - begun
    return {
        "rows": taken.rows,
        "days": len(taken.days),
        "bytes_read": taken.bytes_read,
        "idle_reads": len(again),
        "idle_s": idle,
    }


WAYS = {"by hand": by_hand, "taken in": taken_in}


def measured(way: str, root: Path) -> dict[str, object]:
    for folder in ("lake", "by_hand"):
        shutil.rmtree(root / folder, ignore_errors=True)
    begun = time.perf_counter()
    command = [sys.executable, "-m", "tests.benchmarks.archive", "--only", way, "--root", str(root)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout) | {"seconds": time.perf_counter() - begun}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=3000, help="rows a day")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        result = WAYS[given.only](given.root)
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(
            json.dumps(
                result | {"cpu": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss // 1024}
            )
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make(root / "landing" / NAME, given.rows)
        size = (root / "landing" / NAME).stat().st_size
        print(f"an archive of {DAYS} days, {DAYS * given.rows:,} rows, {size:,} bytes")
        figures: dict[str, dict[str, list[float]]] = {
            name: {way: [] for way in WAYS} for name in ("seconds", "cpu")
        }
        for _ in range(given.times):
            for way in WAYS:
                result = measured(way, root)
                for name, by_way in figures.items():
                    by_way[way].append(float(str(result[name])))
                print(f"  {way}: {result}")
        for (
            name,
            by_way,
        ) in figures.items():  # on a machine that others use, the seconds of the processor say more
            hand, taken = (statistics.median(by_way[way]) for way in WAYS)
            print(f"{name}: by hand {hand:.1f}, taken in {taken:.1f}, ratio {taken / hand:.2f}")
        print(
            f"bytes read: {result['bytes_read']:,} of {size:,}; by a second run: none, in"
            f" {result['idle_s']} s"
        )


if __name__ == "__main__":
    main()
