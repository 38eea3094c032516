"""A small lake, and a webserver that remembers what is reported to it, to be held against each other. No Spark, no Dagster."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from backfill_assets.cli import reconcile
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import Build
from tests.deliveries import day
from tests.lake.builds import build as of_day
from tests.lake.builds import write_days

NAME = "staging/outages"


def build(number: int, minutes: int = 0, **fields: Any) -> Build:
    return replace(of_day(number, minutes, **{"fingerprint": f"f{number}", "rows": 2, "delta_version": 0} | fields), table=NAME)


@dataclass
class Webserver:
    """What Dagster knows of each table's days; it may have the days 0 to 9, and lacks the tables in `without`."""

    known: dict[str, dict[str, str]] = field(default_factory=dict)
    at_work: list[str] = field(default_factory=list)
    without: tuple[str, ...] = ()
    meanwhile: Callable[[], None] = lambda: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.meanwhile()
        asked = json.loads(request.content)
        table = request.url.path.removeprefix("/report_asset_materialization/")
        if table != request.url.path:
            self.known.setdefault(table, {})[asked["partition"]] = asked["data_version"]
            return httpx.Response(200, json={})
        data: dict[str, Any] = {"runsOrError": {"__typename": "Runs", "results": [{"runId": run} for run in self.at_work]}}
        if "assetNodes" in asked["query"]:
            data = {"assetNodes": self.nodes("/".join(asked["variables"]["key"]["path"]))}
        return httpx.Response(200, json={"data": data})

    def nodes(self, table: str) -> list[dict[str, Any]]:
        versions = self.known.get(table, {})
        events = [
            {"partition": at, "timestamp": "1", "tags": [{"key": "dagster/data_version", "value": v}]}
            for at, v in versions.items()
        ]
        node = {
            "partitionKeys": [str(day(n)) for n in range(10)],
            "latestMaterializationByPartition": [*events, None],
            "assetPartitionStatuses": {},
        }
        return [] if table in self.without else [node]


@dataclass
class Place:
    lake: Path
    web: Webserver
    capsys: pytest.CaptureFixture[str]

    @property
    def ledger(self) -> Ledger:
        return Ledger(str(self.lake))

    def reconcile(self, *, repair: bool = False, restore: bool = False) -> tuple[int, list[str]]:
        code = reconcile.run(repair=repair, restore=restore, as_json=False, transport=httpx.MockTransport(self.web))
        return code, self.capsys.readouterr().out.splitlines()


def place_in(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Place:
    """Two days of one table, built, recorded, and known to Dagster."""
    for name, value in {"HOME": home, "FIRST_DAY": day(0), "LAST_DAY": day(9), "DAGSTER_URL": "http://dagster"}.items():
        monkeypatch.setenv(f"BACKFILL_{name}", str(value))
    lake = home / "lake"
    write_days(lake, build(0), build(1))
    Ledger(str(lake)).append([build(0), build(1)])
    return Place(lake, Webserver({NAME: {str(day(0)): "f0", str(day(1)): "f1"}}), capsys)
