"""The ordinary assets of Dagster that read changed days: their names, and their launch."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from backfill_assets.calendar import NO_DAY
from backfill_assets.dagster_client import documents, tags
from backfill_assets.dagster_client.answers import payload
from backfill_assets.dagster_client.client import Dagster, Launched, asset_key, name_of, tag_list
from backfill_assets.dagster_client.names import OWN, REPORTS, SHADOW
from backfill_assets.errors import BackfillError, named
from backfill_assets.grouping import grouped
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Readers
from backfill_assets.plan.store import Plans
from backfill_assets.workspace import Workspace


def assets_downstream(dagster: Dagster, tables: Iterable[str], workspace: Workspace) -> list[str]:
    """The ordinary assets that read these tables. Raises as `Dagster.ask`."""
    readers = ordinary_readers(_nodes(dagster), workspace.names)
    return sorted(set[str]().union(*(readers.get(table, ()) for table in tables)))


def downstream_line(
    plan: Plan,
    readers: Readers,
    workspace: Workspace,
    dagster: Callable[[], Dagster],
    *,
    launch: bool,
    who: str,
) -> str:
    """Return a sentence on the ordinary assets that read the days that an act has changed.

    `launch`: launch them first, once for each act of the plan. Without such assets, it is "". The
    act stays as it is if the webserver does not answer.
    """
    act = Plans(workspace.lake.root).last_act(plan.id)
    reason = f"downstream of plan {plan.id}"
    run_tags = {tags.LAUNCH: f"{reason}, {act and act.number}", tags.REASON: reason, tags.WHO: who}
    try:
        server = dagster()
        assets, targets = readers_of(server, workspace.names, grouped(readers.changed))
        how = "Launch them with --downstream."
        if not targets:
            how = (
                "Nothing was launched: Dagster maps no partition of theirs to what changed. Launch"
                " theirs in the UI."
            )
        elif launch:
            how = f"Launched: {launch_once(server, targets, run_tags)}."
    except BackfillError as error:
        failed = f"Assets downstream were not launched. Type the same command again. {error.what}"
        return failed if launch else ""
    return f"Assets of Dagster read the changed days: {named(assets)}. {how}" if assets else ""


def ordinary_readers(
    nodes: Mapping[str, Mapping[str, Any]], tables: Collection[str]
) -> dict[str, set[str]]:
    """The assets that read each table, directly or through other assets that are not `tables`.

    `nodes` are the assets of Dagster by name, `tables` all tables of the project.
    """

    def readers(name: str) -> set[str]:
        direct = {
            reader
            for reader in map(name_of, nodes[name]["dependedByKeys"])
            if nodes[reader]["isMaterializable"] and reader not in tables
            if reader.partition("/")[0] not in (OWN, SHADOW, REPORTS)
        }
        return direct.union(*map(readers, direct))

    return {name: readers(name) for name in tables if name in nodes}


def _nodes(dagster: Dagster) -> dict[str, Any]:
    return {name_of(node["assetKey"]): node for node in dagster.ask(documents.GRAPH)["assetNodes"]}


def readers_of(
    dagster: Dagster, tables: Collection[str], days: Mapping[str, Sequence[date]]
) -> tuple[list[str], list[dict[str, Any]]]:
    """The ordinary assets that read days of some `tables`, and their partitions to launch.

    These are the partitions to which Dagster maps the days, as `partitionsByAssets`. Of what reads
    a table without days, they are the assets without partitions. Raises as `Dagster.ask`.
    """
    nodes = _nodes(dagster)
    readers = ordinary_readers(nodes, tables)
    ranges: dict[str, list[Any]] = {name: [] for table in days for name in readers.get(table, ())}
    for table, table_days in days.items():
        if NO_DAY in table_days or not readers.get(table):
            continue
        params = {
            "partitionNames": list(map(str, table_days)),
            "assetSelection": list(map(asset_key, [table, *readers[table]])),
        }
        for target in dagster.ask(documents.MAPPED, {"params": params})["assetBackfillPreview"]:
            found = target["partitions"]
            of_asset = ranges.get(name_of(target["assetKey"]))
            if found and of_asset is not None:
                of_asset += found["ranges"] or ()
                of_asset += ({"start": key, "end": key} for key in found["partitionKeys"] or ())
    targets = [
        {"assetKey": asset_key(name), "partitions": {"ranges": of_asset}}
        for name, of_asset in ranges.items()
        if of_asset or not nodes[name]["isPartitioned"]
    ]
    return sorted(ranges), targets


def launch_once(
    dagster: Dagster, targets: Sequence[Mapping[str, Any]], run_tags: Mapping[str, str]
) -> Launched:
    """Launch a backfill of the `targets` of `readers_of`.

    Returns the earlier launch if one has the same tag LAUNCH. Raises as `Dagster.launch`.
    """
    if earlier := dagster.launched({tags.LAUNCH: run_tags[tags.LAUNCH]}):
        return earlier[0]
    params = {"partitionsByAssets": targets, "tags": tag_list(run_tags)}
    answer = dagster.ask(documents.LAUNCH_BACKFILL, {"params": params})
    backfill = payload(answer["launchPartitionBackfill"])
    return Launched(str(backfill["backfillId"]), is_run=False)
