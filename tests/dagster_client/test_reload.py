"""Reloading a code location: what the webserver answers, and what is said of it. The transport is a
function.
"""

import json
from typing import Any

import httpx
import pytest

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.requests import reload
from backfill_assets.errors import AnswerLost, UsageError


def answering(entry: dict[str, Any]) -> Dagster:
    """A webserver that answers so when it is asked to load the location `shop` again."""

    def transport(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["variables"] == {"location": "shop"}
        return httpx.Response(200, json={"data": {"reloadRepositoryLocation": entry}})

    return Dagster("http://dagster", transport=httpx.MockTransport(transport))


def loaded(result: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "__typename": "WorkspaceLocationEntry",
        "loadStatus": "LOADED",
        "locationOrLoadError": result,
    }


def test_a_location_that_was_loaded_is_enough():
    reload(answering(loaded({"__typename": "RepositoryLocation", "name": "shop"})), "shop")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(
            loaded({"__typename": "PythonError", "message": "NameError: name 'F' is not defined"}),
            id="its code does not load",
        ),
        pytest.param(
            {
                "__typename": "RepositoryLocationNotFound",
                "message": "Location shop does not exist.",
            },
            id="there is no such location",
        ),
        pytest.param(loaded(None), id="it takes longer"),
    ],
)
def test_a_location_that_was_not_loaded_is_refused_in_the_servers_words(entry, golden):
    with pytest.raises(UsageError) as refused:
        reload(answering(entry), "shop")
    golden(str(refused.value))


def test_a_server_that_fails_to_answer_leaves_it_open():
    with pytest.raises(AnswerLost, match="locked"):
        reload(answering({"__typename": "PythonError", "message": "locked"}), "shop")
