"""Comparing the manifest of a large landing area: `python -m tests.benchmarks.manifest [--days
10000] [--files 10]`.

Prints the seconds of a first look, which reads every file, and of a second one by another process,
which reads none of them; beside `os.walk` with a `stat` of each file, the least that anybody must
do who looks at all of them.
"""

import argparse
import os
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.formats import FileContents
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.files.manifest import Manifest, manifest_at
from backfill_assets.sources.filesystem import Entry
from backfill_assets.sources.protocol import Delivery

LINE = b'{"n": 1}\n'
LONG_AGO = 1_500_000_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=10)
    given = parser.parse_args()
    days = [date(1995, 1, 1) + timedelta(days=n) for n in range(given.days)]
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        area = LandingArea(Path(folder, "landing"), Path(folder, "cache"))
        source = Landing("events")
        for day in days:
            of_day = (
                area.root / source.name / f"year={day:%Y}" / f"month={day:%m}" / f"day={day:%d}"
            )
            of_day.mkdir(parents=True)
            for n in range(given.files):
                (of_day / f"{n}.jsonl").write_bytes(LINE)
                os.utime(of_day / f"{n}.jsonl", (LONG_AGO, LONG_AGO))
        # Files that changed just now are read again, for clocks of file systems are coarse: here it
        # is a minute later.
        manifest_at(area.manifest(source.name, source.format), source.format, area.files).clock = (
            lambda: time.time() + 60
        )
        first, delivered = timed(source, area, days)
        manifest_at.cache_clear()  # as in another process
        read = list[Entry]()
        known = Manifest.read

        def noted(self: Manifest, file: Entry) -> FileContents:
            read.append(file)
            return known(self, file)

        Manifest.read = noted  # type: ignore[method-assign]
        second, again = timed(source, area, days)
        assert delivered == again
        assert all(
            isinstance(each, Delivery) and len(each.files) == given.files for each in again.values()
        )
        started = time.monotonic()
        looked = sum(
            Path(top, name).stat().st_size for top, _, names in os.walk(area.root) for name in names
        )
        walk = time.monotonic() - started
    print(f"{given.days} days of {given.files} files, {looked:,} bytes")
    print(
        f"first look {first:.2f} s; second look {second:.2f} s, {len(read)} file(s) read; os.walk"
        f" and stat {walk:.2f} s"
    )
    print(f"second look / walk: {second / walk:.2f}")


def timed(source: Landing, area: LandingArea, days: list[date]) -> tuple[float, dict]:
    started = time.monotonic()
    delivered = source.delivered(area, days)
    return time.monotonic() - started, dict(delivered)


if __name__ == "__main__":
    main()
