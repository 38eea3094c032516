"""Dagster has no setting for how often its daemon looks at backfills; this shows that what is changed instead is obeyed."""

from __future__ import annotations

import logging
from typing import Any, cast

from dagster._daemon import backfill, controller

from backfill_assets.servers.daemon import LOOK_EVERY_S, look_often


class Waits:
    """In place of the daemon's shutdown event: how long each wait would have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> None:
        self.seconds.append(seconds)


def test_the_daemon_waits_as_long_between_two_looks_as_it_is_told(monkeypatch):
    # Dagster's interval, which is put back for the tests after this one; and looks that find nothing, since only the waits
    # between them are of interest.
    monkeypatch.setattr(controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", 30)
    monkeypatch.setattr(backfill, "execute_backfill_iteration", lambda *_, **__: iter(()))
    look_often()
    waits = Waits()
    loop = backfill.execute_backfill_iteration_loop(cast(Any, None), logging.getLogger(), cast(Any, waits))
    while not waits.seconds:
        next(loop)
    assert LOOK_EVERY_S - 1 < waits.seconds[0] <= LOOK_EVERY_S
