"""`backfill` as tests type it: in this process, by its main function, or on a terminal where
somebody answers.

No servers: an address at which nobody answers stands for one that is down.
"""

import json
import os
import pty
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import UTC, date, datetime
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner, Result

from backfill_assets.cli import exit_codes
from backfill_assets.cli.app import app, main
from backfill_assets.datasets.outages.raw import rejected_lines
from backfill_assets.datasets.outages.sample import SAMPLE
from backfill_assets.errors import BackfillError
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import deliveries
from tests.worlds.deliveries import day
from tests.worlds.small_lake import SmallLake

CALENDAR = {
    "BACKFILL_FIRST_DAY": "2019-08-15",
    "BACKFILL_LAST_DAY": "2019-10-13",
    "BACKFILL_DAGSTER_URL": "http://127.0.0.1:9",
}
REJECTED = "raw/rejected_lines"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = date(2019, 9, 3)


def backfill(*arguments: str, home: Path, landing: Path = SAMPLE.parent) -> Result:
    env = CALENDAR | {"BACKFILL_HOME": str(home), "BACKFILL_LANDING": str(landing)}
    return CliRunner().invoke(app, arguments, env=env)


def refused(*arguments: str, home: Path, landing: Path = SAMPLE.parent) -> tuple[int, str]:
    """The exit code and the message."""
    error = backfill(*arguments, home=home, landing=landing).exception
    assert isinstance(error, BackfillError), error
    return exit_codes.of_error(error), str(error)


def planned(home: Path, *flags: str) -> str:
    done = backfill(
        "plan", "--partitions", str(DAY), "--target", REJECTED, *flags, "--json", home=home
    )
    return str(json.loads(done.stdout)["id"])


def kept(home: Path, table: str, version: str) -> str:
    """A plan of one day of one table, as if it had been made when that was called so and had that
    code.
    """
    plan = Plan(
        {table: version},
        {table: {DAY: Reason(ReasonKind.MISSING)}},
        [Chunk(0, {table: [DAY]})],
        PlanOptions(),
    )
    Plans(str(home / "lake")).keep(plan)
    return plan.id


def build_of(code_version: str = rejected_lines.version, plan: str = "") -> Build:
    """The accepted build of the one day, from the sample's file."""
    delivered = deliveries(rejected_lines, [DAY], LandingArea(SAMPLE.parent))[DAY]
    assert isinstance(delivered, Delivery)
    return Build(
        REJECTED,
        DAY,
        "accepted",
        "r",
        code_version,
        delivered=delivered.fingerprint,
        plan=plan,
        at=NOW,
    )


def replace_minute(at: datetime) -> datetime:
    return at.replace(minute=at.minute + 1)


class Done(NamedTuple):
    returncode: int | str | None
    stdout: str
    stderr: str


def backfill_main(*arguments: str, home: Path, **settings: str) -> Done:
    """`backfill` with these settings and no others, in this process: a new one would import for
    most of a second.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as errors,
    ):
        patch.setattr(sys, "argv", ["backfill", *arguments])
        for name in [name for name in os.environ if name.startswith("BACKFILL_")]:
            patch.delenv(name)
        for name, value in {"BACKFILL_HOME": str(home), **settings}.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            main()
    return Done(end.value.code, out.getvalue(), errors.getvalue())


def on_a_terminal(
    answer: str, *arguments: str, home: Path, columns: str = "150"
) -> tuple[int, str]:
    """The exit code of `backfill`, and what it prints on a terminal, where `answer` is typed when
    it asks.
    """
    env = (
        os.environ
        | CALENDAR
        | {
            "BACKFILL_HOME": str(home),
            "BACKFILL_LANDING": str(SAMPLE.parent),
            "COLUMNS": columns,
        }
    )
    command, (terminal, its) = (
        [sys.executable, "-m", "backfill_assets.cli", *arguments],
        pty.openpty(),
    )
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=env) as process:
        os.close(its)
        printed = ""
        with suppress(OSError):  # there is nothing to read once the other side has ended
            while part := os.read(terminal, 4096).decode():
                asked = "?" in part and "?" not in printed
                printed += part
                if asked:
                    os.write(terminal, f"{answer}\n".encode())
    os.close(terminal)
    return process.returncode, printed


FIRST = day(0)
SECOND = day(1)


def two_days(home: Path) -> SmallLake:
    """They were not released yet."""
    lake = SmallLake(home / "lake", "arrival_day")
    lake.write({FIRST: 1, SECOND: 2}, table=REJECTED)
    return lake
