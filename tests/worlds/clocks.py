"""Hosts whose clocks differ: processes that get another time of day from the C library."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

# The time since the machine started is the same on every host: it only measures spans.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long moved(void) { return atol(getenv("CLOCK_MOVED_S")); }

int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, found);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) found->tv_sec += moved();
    return failed;
}

int gettimeofday(struct timeval *found, void *zone) {
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
"""


def moved_clock(seconds: int) -> dict[str, str]:
    """The variables of a process whose clock is this many seconds ahead."""
    return {"LD_PRELOAD": str(_library()), "CLOCK_MOVED_S": str(seconds)}


@cache
def _library() -> Path:
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("there is no C compiler to move a clock with")
    folder = Path(mkdtemp(prefix="clock-"))
    (folder / "clock.c").write_text(SOURCE)
    library = folder / "clock.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(folder / "clock.c"), "-ldl"]
    subprocess.run(command, check=True)
    return library
