"""A publication that is killed anywhere: at the call or the return of each function that it writes with."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# What a publication writes with: before and after each of these, it may be killed.
WRITING = ("put_files", "_append", "append", "note", "delete_shadow")


class Killed(BaseException):
    """The process is gone: nothing of ours handles it."""


@contextmanager
def killed_at(number: int) -> Iterator[None]:
    """Raise Killed at the call or the return of that number, of the functions that write."""
    left = [number]

    def at(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "return") and frame.f_code.co_name in WRITING and "backfill_assets" in frame.f_code.co_filename:
            left[0] -= 1
            if left[0] == -1:
                raise Killed(frame.f_code.co_name)

    sys.setprofile(at)
    try:
        yield
    finally:
        sys.setprofile(None)
