"""Adding releases by compare-and-swap: one commit, which the log takes only as the version after the one that was read.

That holds in one process, in several, and in object stores.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from backfill_assets.errors import Conflict, ServiceUnavailable
from backfill_assets.lake.delta_table import one_line, open_table, table_to_write
from backfill_assets.lake.ledger import COMPACT_EVERY
from backfill_assets.lake.locks import writing
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.release import SCHEMA, Release, to_arrow
from backfill_assets.lake.release_files import ReleaseFiles

# Commits that add no release (compacting, a second making of the table) refuse one that comes meanwhile: it is tried again.
ATTEMPTS = 20
# Files of this many bytes, a thousand releases or more, are left alone: then neither compacting nor reading one release costs
# more as releases are added.
COMPACTED = 2**18


def commit_after(
    root: str, after: Release | None, releases: Sequence[Release], append: Callable[[DeltaTable, pa.Table], None] | None = None
) -> Release:
    """Add these releases, numbered on from `after`, if that is still the newest one (None: there is none), and return the
    first. Conflict, and nothing is added, if it is not.

    `append` commits the rows as the next version of the table.
    """
    release = releases[0]
    path, token = Paths(root).releases, secrets.token_hex(8)
    refusal: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            table = table_to_write(path) or _create(root)
            files = ReleaseFiles(path, table)
            if (there := files.row(release.number)) or (after and not files.row(after.number)):
                if there and there["token"] == token:
                    return release  # it was committed, and only the answer was an error
                raise Conflict(_overtaken(release, files.newest()))
            if refusal and not isinstance(refusal, CommitFailedError):
                raise ServiceUnavailable(
                    f"Release {release.number} cannot be written to {path}: {one_line(refusal)}. What readers get has not "
                    "changed. Make room or correct the permissions, then release again."
                )
            (append or _append)(table, to_arrow(releases, token))
        except DeltaError as error:
            refusal = error
            continue
        _compact(table)
        return release
    why = one_line(refusal) if refusal else "others came first"
    raise Conflict(f"Release {release.number} was refused {ATTEMPTS} times: {why}. Nothing was released. Release again.")


def _create(root: str) -> DeltaTable:
    path = Paths(root).releases
    # As for the ledger: a second making that comes later refuses a commit under way, which is then tried again.
    with writing(root, "_releases"):
        try:
            DeltaTable.create(
                path,
                SCHEMA,
                mode="ignore",
                configuration={
                    "delta.logRetentionDuration": "interval 36500 days",
                    "delta.checkpointInterval": str(COMPACT_EVERY),
                    "delta.dataSkippingStatsColumns": "number",  # tells which file has a release
                },
            )
        except DeltaError:
            if open_table(path) is None:
                raise
    return DeltaTable(path)


def _append(table: DeltaTable, rows: pa.Table) -> None:
    write_deltalake(
        table,
        rows,
        mode="append",
        schema_mode="merge",  # releases of before lack columns of now
        # Without retries, the library commits as the next version after the one that was read, or not at all.
        commit_properties=CommitProperties(max_commit_retries=0),
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
    )


def _compact(table: DeltaTable) -> None:
    if table.version() % COMPACT_EVERY == COMPACT_EVERY - 1:
        with suppress(DeltaError):  # another time, then: the release is added
            table.optimize.compact(target_size=COMPACTED)


def _overtaken(release: Release, newest: Mapping[str, Any] | None) -> str:
    there = f"release {newest['number']} is there by now (by {newest['who']}: {newest['reason']})" if newest else "it is gone"
    based_on = f"made from release {release.number - 1}" if release.number > 1 else "made as the first one"
    return f"The release was {based_on}, but {there}. Nothing was released. See `backfill releases`, then release again."
