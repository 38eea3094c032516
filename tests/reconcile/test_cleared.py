"""Partitions that are up to date again without a run, reported to a webserver that is a function."""

import json

import httpx

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.store import Lake
from backfill_assets.reconcile.cleared import report_cleared
from tests.deliveries import day
from tests.lake.builds import TABLE, build


def test_a_day_that_is_done_and_shown_as_failed_is_reported_by_its_accepted_build_and_no_other(tmp_path):
    reported = []

    def webserver(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/graphql":
            ranges = [{"status": "FAILED", "startKey": str(day(0)), "endKey": str(day(0))}]
            ranges += [{"status": "FAILED", "startKey": str(day(5)), "endKey": str(day(7))}]
            ranges += [{"status": "MATERIALIZED", "startKey": str(day(1)), "endKey": str(day(4))}]
            return httpx.Response(200, json={"data": {"assetNodes": [{"assetPartitionStatuses": {"ranges": ranges}}]}})
        reported.append((request.url.path, json.loads(request.content)))
        return httpx.Response(200, json={})

    lake, dagster = Lake(str(tmp_path)), Dagster("http://dagster", httpx.MockTransport(webserver))
    lake.ledger.append([build(n, fingerprint=f"f{n}", rows=n + 5) for n in (0, 1)])
    assert report_cleared([(TABLE, day(n)) for n in range(4)], lake, dagster) == 1
    ((path, event),) = reported
    assert path == f"/report_asset_materialization/{TABLE}"
    assert (event["partition"], event["data_version"]) == (str(day(0)), "f0")
    assert event["metadata"]["dagster/partition_row_count"] == 5
