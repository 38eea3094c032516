"""Real steps with Spark in a lake on versitygw, and how many requests they send.

The limits are a quarter above what was measured. A retry or a new day's commit changes the count.
"""

import json
import subprocess
import sys

import pytest

from tests.worlds.s3 import versitygw
from tests.worlds.started import environment_without_spark

pytestmark = pytest.mark.nightly


def test_steps_build_in_an_object_store_with_few_requests():
    assert versitygw()
    command = [sys.executable, "-m", "tests.benchmarks.store_requests", "5", "--json"]
    done = subprocess.run(
        command,
        env=environment_without_spark(),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    partitions, built, again = json.loads(done.stdout.splitlines()[-1])
    assert partitions == 40
    assert built <= 18 * partitions
    # As many for one day as for a thousand.
    assert again <= 176
