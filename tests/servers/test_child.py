"""Child processes: ended with all they started, whatever they think of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from backfill_assets.servers.child import Child, ignoring_signals, process_tree, stop
from backfill_assets.tries import wait_until

pytestmark = pytest.mark.servers

# Nobody waits for these sleeps: a server and its own child, up until the test ends them.
# Its processes do nothing until they are ended, which is what the tests are about.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""


def test_a_child_that_ignores_sigterm_is_ended_with_its_own_children(tmp_path: Path, capsys):
    child = Child(
        "stubborn",
        [sys.executable, "-c", STUBBORN],
        dict(os.environ),
        tmp_path / "logs" / "log",
        tmp_path,
    )
    child.start()
    assert wait_until(lambda: "ready" in child.log_tail(), 30)
    members = process_tree(child.pid)
    assert len(members) == 2
    stop([child], patience=0.5)
    assert [m for m in members if m.is_running() and m.status() != psutil.STATUS_ZOMBIE] == []
    assert not child.alive


def test_a_child_of_a_process_that_ignores_signals_is_stopped_by_them(tmp_path):
    """A shell ignores SIGINT in its background jobs, and Dagster handles SIGTERM as it finds SIGINT
    handled.
    """
    # Nobody waits for the sleep: the signal ends it.
    child = Child(
        "child",
        [sys.executable, "-c", "import time; time.sleep(600)"],
        dict(os.environ),
        tmp_path / "log",
        tmp_path,
    )
    with ignoring_signals():
        child.start()
    child.terminate()
    assert child.process is not None
    try:
        assert child.process.wait(timeout=30) == -signal.SIGTERM
    finally:
        child.process.kill()


# Starts a child as `backfill up` does, names its process, and is up until it is killed; nobody
# waits for these sleeps.
PARENT = """
import os, sys, time
from pathlib import Path
from backfill_assets.servers.child import Child

child = Child("child", [sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ),
              Path(sys.argv[1]), Path.cwd())
child.start()
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process that its parent is gone"
)
def test_a_child_ends_when_its_parent_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    assert psutil.wait_procs([child], timeout=30)[1] == []
