"""A fitted pipeline of pyspark.ml as bytes: a zip of the files of `PipelineModel.save`.

Two fits to the same rows with the same seeds give the same bytes, so that a hash of the bytes
identifies the model. pyspark.ml writes a time and random names into all metadata, also of each
tree. Times are removed, and names become numbers in the order of the files. The rest depends on the
versions of Spark and pyarrow, which the files name.

pyspark.ml works on the engine, a Spark Connect server (measured with Spark 4.2): pipelines are
fitted, applied, saved and loaded there, and the engine writes and reads the files. So it needs the
same file system as this process, as for a lake on a local disk. A session is found only in the
thread that opened it.

MLflow's format (`mlflow-skinny` 3.17, fifteen more packages) was tried: its flavour for Spark needs
a JVM in the same process, which a client of Spark Connect does not have.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.ml import PipelineModel

from backfill_assets.errors import (
    NOTHING_COMMITTED,
    ServiceUnavailable,
    TableUnreadable,
    UsageError,
)
from backfill_assets.lake.channels import STABLE
from backfill_assets.lake.releases import Release
from backfill_assets.reading import released_table, selected_days
from backfill_assets.tables.declaration import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_LOADED = "Nothing was loaded."
# The earliest time in a zip.
_NEVER = (1980, 1, 1, 0, 0, 0)
# The random names that pyspark.ml gives to stages, and Spark to the files of a write.
_UID = re.compile(r"(?<![A-Za-z])[A-Za-z]+_[0-9a-f]{12}(?![0-9a-f])")
_PART = re.compile(r"(part-\d+)-[0-9a-f-]{36}-c\d+")
# Files with the columns number, metadata as JSON, weight.
_TREES = "/treesMetadata/"


def pack_model(model: PipelineModel) -> bytes:
    """The model as bytes.

    Raises ServiceUnavailable if the engine has another file system.
    """
    with tempfile.TemporaryDirectory(prefix="model-") as folder:
        saved = Path(folder, "saved")
        model.write().save(str(saved))
        if not saved.is_dir():
            raise ServiceUnavailable(
                f"The engine saved a model to {saved} on another file system.",
                unchanged=NOTHING_COMMITTED,
                next_step="Fit models on this machine: leave out BACKFILL_SPARK_REMOTE.",
            )
        # Code of tables may not open files, so one archive is read.
        with zipfile.ZipFile(shutil.make_archive(f"{folder}/all", "zip", saved)) as archive:
            files = {name: archive.read(name) for name in archive.namelist() if _is_content(name)}
    return _zipped(dict(_normalised(files)))


def _is_content(name: str) -> bool:
    """True if a file is part of the model, and not a Hadoop marker or checksum."""
    file = name.rsplit("/", 1)[-1]
    return not file.startswith((".", "_")) and bool(file)


def _normalised(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """The files in order, with numbers in place of random names, and without times."""
    numbers: dict[str, str] = {}
    # Only names of stages and trees, because a text or a column of the pipeline may look like one.
    names = re.compile("|".join(sorted({*_uids(files)})) or "(?!)")

    def numbered(text: str) -> str:
        return names.sub(
            lambda uid: numbers.setdefault(
                uid[0], f"{uid[0].rpartition('_')[0]}_{len(numbers):012d}"
            ),
            text,
        )

    for name, content in sorted(files.items(), key=lambda file: _in_order(file[0])):
        plain = _PART.sub(r"\1", numbered(name))
        if name.endswith(".parquet"):
            yield plain, _trees(content, numbered) if _TREES in name else content
        else:
            yield plain, _metadata(content.decode(), numbered).encode()


def _uids(files: dict[str, bytes]) -> Iterator[str]:
    """The random names of stages and trees."""
    for name, content in files.items():
        lines: list[str] = []
        if not name.endswith(".parquet"):
            lines = _lines(content.decode())
        elif _TREES in name:
            lines = pq.ParquetFile(BytesIO(content)).read()[1].to_pylist()
        yield from _uids_in([json.loads(line) for line in lines])


def _uids_in(value: Any) -> Iterator[str]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if key == "uid" and isinstance(item, str) and _UID.fullmatch(item):
            yield item
        elif isinstance(item, dict | list):
            yield from _uids_in(item)


def _lines(text: str) -> list[str]:
    """The lines of a file. Python would also split at other characters in their texts."""
    return [line for line in text.split("\n") if line]


def _in_order(name: str) -> tuple[tuple[int, str], ...]:
    """The order of files: the pipeline's metadata, which orders the stages, then the stages."""
    parts = [_UID.sub("", _PART.sub(r"\1", part)) for part in name.split("/")]
    return tuple(
        (int(number) if (number := part.split("_")[0]).isdigit() else -1, part) for part in parts
    )


