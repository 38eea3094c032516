"""A process is known again by its id and its start, whatever happens to the clock."""

import os
import re
import shutil
from pathlib import Path

import psutil
import pytest

from backfill_assets.servers.child import ProcessId


def test_a_process_is_found_again_and_no_other_that_was_given_its_id():
    this = ProcessId.of(os.getpid())
    assert this.find() == psutil.Process()
    assert this._replace(start=this.start - 1).find() is None
    assert ProcessId(2**22 + 1, this.start).find() is None


@pytest.mark.skipif(not psutil.LINUX, reason="elsewhere, starts are compared by the clock")
def test_a_process_is_found_after_the_clock_was_set(tmp_path: Path, monkeypatch):
    this = ProcessId.of(os.getpid())
    proc = tmp_path / str(os.getpid())
    proc.mkdir()
    for name in ("stat", "status"):
        shutil.copyfile(f"/proc/self/{name}", proc / name)
    # Where the clock is set an hour ahead, so is the time of the boot; psutil reads it here.
    ahead = re.sub(
        r"(?m)^btime (\d+)", lambda m: f"btime {int(m[1]) + 3600}", Path("/proc/stat").read_text()
    )
    (tmp_path / "stat").write_text(ahead)
    before = psutil.boot_time()
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert psutil.boot_time() == before + 3600
    assert this.find() is not None
