"""Four tools on the same files and tables: `python -m tests.benchmarks.peers`.

Each tool builds all days but the last, rebuilds three corrected days by name, and builds one new
day. Then its nightly command runs after a correction of another day, and after a change of code.
`--days 24` builds fewer days: plain Dagster needs a cold run for each.
Prints seconds (whole commands), and the days that are wrong then, by DuckDB over the files. The
servers of a tool that has some are started just before its first build, and run until the end.
SQLMesh and dbt compute with DuckDB; the others compute with Spark. So compare seconds only between
rows of one engine.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

from rich.console import Console
from rich.table import Table

from backfill_assets.datasets.outages.sample import FIRST_DAY
from tests.benchmarks.peers.deliveries import correct, deliver, wrong_days
from tests.benchmarks.peers.tools import TOOLS, Tool, installed

COLUMNS = ("tool", "what", "seconds", "wrong days", "which")
NAMED = (date(2019, 8, 20), date(2019, 8, 22))
UNNAMED = date(2019, 8, 30)


def story(tool: Tool, first: date, last: date, shown: Table) -> None:
    """All steps with one tool, a row of the table for each."""

    def step(what: str, act: Callable[[], None], of_day: str = "max") -> None:
        started = time.monotonic()
        act()
        seconds = time.monotonic() - started
        wrong = wrong_days(tool.landing, tool.tables(), of_day)
        which = [f"{name} {days[0]}..{days[-1]}" for name, days in wrong.items() if days]
        count = sum(map(len, wrong.values()))
        shown.add_row(tool.name, what, f"{seconds:.1f}", str(count), ", ".join(which))

    before = last - timedelta(days=1)
    deliver(tool.landing, [first + timedelta(days=n) for n in range((last - first).days)])
    step(f"{(last - first).days} days, first build", lambda: tool.build(first, before))
    correct(tool.landing, _between(*NAMED))
    step("3 corrected days, named", lambda: tool.rebuild(*NAMED))
    deliver(tool.landing, [last])
    step("1 new day", lambda: tool.build(last, last))
    correct(tool.landing, [UNNAMED])
    step("1 corrected day, not named", lambda: tool.routine(last))
    tool.change_code()
    step("changed code", lambda: tool.routine(last), of_day="sum")


def _between(first: date, last: date) -> list[date]:
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environments", type=Path, help="a folder that keeps their packages")
    parser.add_argument("--tools", nargs="*", help="only these, by the name of their project")
    parser.add_argument("--days", type=int, default=60, help="of all, at least 24")
    given = parser.parse_args()
    last = FIRST_DAY + timedelta(days=given.days - 1)
    console = Console(width=130)
    shown = Table(*COLUMNS, title=f"{FIRST_DAY} to {last}, three tables")
    with tempfile.TemporaryDirectory(prefix="peers") as folder:
        root = Path(folder)
        for kind in TOOLS:
            if given.tools and kind.project not in given.tools:
                continue
            python = installed(kind, given.environments or root)
            landing = root / kind.project / "landing"
            landing.mkdir(parents=True)
            tool = kind(root / kind.project / "project", landing, python)
            with tool.running():
                story(tool, FIRST_DAY, last, shown)
    console.print(shown)


if __name__ == "__main__":
    main()
