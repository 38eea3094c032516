"""The pace of sensors that read the whole lake."""

import time
from collections.abc import Callable, Sequence
from threading import Lock

from dagster import RunRequest, SensorEvaluationContext, SensorResult

# A sensor works for at most a twentieth of the time, even if a source is asked about many days.
_REST_PER_S = 20
Look = Callable[[SensorEvaluationContext], Sequence[RunRequest] | str]


def paced(
    look: Look, now: Callable[[], float] = time.time
) -> Callable[[SensorEvaluationContext], SensorResult]:
    """Let a sensor look, and rest afterwards. `look` returns requests or the reason for a skip.

    The daemon waits for one minute, while the look continues. A second look would read the same
    files.
    """
    looking = Lock()

    def look_alone(context: SensorEvaluationContext) -> SensorResult:
        if not looking.acquire(blocking=False):
            return SensorResult(skip_reason="The last look goes on.", cursor=context.cursor)
        try:
            started = now()
            if started < float(context.cursor or 0):
                return SensorResult(skip_reason="The last look took long.", cursor=context.cursor)
            found = look(context)
            cursor = str(started + (now() - started) * _REST_PER_S)
            if isinstance(found, str):
                return SensorResult(skip_reason=found, cursor=cursor)
            return SensorResult(found, cursor=cursor)
        finally:
            looking.release()

    return look_alone
