"""The ordinary assets that read our tables: their names, and a backfill of what Dagster maps."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any

from backfill_assets.dagster_client import documents, tags
from backfill_assets.dagster_client.answers import payload
from backfill_assets.dagster_client.client import Dagster, Launched, asset_key, name_of, tag_list
from backfill_assets.dagster_client.names import OWN, REPORTS, SHADOW


def ordinary_readers(dagster: Dagster, tables: Collection[str]) -> dict[str, set[str]]:
    """The assets that read each table, directly or through other assets that are not `tables`.

    `tables` are all tables of the project.
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
) -> Launched | None:
    """Launch a backfill of the partitions of ordinary assets that read these days of tables.

    Returns the earlier launch if one has the same tag LAUNCH, and None if no asset reads them.
    Raises as `Dagster.launch`.
    """
    earlier = dagster.launched({tags.LAUNCH: run_tags[tags.LAUNCH]})
    if earlier:
        return earlier[0]
    ranges: dict[str, list[Any] | None] = {}
    readers = ordinary_readers(dagster, tables)
    for table, table_days in days.items():
        if selected := readers.get(table):
            params = {
                "partitionNames": list(map(str, table_days)),
                "assetSelection": list(map(asset_key, [table, *selected])),
            }
            targets = dagster.ask(documents.MAPPED, {"params": params})["assetBackfillPreview"]
            for target in targets:
                if (name := name_of(target["assetKey"])) in selected:
                    ranges[name] = _ranges(target["partitions"], ranges.get(name))
    # Without a list of partitions, Dagster would take all of them.
    selection = [
        {"assetKey": asset_key(name), "partitions": mapped and {"ranges": mapped}}
        for name, mapped in ranges.items()
        if mapped != []
    ]
    if not selection:
        return None
    backfill = {"partitionsByAssets": selection, "tags": tag_list(run_tags)}
    answer = dagster.ask(documents.LAUNCH_BACKFILL, {"params": backfill})
    backfill_id = payload(answer["launchPartitionBackfill"])["backfillId"]
    return Launched(str(backfill_id), is_run=False)


def _ranges(partitions: Mapping[str, Any] | None, before: list[Any] | None) -> list[Any] | None:
    """The ranges of partitions, with those `before`. None for an asset without partitions."""
    if partitions is None:
        return None
    keys = partitions["partitionKeys"] or ()
    return [
        *(before or ()),
        *(partitions["ranges"] or ()),
        *({"start": key, "end": key} for key in keys),
    ]
