"""Letting a webserver load a project's code again, as Reload on its page of code locations does."""

from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import Dagster, payload
from backfill_assets.errors import UsageError

LOADED = "WorkspaceLocationEntry"


def reload(dagster: Dagster, location: str) -> None:
    """Load the code of `location` from its files as they are now; runs that are under way keep what they have loaded.

    UsageError if the webserver has no such location, or if its code did not load: then it has no tables until it does. What
    `Dagster.ask` raises, if it does not answer.
    """
    answer = payload(dagster.ask(documents.RELOAD, {"location": location})["reloadRepositoryLocation"])
    entry = (answer.get("locationOrLoadError") or {}) if answer["__typename"] == LOADED else answer
    if entry.get("__typename") == "RepositoryLocation":
        return
    message = str(entry.get("message") or "it is still being loaded").strip().rstrip(".")
    raise UsageError(
        f"The code location {location} was not loaded again: {message}. Nothing was launched, and no table was changed. See "
        f"{dagster.url}/locations, correct what is named there, then type the same again."
    )
