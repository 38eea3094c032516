"""A fitted pipeline of pyspark.ml as bytes, and back: a zip of what `PipelineModel.save` writes.

Two fits to the same rows with the same seeds are the same bytes, so that a fingerprint of the bytes
is one of the model. pyspark.ml itself writes a time and random names into every file of metadata,
those of each tree too; here they are numbers in the order of the files. What is left depends on the
versions of Spark and pyarrow, which the files name.

pyspark.ml works on the engine, a Spark Connect server (measured with Spark 4.2): pipelines are
fitted, applied, saved and loaded there, and the engine writes and reads the files. So it and this
process need one file system, as for a lake on a local disk. A session is found for the thread that
opened it only.

MLflow's format (`mlflow-skinny` 3.17, which brings fifteen more packages) was weighed: its flavour
for Spark copies files by a gateway to a JVM in the same process. A client of Spark Connect has
none, and there it neither saves nor loads (tried).

Loading a model of a release: `backfill_assets.load_model`.
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

from backfill_assets.errors import ServiceUnavailable, TableUnreadable, UsageError
from backfill_assets.lake.releases import STABLE, Release
from backfill_assets.reading import days_of, released_table
from backfill_assets.tables.declaration import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The first time that a zip can hold.
NEVER = (1980, 1, 1, 0, 0, 0)
# Random endings that pyspark.ml gives to stages, and Spark to the files of a write.
UID = re.compile(r"(?<![A-Za-z])[A-Za-z]+_[0-9a-f]{12}(?![0-9a-f])")
PART = re.compile(r"(part-\d+)-[0-9a-f-]{36}-c\d+")
# Of trees: number, metadata as JSON, weight.
_TREES = "/treesMetadata/"


def pack_model(model: PipelineModel) -> bytes:
    """The model as bytes.

    Raises ServiceUnavailable if the engine does not write where this process reads.
    """
    with tempfile.TemporaryDirectory(prefix="model-") as folder:
        saved = Path(folder, "saved")
        model.write().save(str(saved))
        if not saved.is_dir():
            raise ServiceUnavailable(
                f"The engine saved a model to {saved} of its own file system, and this process has"
                " another. Nothing was committed. Models are fitted by an engine on the same"
                " machine: leave out BACKFILL_SPARK_REMOTE."
            )
        # Files of a moment ago are no input. They come as one archive, as tables may not open
        # files.
        with zipfile.ZipFile(shutil.make_archive(f"{folder}/all", "zip", saved)) as archive:
            files = {name: archive.read(name) for name in archive.namelist() if _counts(name)}
    return _zipped(dict(_normalised(files)))


def _counts(name: str) -> bool:
    """The files without Hadoop's markers and checksums, which do not fit normalised files."""
    file = name.rsplit("/", 1)[-1]
    return not file.startswith((".", "_")) and bool(file)


def _normalised(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """The files in order, with numbers for random names, and no time."""
    numbers: dict[str, str] = {}
    # Only names of stages and trees: what looks like one may be a text or a column that the
    # pipeline compares or reads.
    names = re.compile("|".join(sorted({*_uids(files)})) or "(?!)")

    def numbered(text: str) -> str:
        return names.sub(
            lambda uid: numbers.setdefault(
                uid[0], f"{uid[0].rpartition('_')[0]}_{len(numbers):012d}"
            ),
            text,
        )

    for name, content in sorted(files.items(), key=lambda file: _in_order(file[0])):
        plain = PART.sub(r"\1", numbered(name))
        if name.endswith(".parquet"):
            yield plain, _trees(content, numbered) if _TREES in name else content
        else:
            yield plain, _metadata(content.decode(), numbered).encode()


def _uids(files: dict[str, bytes]) -> Iterator[str]:
    """The names that pyspark.ml gave to stages and trees."""
    for name, content in files.items():
        if not name.endswith(".parquet"):
            yield from _uids_in([json.loads(line) for line in _lines(content.decode())])
        elif _TREES in name:
            yield from _uids_in(
                [
                    json.loads(line)
                    for line in pq.ParquetFile(BytesIO(content)).read()[1].to_pylist()
                ]
            )


def _uids_in(value: Any) -> Iterator[str]:
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if key == "uid" and isinstance(each, str) and UID.fullmatch(each):
            yield each
        elif isinstance(each, dict | list):
            yield from _uids_in(each)


def _lines(text: str) -> list[str]:
    """The lines of a file of Spark's. A text in them may have what Python takes for the end of a
    line, too.
    """
    return [line for line in text.split("\n") if line]


def _in_order(name: str) -> tuple[tuple[int, str], ...]:
    """The pipeline's own metadata first, which names the stages in their order; these by number."""
    parts = [UID.sub("", PART.sub(r"\1", part)) for part in name.split("/")]
    return tuple(
        (int(number) if (number := part.split("_")[0]).isdigit() else -1, part) for part in parts
    )


def _metadata(text: str, numbered: Any) -> str:
    """Lines of metadata, without the time at which they were written."""
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
    # Not compressed: versions of zlib make different bytes of the same, and Parquet compresses the
    # column.
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, NEVER)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return written.getvalue()


def content_hash(model: bytes) -> str:
    """What a model is called: the SHA-256 of its bytes."""
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
    """The fitted pipeline of a day of a table of models, as a release has it, whatever was built or
    published since.

        model = load_model("models/restoration_time", day="2019-10-07", spark=spark)
        model.transform(examples).select("predicted_minutes")

    name     the table's name, `layer/table`, or the Table itself
    spark    the session that it is to work in: this thread's, on a machine that shares its files
             with this process
    day      the newest that the release has, if not given
    release  a release's number, or one that `open_release` returned; with `channel` as in `read`

    Which models there are, `read` lists: `read(name).to_table(columns=["outage_day",
    "model_version", "better_by"])`.

    Raises UsageError for a day that the release does not have, or of which there was nothing to fit
    a model to, and TableUnreadable for a model whose bytes are not those that its hash was made of;
    and as `read` does.
    """
    models = released_table(name, release, channel)
    named = [] if day is None else [*days_of(day)]
    table = models.name
    opened = models.release
    there = models.days()
    if not {"model", "model_version"} <= set(models.dataset([]).schema.names):
        raise UsageError(
            f"{table} is no table of models. Nothing was loaded. Rows of any table are what `read`"
            " returns."
        )
    if len(named) > 1:
        raise UsageError(
            f"{day} is not one day. Nothing was loaded. A model is of one day, for example"
            f" day={str(named[-1])!r}."
        )
    wanted = named[0] if named else there[-1] if there else None
    if wanted not in there:
        days = (
            f"It has those of {there[0]} to {there[-1]}, {len(there)} in all"
            if there
            else "It has none"
        )
        raise UsageError(
            f"Release {opened.number} has no model {table} of {wanted or 'any day'}. Nothing was"
            f" loaded. {days}. To have it, `backfill run --partitions {wanted or 'DAY'} --target"
            f" {table}`; `backfill status` says why it is not released."
        )
    (row,) = models.dataset([wanted]).to_table(columns=["model_version", "model"]).to_pylist()
    if row["model"] is None:
        raise UsageError(
            f"Release {opened.number} has no model in {table} of {wanted}: there were too few days"
            " to fit one."
        )
    if content_hash(row["model"]) != row["model_version"]:
        raise TableUnreadable(
            f"The model {table} of {wanted} in release {opened.number} is not the one that was"
            f" built: its bytes have another hash than {row['model_version']}. Nothing was loaded."
            " `backfill reconcile` names what was changed."
        )
    return unpack_model(row["model"])
