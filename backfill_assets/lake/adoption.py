"""Which Delta tables can be adopted, and the number of rows of their days. No Spark.

A table is adopted as it stands. So it must be one that this package could have written.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.errors import UsageError
from backfill_assets.lake.columns import declared_changes
from backfill_assets.lake.delta import CachedTable, LogRemedy, commits_at, other_partitioning
from backfill_assets.lake.file_commit import constrained_columns
from backfill_assets.lake.history import is_ours
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.listed_files import renamed_columns
from backfill_assets.lake.object_store import STORE_REMEDY
from backfill_assets.lake.slices import DataFile, is_in_folder
from backfill_assets.lake.storage import Paths, at_once, files_in, recorded_places

NOT_ADOPTED = "Nothing was adopted."
_COPY = (
    "write its rows once into a plain Delta table that is partitioned by the day alone (CREATE"
    " TABLE ... PARTITIONED BY ... AS SELECT ...), and adopt that one."
)
# The library does not open a table whose commits a catalog manages.
REMEDY = LogRemedy(f"If a catalog manages it, or a newer Delta wrote it, {_COPY}", STORE_REMEDY)
# The features of Delta that this package writes.
_WRITTEN = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "generatedColumns",
    "invariants",
    "timestampNtz",
}


def refuse_unadoptable(
    table: CachedTable, folder: str, column: str, columns: Mapping[str, str], *, is_known: bool
) -> None:
    """Raise UsageError if the table in `folder` cannot be adopted.

    `column` is the declared column of the day, `columns` are the declared SQL types. `is_known`:
    the ledger has commits of the table.
    """
    protocol = table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    features |= {"columnMapping"} if renamed_columns(table) else set()
    features |= {"identityColumns"} if protocol.min_writer_version == 6 else set()
    constrained = constrained_columns(table.schema())
    changes = declared_changes(table.schema(), columns)
    changed = [*changes.new, *changes.gone, *changes.respelled, *filter(None, [changes.types])]
    listed = pa.table(table.get_add_actions(flatten=True))
    days = listed.column_names and listed.to_pydict().get(f"partition.{column}", ())
    if unfit := sorted(features - _WRITTEN):
        why = f"has features of Delta that this package does not write: {', '.join(unfit)}"
        next_step = f"Drop them there (ALTER TABLE ... DROP FEATURE {unfit[-1]}), or {_COPY}"
    elif other := other_partitioning(table.metadata().partition_columns, column):
        why = other
        next_step = f"Declare partition_by as it is there, or {_COPY}"
    elif table.metadata().configuration.get("delta.appendOnly") == "true":
        why = "takes no other rows for its days (delta.appendOnly)"
        next_step = f"Set it to false there (ALTER TABLE ... SET TBLPROPERTIES), or {_COPY}"
    elif constrained:
        why = f"has columns that may not be null, or are computed: {', '.join(constrained)}"
        is_computed = "delta.generationExpression" in table.schema().to_json()
        drop = "Drop that there (ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL), or"
        next_step = f"{'To change that,' if is_computed else drop} {_COPY}"
    elif column in changes.retyped:
        why = f"has days of another type: {column} is {changes.retyped[column]}"
        next_step = f"To change that, {_COPY}"
    elif changed:
        why = f"has other columns than declared: {', '.join(changed)}"
        next_step = f"Declare `columns` as they are there, or {_COPY}"
    elif None in days:
        why = "has rows without a day"
        next_step = f"Delete them there (WHERE {column} IS NULL), or give them a day."
    elif not all(map(is_in_folder, listed["path"].to_pylist())):
        why = "has files outside of its folder"
        next_step = f"It may be a clone: {_COPY}"
    elif not is_known and any(map(is_ours, commits_at(folder, range(table.version(), -1, -1)))):
        why = "is a table of another lake: its log has builds that the ledger here lacks"
        next_step = (
            "Read it by DeltaSource. If the ledger was lost, `backfill reconcile --repair` restores"
            " it."
        )
    else:
        return
    raise UsageError(f"{folder} {why}.", unchanged=NOT_ADOPTED, next_step=next_step)


def refuse_other_folder(root: str, name: str, folder: str, *, is_known: bool) -> None:
    """Raise UsageError if a table cannot lie in another `folder` than it does now.

    `is_known`: the ledger has builds of the table. They are of the folder where it lies now.
    """
    places = recorded_places(root)
    others = {"this lake": root, **{n: places[n].folder for n in places if n != name}}
    shared = [other for other, place in others.items() if _overlap(place, folder)]
    if is_known:
        why = f"cannot be {name}, which has builds in {Paths(root).table(name)}"
    elif shared:
        why = f"cannot be {name}, because files of {shared[0]} are there"
    else:
        return
    raise UsageError(
        f"{folder} {why}.",
        unchanged=NOT_ADOPTED,
        next_step="Give each table one folder of its own, or another name.",
    )


def refuse_other_place(ledger: Ledger, name: str, path: str) -> None:
    """Raise UsageError if the table of a lake is declared with another `path` than adopted."""
    place = recorded_places(ledger.root, are_new=True).get(name)
    folder = place.folder if place else ""
    if path == folder and not (place and place.is_undone):
        return
    is_built_here = not place and ledger.newest([name])[name].versions
    if path == folder or not (place or is_built_here):
        why = f"The table at {path} is not adopted as {name}."
        next_step = f"Type `backfill adopt {name} --reason 'why'`."
    else:
        at = f"at {folder}" if folder else "in its own folder"
        why = f"{name} is declared with path={path!r}, and this lake has it {at}."
        next_step = f"Declare path={folder!r}, or give the table another name."
    raise UsageError(why, unchanged="Nothing was written.", next_step=next_step)


def _overlap(one: str, other: str) -> bool:
    """True if one of two folders or addresses is in the other, or they are the same."""
    places = [PurePath(p if "://" in p else Path(p).resolve()) for p in (one, other)]
    return any(place.is_relative_to(within) for place, within in (places, places[::-1]))


def count_rows(folder: str, files: Iterable[DataFile]) -> int:
    """The number of rows of files: from the log, or else from their footers."""
    store = files_in(folder)

    def count(file: DataFile) -> int:
        if file.rows is not None:
            return file.rows
        with store.open_input_file(unquote(file.path)) as opened:
            return int(pq.read_metadata(opened).num_rows)

    return sum(at_once(folder, count, files))
