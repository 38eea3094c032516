"""The one place that says with which code a command ends.

0 everything done, 1 partly done, 2 wrong usage, 3 a service is missing or nothing could be launched, 4 stopped by a budget,
the canary or a guard.
"""

from backfill_assets.errors import BackfillError, Guarded, ServiceUnavailable, UsageError

DONE, PARTIAL, WRONG_USAGE, UNAVAILABLE, STOPPED = 0, 1, 2, 3, 4

# How a command's work on a plan ended. A refused one has launched something before; else the refusal itself is the error.
OF_ENDING = {"done": DONE, "partial": PARTIAL, "cancelled": PARTIAL, "refused": PARTIAL, "stopped": STOPPED}


def of_error(error: BackfillError) -> int:
    if isinstance(error, UsageError):
        return WRONG_USAGE
    if isinstance(error, Guarded):
        return STOPPED
    return UNAVAILABLE if isinstance(error, ServiceUnavailable) else PARTIAL
