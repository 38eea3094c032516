"""How days of tables are launched: as one run where one holds them all, else as a backfill.

Dagster's own dialog launches one partition as a run, too. A run starts at once. A backfill launches its runs at the daemon's
next tick, those of a table that reads itself only after all others have ended, and is over at the tick after that.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from backfill_assets.calendar import consecutive, one_range
from backfill_assets.dagster_client.launched import DAY, FIRST_DAY, LAST_DAY

Days = Mapping[str, Sequence[date]]
# Dagster's name for the job of everything that is launched as a selection of assets, and not by a job of its own.
ASSET_JOB = "__ASSET_JOB"


def one_run(days: Days, nodes: Mapping[str, Mapping[str, Any]]) -> tuple[date, date] | None:
    """The first and the last day of the run that can build all of `days`: all tables have the same, without a gap, and no more
    than the code location allows in a run. Else None. `nodes`: its assets, by table."""
    return one_range(
        days.values(), min((nodes[table]["backfillPolicy"] or {}).get("maxPartitionsPerRun") or 1 for table in days)
    )


def run_params(
    tables: Sequence[str], ends: tuple[date, date], node: Mapping[str, Any], tags: Mapping[str, str]
) -> dict[str, Any]:
    """GraphQL's ExecutionParams for a run of these tables on all days between the two `ends`. `node`: one of its assets."""
    repository, (first, last) = node["repository"], map(str, ends)
    selector = {
        "jobName": ASSET_JOB,
        "repositoryName": repository["name"],
        "repositoryLocationName": repository["location"]["name"],
        "assetSelection": [_asset_key(table) for table in tables],
    }
    of_days = {DAY: first} if first == last else {FIRST_DAY: first, LAST_DAY: last}
    return {"selector": selector, "executionMetadata": {"tags": tag_list({**tags, **of_days})}}


def job_params(job: str, config: Mapping[str, Any], node: Mapping[str, Any], tags: Mapping[str, str]) -> dict[str, Any]:
    """GraphQL's ExecutionParams for a run of a job with this configuration. `node`: any asset of the code location."""
    selector = {
        "jobName": job,
        "repositoryName": node["repository"]["name"],
        "repositoryLocationName": node["repository"]["location"]["name"],
    }
    return {"selector": selector, "runConfigData": dict(config), "executionMetadata": {"tags": tag_list(tags)}}


def backfill_params(days: Days, tags: Mapping[str, str], title: str) -> dict[str, Any]:
    """GraphQL's LaunchBackfillParams for exactly these days of exactly these tables."""
    by_asset = [{"assetKey": _asset_key(table), "partitions": {"ranges": _ranges(of)}} for table, of in days.items()]
    return {"partitionsByAssets": by_asset, "tags": tag_list(tags), "title": title}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _asset_key(table: str) -> dict[str, list[str]]:
    return {"path": table.split("/")}


def _ranges(days: Sequence[date]) -> list[dict[str, str]]:
    return [{"start": str(island[0]), "end": str(island[-1])} for island in consecutive(days)]
