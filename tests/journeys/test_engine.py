"""Servers with an engine of their own: who listens, what is done when it dies, and that nothing
shows its token.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import date

import psutil
import pytest

from backfill_assets.calendar import between
from backfill_assets.servers.home import servers_record
from tests.worlds.servers import files_with, station_on, token_of
from tests.worlds.station import FIRST, Station, eventually

pytestmark = pytest.mark.nightly

LAST = date(2019, 8, 24)
DAYS = list(between(FIRST, LAST))
FORCED = {"force": True, "write_mode": "overwrite", "reason": "a journey"}


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Iterator[Station]:
    with station_on(tmp_path_factory.mktemp("engine"), LAST) as found:
        yield found


def test_the_doctor_lists_everything_that_listens_and_only_this_machine_can_connect(
    station: Station,
):
    findings = [each for each in station.asked_json("doctor") if each["what"] == "listens"]
    assert Counter(each["message"].split()[0] for each in findings) == {
        "code-server": 2, "engine": 3, "run-starter": 1, "webserver": 1
    }  # fmt: skip
    assert {each["level"] for each in findings} == {"ok"}
    port = station.dagster.url.rpartition(":")[2]
    assert (
        f"webserver at 127.0.0.1 port {port}, for programs of this machine, and its own web pages;"
        " without a login" in [each["message"] for each in findings]
    )


def test_a_step_whose_engine_is_killed_in_the_middle_tries_again_on_a_new_one(station: Station):
    before = servers_record(station.home)
    assert before is not None
    engine = psutil.Process(before.children["engine"].pid)

    def worked() -> float:
        return float(engine.cpu_times().user)

    run = station.dagster.launch({"raw/rejected_lines": DAYS}, options=FORCED, tags={})
    station.process_of(run)
    idle = worked()
    eventually(lambda: worked() > idle + 1, what="the engine computes")
    os.kill(engine.pid, signal.SIGKILL)

    assert station.finished(run) == "SUCCESS", station.complaints(run)
    after = servers_record(station.home)
    assert after is not None
    assert after.children["engine"] != before.children["engine"]
    builds = [build for build in station.builds() if build.run == run.id]
    attempts = [builds[n : n + len(DAYS)] for n in range(0, len(builds), len(DAYS))]
    assert all([build.day for build in attempt] == DAYS for attempt in attempts)
    outcomes = [{build.outcome for build in attempt} for attempt in attempts]
    # The second attempt fails too if the new engine takes longer to start than the step waits.
    assert outcomes in ([{"failed"}, {"accepted"}], [{"failed"}, {"failed"}, {"accepted"}]), [
        build.message for build in builds
    ]


def test_no_log_error_or_event_of_all_that_shows_the_engines_token(station: Station):
    assert (station.home / "engine" / "engine.properties").exists()
    assert files_with(station.home, token_of(station.home)) == []
