"""Adding releases by compare-and-swap: one commit, which the log takes only as the version after the one that was read.

That holds in one process, in several, and in object stores.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from backfill_assets.errors import Conflict, ServiceUnavailable
from backfill_assets.lake.delta_table import one_line
from backfill_assets.lake.record_table import RecordFiles, RecordTable
from backfill_assets.lake.release import SCHEMA, Release, to_arrow
from backfill_assets.lake.release_files import ReleaseFiles

# Commits that add no release (compacting, a second making of the table) refuse one that comes meanwhile: it is tried again.
ATTEMPTS = 20
# A thousand releases or more: neither compacting nor reading one release costs more as releases are added.
COMPACTED = 2**18


def release_records(root: str) -> RecordTable:
    """The table of releases. Without retries, the library commits as the next version after the one that was read, or not at
    all."""
    return RecordTable(root, "_releases", SCHEMA, bounds="number", compacted=COMPACTED, retries=0)


def commit_after(
    root: str, after: Release | None, releases: Sequence[Release], append: Callable[[DeltaTable, pa.Table], None] | None = None
) -> Release:
    """Add these releases, numbered on from `after`, if that is still the newest one (None: there is none), and return the
    first. Conflict, and nothing is added, if it is not.

    `append` commits the rows as the next version of the table.
    """
    records, token, release = release_records(root), secrets.token_hex(8), releases[0]

    def is_added(table: DeltaTable | None) -> bool:
        """Whether the releases are there already. Conflict if others came first."""
        files = ReleaseFiles(RecordFiles(records, table))
        there = files.row(release.number)
        if there and there["token"] == token:
            return True
        if there or (after and not files.row(after.number)):
            raise Conflict(_overtaken(release, files.newest()))
        return False

    def attempt() -> None:
        try:
            table = records.to_write()
            if not is_added(table):
                (append or records.append)(table, to_arrow(releases, token))
                records.compact(table)
        except CommitFailedError:
            raise
        except DeltaError as error:
            if not is_added(records.open()):  # else it was committed, and only the answer was an error
                raise ServiceUnavailable(
                    f"Release {release.number} cannot be written to {records.path}: {one_line(error)}. What readers get has "
                    "not changed. Make room or correct the permissions, then release again."
                ) from error

    attempts = Retrying(retry=retry_if_exception_type(CommitFailedError), stop=stop_after_attempt(ATTEMPTS), reraise=True)
    try:
        attempts(attempt)
    except CommitFailedError as error:
        raise Conflict(
            f"Release {release.number} was refused {ATTEMPTS} times: {one_line(error)}. Nothing was released. Release again."
        ) from error
    return release


def _overtaken(release: Release, newest: Mapping[str, Any] | None) -> str:
    there = f"release {newest['number']} is there by now (by {newest['who']}: {newest['reason']})" if newest else "it is gone"
    based_on = f"made from release {release.number - 1}" if release.number > 1 else "made as the first one"
    return f"The release was {based_on}, but {there}. Nothing was released. See `backfill releases`, then release again."
