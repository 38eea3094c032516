"""`backfill` on a terminal, where somebody can be asked."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from backfill_assets.datasets.outages.sample import SAMPLE
from backfill_assets.plan.store import Plans
from tests.cli.test_run import CALENDAR, DAY, REJECTED


def on_a_terminal(answer: str, *arguments: str, home: Path, columns: str = "150") -> tuple[int, str]:
    """The exit code of `backfill`, and what it prints on a terminal, where `answer` is typed when it asks."""
    env = os.environ | CALENDAR | {"BACKFILL_HOME": str(home), "BACKFILL_LANDING": str(SAMPLE.parent), "COLUMNS": columns}
    command, (terminal, its) = [sys.executable, "-m", "backfill_assets.cli", *arguments], pty.openpty()
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


def test_a_new_plan_is_shown_and_carried_out_only_if_that_is_wanted(tmp_path):
    plans, asked = Plans(str(tmp_path / "lake")), ("run", "--partitions", str(DAY), "--target", REJECTED)
    code, printed = on_a_terminal("n", *asked, home=tmp_path)
    (plan,) = plans.ids()
    assert (code, plans.events(plan)) == (1, [])
    assert printed.index(f"plan {plan}") < printed.index("Carry this plan out?") < printed.index("Nothing was started.")
    no_server = "No Dagster webserver answers at http://127.0.0.1:9"
    for answer, flags in (("y", ()), ("", ("--yes",))):
        code, printed = on_a_terminal(answer, *asked, *flags, home=tmp_path)
        assert (code, no_server in printed, "Carry this plan out?" in printed) == (3, True, not flags)
