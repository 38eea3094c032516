"""Processes that ask one service: together they keep its limit, and one that is killed leaves what
it had.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest

from backfill_assets.sources.http.client import RetryPolicy, fetch_days
from tests.worlds.weather import DAYS, WeatherService, area_of, delivered, expected, rows, service

pytestmark = pytest.mark.servers


def asker(
    lake: Path, weather: WeatherService, limit: tuple[int, float], way: str, days: Sequence[date]
) -> subprocess.Popen:
    words = [str(lake), weather.url, *map(str, limit), way, *map(str, days)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.worlds.weather", *words], stderr=subprocess.PIPE, text=True
    )


def test_three_processes_never_exceed_the_limit_even_if_one_is_killed(tmp_path, weather):
    """The service is the judge: it counts a request when it arrives, which is up to a third of the
    span after it was sent.
    """
    limit = (8, 0.6)  # four requests of two cells
    weather.limit = limit
    weather.delayed = 0.2
    weather.faults += ["", "", "", "", "held"]
    processes = {
        n: asker(tmp_path, weather, limit, "requests", DAYS[n * 5 : n * 5 + 5]) for n in range(3)
    }
    assert weather.holding.wait(60)
    killed = DAYS.index(date.fromisoformat(weather.held)) // 5
    processes[killed].kill()
    weather.release.set()
    ended = {
        n: process.communicate(timeout=60)[1] or process.returncode
        for n, process in processes.items()
    }
    assert ended == {0: 0, 1: 0, 2: 0, killed: -signal.SIGKILL}
    assert (weather.most(limit[1]) <= limit[0], weather.refused) == (True, 0)
    assert len(weather.log) > 10


def test_a_process_killed_during_a_request_keeps_its_earlier_answers(tmp_path, weather):
    weather.faults += ["", "", "held"]
    process = asker(tmp_path, weather, (1000, 60.0), "ask", DAYS[:5])
    assert weather.holding.wait(60)
    process.kill()
    process.wait()
    weather.release.set()
    source = service(((1000, 60.0),), at_once=1)
    area = area_of(tmp_path, weather.url)
    assert delivered(source, area) == DAYS[:2]
    assert fetch_days(source, area, DAYS[:5], RetryPolicy()) == {}
    assert weather.days()[2:] == [(str(day), str(day)) for day in (DAYS[2], *DAYS[2:5])]
    assert all(rows(source, area, day) == expected(day) for day in DAYS[:5])