def _metadata(text: str, numbered: Any) -> str:
    """Lines of metadata without the time of writing."""
    return "".join(
        f"{numbered(json.dumps(json.loads(line) | {'timestamp': 0}))}\n" for line in _lines(text)
    )


def _trees(content: bytes, numbered: Any) -> bytes:
    """The metadata of trees, in the order of their numbers."""
    trees = pq.ParquetFile(BytesIO(content)).read()
    number, text, weight = trees.column_names
    trees = trees.sort_by(number)
    lines = [_metadata(line, numbered).strip() for line in trees[text].to_pylist()]
    written = BytesIO()
    columns = [trees[number], pa.array(lines), trees[weight]]
    pq.write_table(pa.table(columns, schema=trees.schema.remove_metadata()), written)
    return written.getvalue()


def _zipped(files: dict[str, bytes]) -> bytes:
    written = BytesIO()
    # Not compressed: versions of zlib write different bytes, and Parquet compresses the column.
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _NEVER)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return written.getvalue()


def content_hash(model: bytes) -> str:
    """The version of a model: the SHA-256 of its bytes."""
    return hashlib.sha256(model).hexdigest()


def unpack_model(model: bytes) -> PipelineModel:
    """The fitted pipeline in the session of this thread."""
    with tempfile.TemporaryDirectory(prefix="model-") as folder:
        with zipfile.ZipFile(BytesIO(model)) as archive:
            archive.extractall(folder)
        return PipelineModel.load(folder)


def load_model(
    name: str | Table,
    *,
    spark: SparkSession,
    day: str | date | None = None,
    release: int | Release | None = None,
    channel: str = STABLE,
) -> PipelineModel:
    """Load the fitted pipeline of a day from a table of models, as a release has it.

        model = load_model("models/restoration_time", day="2019-10-07", spark=spark)
        model.transform(examples).select("predicted_minutes")

    name     the table's name, `layer/table`, or the Table itself
    spark    the session for the model: opened in this thread, on a machine that shares its files
             with this process
    day      the newest day in the release by default
    release  a release's number, or the result of `open_release`; with `channel` as in `read`

    `read` lists the models: `read(name).to_table(columns=["outage_day", "model_version",
    "better_by"])`.

    Raises UsageError for a day that the release does not have, or without a model, and
    TableUnreadable for a model whose bytes have another hash; and the errors of `read`.
    """
    models = released_table(name if isinstance(name, str) else name.name, release, channel)
    named = [] if day is None else [*selected_days(day)]
    table = models.name
    opened = models.release
    days = models.days()
    if not {"model", "model_version"} <= set(models.dataset([]).schema.names):
        raise UsageError(
            f"{table} is not a table of models.",
            unchanged=_NOT_LOADED,
            next_step="`read` returns the rows of any table.",
        )
    if len(named) > 1:
        raise UsageError(
            f"{day} is not one day.",
            unchanged=_NOT_LOADED,
            next_step=f"Name the day of a model: day={str(named[-1])!r}.",
        )
    wanted = named[0] if named else days[-1] if days else None
    if wanted not in days:
        existing = f", only of {days[0]} to {days[-1]}" if days else ""
        raise UsageError(
            f"Release {opened.number} has no model of {wanted or 'any day'} in {table}{existing}.",
            unchanged=_NOT_LOADED,
            next_step=(
                f"Build it: `backfill run --partitions {wanted or 'DAY'} --target {table}`."
                " `backfill status` says why it is not released."
            ),
        )
    (row,) = models.dataset([wanted]).to_table(columns=["model_version", "model"]).to_pylist()
    if row["model"] is None:
        raise UsageError(
            f"Release {opened.number} has no model in {table} of {wanted}: there were too few days"
            " to fit one.",
            unchanged=_NOT_LOADED,
        )
    if content_hash(row["model"]) != row["model_version"]:
        raise TableUnreadable(
            f"The model {table} of {wanted} in release {opened.number} was changed: its hash is"
            f" not {row['model_version']}.",
            unchanged=_NOT_LOADED,
            next_step="`backfill reconcile` names the changes.",
        )
    return unpack_model(row["model"])
