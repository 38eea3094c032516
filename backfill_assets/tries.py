"""Wait for a condition, or retry after another process interfered."""

import math
import time
from collections.abc import Callable

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

Sleep = Callable[[float], None]
# Gets a line for people about what goes on.
Note = Callable[[str], None]


def wait_until(
    is_so: Callable[[], object],
    patience: float = math.inf,
    *,
    every: float = 0.2,
    sleep: Sleep = time.sleep,
) -> bool:
    """Poll every `every` seconds until the condition holds.

    False if it did not hold within `patience` seconds.
    """
    started = time.monotonic()
    while not is_so():
        if time.monotonic() - started >= patience:
            return False
        sleep(every)
    return True


def again_after(error: type[Exception], attempts: int, *, within: float = 0) -> Retrying:
    """Call a function again if it raises `error`. The last error is raised.

    Wait up to `within` seconds between attempts.
    """
    return Retrying(
        retry=retry_if_exception_type(error),
        stop=stop_after_attempt(attempts),
        wait=wait_random(0, within),
        reraise=True,
    )
