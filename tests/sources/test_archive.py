"""Which files are archives, and what may be declared of them."""

import os
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.files.formats import Csv
from backfill_assets.step.sources import load_sentence
from tests.worlds.archives import ARCHIVED_DAYS, PAST, ArchiveLake, lines, rows


@pytest.fixture
def archives(tmp_path: Path) -> ArchiveLake:
    return ArchiveLake(tmp_path)


def test_an_archive_modified_too_late_is_skipped(archives, golden):
    path = archives.put("a.jsonl", lines(*rows(ARCHIVED_DAYS[0])))
    archives.archive = replace(PAST, modified_before=datetime(2020, 1, 1, tzinfo=UTC))
    (left,) = archives.run().values()
    assert (left.left_out, left.problem, left.bytes_read) == (True, "", 0)
    golden(load_sentence(left))
    assert (archives.archive.late(archives.area), archives.archive.unmatched(archives.area)) == (
        ["past/a.jsonl"],
        [],
    )
    os.utime(path, (1, 1))
    assert archives.run()["past/a.jsonl"].rows == 1


@pytest.mark.parametrize(
    "given",
    [
        {"day": " "},
        {"files": "{year}-{month}.csv"},
        {"name": "the past", "day": "at"},
        {"day": "at", "first_day": "2019-01-01"},
        {"day": "at", "first_day": datetime(2019, 1, 1)},
        {"day": "at", "modified_before": date(2019, 1, 1)},
        {"day": "at", "format": "csv"},
        {"day": "at", "format": Csv},
    ],
    ids=str,
)
def test_an_invalid_archive_is_refused_where_it_is_declared(given: dict[str, Any], refused):
    refused(lambda: Archive(**{"name": "past"} | given))
