"""Dagster has no setting for the interval of its backfill daemon; the constant that is changed
instead takes effect.
"""

import logging
from typing import Any, cast

from dagster._daemon import backfill, controller

from backfill_assets.orchestration.local.daemon import INTERVAL_S, shorten_interval


class Waits:
    """Takes the place of the daemon's shutdown event, and records how long each wait would have
    been.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> None:
        self.seconds.append(seconds)


def test_the_daemon_waits_for_our_interval_between_two_iterations(monkeypatch):
    # The constant must be restored for later tests, and the loop takes no iteration as an argument:
    # only the waits matter.
    monkeypatch.setattr(controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", 30)
    monkeypatch.setattr(backfill, "execute_backfill_iteration", lambda *_, **__: iter(()))
    shorten_interval()
    waits = Waits()
    loop = backfill.execute_backfill_iteration_loop(
        cast(Any, None), logging.getLogger(), cast(Any, waits)
    )
    while not waits.seconds:
        next(loop)
    assert INTERVAL_S - 1 < waits.seconds[0] <= INTERVAL_S
