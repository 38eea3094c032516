"""A full disk, recognized by what the libraries that meet it say."""

import errno
import re
import tempfile

import pytest

from backfill_assets.errors import NotRecorded
from backfill_assets.lake.storage import full_disk_message, is_disk_full


def caused_by(cause: Exception) -> Exception:
    error = NotRecorded("raw/a: 2019-08-15 are committed, but the ledger could not be written")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            OSError(
                errno.ENOSPC,
                "Error writing bytes to file. Detail: [errno 28] No space left on device",
            ),
            id="Arrow",
        ),
        pytest.param(
            RuntimeError(
                "Generic LocalFileSystem error: ... No space left on device (os error 28)"
            ),
            id="Delta",
        ),
        pytest.param(
            RuntimeError(
                "org.apache.spark.SparkException: java.io.IOException: No space left on device"
            ),
            id="Java",
        ),
        pytest.param(OSError(errno.EDQUOT, "Disk quota exceeded"), id="a quota"),
        pytest.param(caused_by(OSError(errno.ENOSPC, "full")), id="the cause of another error"),
    ],
)
def test_a_full_disk_is_recognized(error: Exception):
    assert is_disk_full(error)


@pytest.mark.parametrize(
    "error", [None, OSError(errno.EACCES, "denied"), RuntimeError("28")], ids=repr
)
def test_other_errors_are_not_taken_for_one(error: Exception | None):
    assert not is_disk_full(error)


def test_a_full_disk_is_reported_with_the_room_of_the_lake(tmp_path, golden):
    for lake, part in ((f"{tmp_path}/a/lake", "folder"), ("s3://bucket/lake", "store")):
        message = re.sub(r"[\d,]+ MB", "<free> MB", full_disk_message(lake, "raw/a"))
        golden(message, part, TEMPORARY=tempfile.gettempdir())
