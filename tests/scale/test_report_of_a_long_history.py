"""The report of ten years of 200 tables: its time and its size. Nothing is computed."""

import time
from pathlib import Path

import pytest

from backfill_assets.verbs.lake_report import write_report
from tests.benchmarks.growth import DAYS, TABLES, make, workspace_at

pytestmark = pytest.mark.nightly

SECONDS = 20
MEGABYTES = 10


def test_730_000_partitions_are_drawn_by_month_in_time_and_in_a_small_page(tmp_path):
    make(tmp_path / "lake", TABLES, DAYS, builds=1)
    workspace = workspace_at(tmp_path / "lake", TABLES, DAYS)
    # Of the processor, because tests share the machine.
    began = time.process_time()
    report = write_report(workspace, tmp_path / "lake.html")
    assert time.process_time() - began < SECONDS
    assert report.size < MEGABYTES * 1e6
    states = report.contents["states"]
    assert sum(len(days) for of in states.values() for days in of.values()) == TABLES * DAYS
    page = Path(report.file).read_text()
    # A month is one shape, with the days of a state in its title; ten equal years are one shape.
    assert page.count("<path class=") < TABLES * DAYS / 30
    assert ">2016<" in page
