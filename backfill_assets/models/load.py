"""Loading a model of a release: `backfill_assets.load_model`."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake.release import STABLE, Release
from backfill_assets.models.saved import content_hash, unpacked
from backfill_assets.reading import days_of, released_table
from backfill_assets.tables.declaration import Table

if TYPE_CHECKING:
    from pyspark.ml import PipelineModel
    from pyspark.sql import SparkSession


def load_model(
    name: str | Table,
    *,
    spark: SparkSession,
    day: str | date | None = None,
    release: int | Release | None = None,
    channel: str = STABLE,
) -> PipelineModel:
    """The fitted pipeline of a day of a table of models, as a release has it, whatever was built or published since.

        load_model("models/restoration_time", day="2019-10-07", spark=spark).transform(examples).select("predicted_minutes")

    name       the table's name, `layer/table`, or the Table itself
    spark      the session that it is to work in: this thread's, on a machine that shares its files with this process
    day        the newest that the release has, if not given
    release    a release's number, or one that `open_release` returned; with `channel` as in `read`

    Which models there are, `read` lists: `read(name).to_table(columns=["outage_day", "model_version", "better_by"])`.

    Raises UsageError for a day that the release does not have, or of which there was nothing to fit a model to, and
    TableUnreadable for a model whose bytes are not those that its hash was made of; and as `read` does.
    """
    models, named = released_table(name, release, channel), [] if day is None else [*days_of(day)]
    table, opened, there = models.name, models.release, models.days()
    if not {"model", "model_version"} <= set(models.dataset([]).schema.names):
        raise UsageError(f"{table} is no table of models. Nothing was loaded. Rows of any table are what `read` returns.")
    if len(named) > 1:
        raise UsageError(
            f"{day} is not one day. Nothing was loaded. A model is of one day, for example day={str(named[-1])!r}."
        )
    wanted = named[0] if named else there[-1] if there else None
    if wanted not in there:
        days = f"It has those of {there[0]} to {there[-1]}, {len(there)} in all" if there else "It has none"
        raise UsageError(
            f"Release {opened.number} has no model {table} of {wanted or 'any day'}. Nothing was loaded. {days}. To have it, "
            f"`backfill run --partitions {wanted or 'DAY'} --target {table}`; `backfill status` says why it is not released."
        )
    (row,) = models.dataset([wanted]).to_table(columns=["model_version", "model"]).to_pylist()
    if row["model"] is None:
        raise UsageError(f"Release {opened.number} has no model in {table} of {wanted}: there were too few days to fit one.")
    if content_hash(row["model"]) != row["model_version"]:
        raise TableUnreadable(
            f"The model {table} of {wanted} in release {opened.number} is not the one that was built: its bytes have another "
            f"hash than {row['model_version']}. Nothing was loaded. `backfill reconcile` names what was changed."
        )
    return unpacked(row["model"])
