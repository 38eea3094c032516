"""What it costs to put a lake on the disk before it is acknowledged: `python -m
tests.benchmarks.durable`.

One run builds all days of the sample. Prints the seconds of the run, those that `lake/durable.py`
took, with reading what to put on the disk, and the ratio to a run without it.
"""

import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backfill_assets.datasets.outages.sample import FIRST_DAY, LAST_DAY
from tests.benchmarks.compare import SAMPLE, one_run


class Stopwatch:
    """The seconds of each call from outside of the functions that it measures."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.inside = 0

    def measure(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*given: Any, **options: Any) -> Any:
            began = time.monotonic()
            self.inside += 1
            try:
                return function(*given, **options)
            finally:
                self.inside -= 1
                if not self.inside:
                    self.seconds.append(time.monotonic() - began)

        return measured


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="durable") as folder:
        os.environ |= {
            "BACKFILL_HOME": folder,
            "BACKFILL_LANDING": str(SAMPLE),
            "BACKFILL_LAST_DAY": str(LAST_DAY),
            "BACKFILL_FSYNC": "true",
            "DAGSTER_HOME": str(Path(folder, "dagster")),
        }
        importlib.import_module("backfill_assets.datasets.outages.project")
        watch = Stopwatch()
        durable = importlib.import_module("backfill_assets.lake.durable")
        for name in ("put_on_disk", "put_log_on_disk", "flush"):
            function = getattr(durable, name)
            measured = watch.measure(function)
            for module in list(sys.modules.values()):
                if vars(module).get(name) is function:
                    setattr(module, name, measured)
        began = time.monotonic()
        code = one_run(str(FIRST_DAY), str(LAST_DAY))
        seconds = time.monotonic() - began
    durable_s = sum(watch.seconds)
    print(f"{seconds:.1f} s, of them {durable_s:.2f} s in {len(watch.seconds)} calls")
    print(f"ratio to a run without them: {seconds / (seconds - durable_s):.3f}")
    return code


if __name__ == "__main__":
    sys.exit(main())
