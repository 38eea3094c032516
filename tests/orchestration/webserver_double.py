"""What a job reports to Dagster's webserver, without one."""

import json
from typing import Any

import httpx


class Webserver:
    """What is reported to Dagster; or nobody there."""

    def __init__(self, *, runs: bool = True) -> None:
        self.runs, self.reported, self.wiped = runs, list[tuple[str, dict[str, Any]]](), list[list[str]]()
        self.transport = httpx.MockTransport(self.answer)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if not self.runs:
            raise httpx.ConnectError("refused")
        if request.url.path == "/graphql":
            variables = json.loads(request.content)["variables"]
            if "assets" not in variables:  # what is materialized: it has loaded no table
                return httpx.Response(200, json={"data": {"assetNodes": []}})
            self.wiped = [asset["assetKey"]["path"] for asset in variables["assets"]]
            return httpx.Response(200, json={"data": {"wipeAssets": {"__typename": "AssetWipeSuccess"}}})
        self.reported.append((request.url.path, json.loads(request.content)))
        return httpx.Response(200, json={})
