"""Build what is due of the case reports, in a process that is killed on the way: `python -m tests.datasets.killed ROOT ...`.

The points: "commit", when the files of a table are written and not committed; "record", when they are, and the ledger knows
nothing of it. Found by what the interpreter calls; the process ends by SIGKILL, so that nothing is tidied up.
"""

import argparse
import os
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from backfill_assets.calendar import Calendar
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.session import start
from backfill_assets.settings import read_settings
from tests.datasets.reports import Reports
from tests.suite import connect

POINTS: dict[str, CodeType] = {"commit": FileCommit.__call__.__code__, "record": Ledger.append.__code__}


def killed(reports: Reports, table: str, point: str) -> None:
    """Run what is due in a process of its own, until it comes to this point of this table's step."""
    first, last = reports.calendar.first, reports.calendar.last
    command = [sys.executable, "-m", "tests.datasets.killed", str(reports.root), str(first), str(last), table, point]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("root", "first", "last", "table", "point"):
        parser.add_argument(name)
    given = parser.parse_args()

    def kill_there(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is POINTS[given.point]:
            held = frame.f_locals
            if given.point == "commit" and held["self"].folder.endswith(given.table):
                os.kill(os.getpid(), signal.SIGKILL)
            if given.point == "record" and held["builds"] and held["builds"][0].table == given.table:
                os.kill(os.getpid(), signal.SIGKILL)

    spark = start(read_settings(spark_remote=connect()))
    calendar = Calendar(date.fromisoformat(given.first), date.fromisoformat(given.last))
    sys.setprofile(kill_there)
    Reports(Path(given.root), calendar, lambda: spark).run(run="killed")


if __name__ == "__main__":
    main()
