"""The benchmark of rows: how bytes are counted, divided into phases, kept and drawn."""

import gzip
import sys
from pathlib import Path

import pytest

from tests.benchmarks.compare import amplify
from tests.benchmarks.processes import Sample, watched
from tests.benchmarks.rows import (
    PACKAGE,
    PHASES,
    SCRIPT,
    Measured,
    Phase,
    add,
    chart,
    guide_table,
    medians,
    phases,
    read,
)

pytestmark = pytest.mark.lake

MB = 2**20
WRITES = f"open('file', 'wb').write(b'x' * {20 * MB})"
PARENT = f"""
import subprocess, sys, time
subprocess.run([sys.executable, "-c", {WRITES!r}], check=True)
held = open("file", "rb").read()
time.sleep(0.5)
"""


@pytest.mark.servers
def test_a_commands_bytes_and_those_of_its_children_are_counted(tmp_path):
    command = [sys.executable, "-c", PARENT]
    code, samples = watched(command, {}, tmp_path / "log", tmp_path)
    assert code == 0, (tmp_path / "log").read_text()
    assert 20 * MB <= samples[-1].written < 21 * MB
    assert 20 * MB <= samples[-1].read < 40 * MB
    assert max(sample.memory for sample in samples) > 20 * MB


def test_a_table_ends_with_its_commit_and_the_rest_follows_the_last():
    samples = [Sample(n, 100 - abs(n - 4), 10 * n, n) for n in range(11)]
    ends = {"features/b": 8.2, "raw/a": 2.0, "features/a": 4.9, "staging/a": 5.0, "start": 1}
    assert phases(samples, ends) == {
        "start": Phase(1, 97, 10, 1),
        "raw": Phase(1, 98, 10, 1),
        "features": Phase(2 + 3, 100, 50, 5),
        "staging": Phase(1, 100, 10, 1),
        "end": Phase(2, 96, 20, 2),
    }


def test_runs_are_kept_and_the_median_of_each_size_is_drawn(tmp_path):
    results = tmp_path / "rows.json"
    for seconds, rows in ((3.0, 200), (9.0, 200), (4.0, 200), (50.0, 10)):
        for by in (SCRIPT, PACKAGE):
            used = dict.fromkeys(PHASES, Phase(seconds, 5, 6, 7))
            add(results, Measured(rows, by, "2026-01-01 00:00", used))
    runs = medians(read(results))
    assert list(runs) == [10, 200]
    assert runs[200][PACKAGE].whole == Phase(20.0, 5, 30, 35)
    assert chart(runs).startswith(b"\x89PNG")
    assert len(guide_table(runs).splitlines()) == 2 + 2


def test_an_amplified_file_has_each_line_so_often_with_other_numbers(tmp_path):
    file = Path("outage_events/year=2019/month=08/day=15/events.jsonl.gz")
    (tmp_path / "sample" / file).parent.mkdir(parents=True)
    line = b'{"outageNumber":"7","cause":"x"}\n'
    (tmp_path / "sample" / file).write_bytes(gzip.compress(2 * line))
    assert amplify(tmp_path / "sample", tmp_path / "landing", 3) == 6
    lines = gzip.decompress((tmp_path / "landing" / file).read_bytes()).splitlines(True)
    others = [line.replace(b'"7"', b'"%d-7"' % copy) for copy in (1, 2)]
    assert lines == [line, line, others[0], others[0], others[1], others[1]]
