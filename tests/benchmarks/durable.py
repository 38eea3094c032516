"""What it costs to put a lake on the disk before it is acknowledged: `python -m
tests.benchmarks.durable`.

One run builds all days of the sample. Prints the seconds of the run, those in which it waited for
the disk, and the ratio to a run that never waits.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from backfill_assets.datasets.outages.sample import FIRST_DAY, LAST_DAY
from tests.benchmarks.compare import SAMPLE, one_run


def main() -> int:
    waits = list[float]()
    flush = os.fsync

    def timed(opened: int) -> None:
        began = time.monotonic()
        flush(opened)
        waits.append(time.monotonic() - began)

    with tempfile.TemporaryDirectory(prefix="durable") as folder:
        os.environ |= {
            "BACKFILL_HOME": folder,
            "BACKFILL_LANDING": str(SAMPLE),
            "BACKFILL_LAST_DAY": str(LAST_DAY),
            "BACKFILL_FSYNC": "true",
            "DAGSTER_HOME": str(Path(folder, "dagster")),
        }
        vars(os)["fsync"] = timed
        began = time.monotonic()
        code = one_run(str(FIRST_DAY), str(LAST_DAY))
        seconds = time.monotonic() - began
    waited = sum(waits)
    print(f"{seconds:.1f} s, of them {waited:.2f} s in {len(waits)} waits for the disk")
    print(f"ratio to a run that never waits: {seconds / (seconds - waited):.3f}")
    return code


if __name__ == "__main__":
    sys.exit(main())
