"""The ordinary assets that read our tables, and their launch as one backfill."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any

from backfill_assets.dagster_client import documents, tags
from backfill_assets.dagster_client.answers import payload
from backfill_assets.dagster_client.client import Dagster, Launched, asset_key, name_of, tag_list
from backfill_assets.dagster_client.names import OWN, REPORTS, SHADOW


def ordinary_readers(dagster: Dagster, tables: Collection[str]) -> dict[str, set[str]]:
    """The assets that read each table, directly or through other assets that are not `tables`.

    `tables` are all tables of the project. Raises as `Dagster.ask`.
    """
    nodes = {name_of(node["assetKey"]): node for node in dagster.ask(documents.GRAPH)["assetNodes"]}

    def readers(name: str) -> set[str]:
        direct = {
            reader
            for reader in map(name_of, nodes[name]["dependedByKeys"])
            if nodes[reader]["isMaterializable"] and reader not in tables
            if reader.partition("/")[0] not in (OWN, SHADOW, REPORTS)
        }
        return direct.union(*map(readers, direct))

    return {name: readers(name) for name in tables if name in nodes}


def launch_readers(
    dagster: Dagster,
    tables: Collection[str],
    days: Mapping[str, Sequence[date]],
    run_tags: Mapping[str, str],
) -> Launched:
    """Launch a backfill of the partitions of ordinary assets to which these days are mapped.

    `days` are days of some of the `tables` of the project. Ordinary assets must read them. Returns
    the earlier launch if one has the same tag LAUNCH. Raises as `Dagster.launch`.
    """
    if earlier := dagster.launched({tags.LAUNCH: run_tags[tags.LAUNCH]}):
        return earlier[0]
    readers = ordinary_readers(dagster, tables)
    mapped: dict[str, list[Any]] = {}
    for table, table_days in days.items():
        selected = [table, *readers[table]]
        params = {
            "partitionNames": list(map(str, table_days)),
            "assetSelection": list(map(asset_key, selected)),
        }
        for target in dagster.ask(documents.MAPPED, {"params": params})["assetBackfillPreview"]:
            # An asset without partitions has none here either.
            found = target["partitions"] or {"ranges": (), "partitionKeys": ()}
            ranges = mapped.setdefault(name_of(target["assetKey"]), [])
            ranges += found["ranges"] or ()
            ranges += ({"start": key, "end": key} for key in found["partitionKeys"] or ())
    selection = [
        {"assetKey": asset_key(name), "partitions": {"ranges": ranges} if ranges else None}
        for name, ranges in mapped.items()
        if name not in days
    ]
    params = {"partitionsByAssets": selection, "tags": tag_list(run_tags)}
    answer = dagster.ask(documents.LAUNCH_BACKFILL, {"params": params})
    backfill = payload(answer["launchPartitionBackfill"])
    return Launched(str(backfill["backfillId"]), is_run=False)
