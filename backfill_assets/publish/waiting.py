"""Wait for the runs that have written to live, before an act changes it.

An act announces itself. Runs that have written nothing yet then wait before their first commit
(`lake/commit.py`). So an act waits only for runs that are half done, and no further ones come.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from backfill_assets.lake.locks import writing
from backfill_assets.lake.running import announce
from backfill_assets.publish.release_live import Obstacle, Runs, running
from backfill_assets.tries import Note, Sleep
from backfill_assets.workspace import Workspace

_LOOKS_EVERY_S = 1.0


@dataclass(frozen=True)
class Patience:
    """How many seconds an act waits. `report` gets a line that names the runs."""

    seconds: float = 600.0
    report: Note = lambda _: None
    sleep: Sleep = time.sleep


PATIENT = Patience()


@contextmanager
def alone_on_live(workspace: Workspace, act: str, runs: Runs, patience: Patience) -> Iterator[None]:
    """Announce an act during the block, after waiting for the runs that have written to live.

    The wait may time out, and a run that has waited for long enough may write during the block. So
    an act calls `writers_to_live` again, after it read the versions to release.
    """
    root = workspace.lake.root
    with announce(root, act):
        for table in workspace.names:
            # Wait for a commit that began before the announcement.
            with writing(root, table):
                pass
        give_up = time.monotonic() + patience.seconds
        reported = ""
        while writers := writers_to_live(workspace, runs):
            if time.monotonic() >= give_up:
                break
            words = "; ".join(map(str, writers))
            if words != reported:
                patience.report(f"Waiting: {words}.")
                reported = words
            patience.sleep(_LOOKS_EVERY_S)
        yield


def writers_to_live(workspace: Workspace, runs: Runs) -> list[Obstacle]:
    """The unfinished runs that may have written a part of their rows to live."""
    root = workspace.lake.root
    unfinished = running(root, runs)
    ledger = workspace.lake.ledger
    return [each for each in unfinished if each.run and ledger.has_committed(each.run)]
