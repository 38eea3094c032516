"""Names in settings that must not be there: of settings that there are not, and of what an address should not show."""

import os
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path

from dotenv import dotenv_values

from backfill_assets.errors import SettingsError

PREFIX = "BACKFILL_"


def refuse_unknown(fields: Collection[str], file: Path) -> None:
    """SettingsError for such a name in the environment or in `file`, if it is there; `fields` are those of the settings."""
    known = {f"{PREFIX}{name.upper()}" for name in fields}
    named = {*os.environ, *(dotenv_values(file, encoding="utf-8") if file.is_file() else ())}
    for name in sorted(named - known):
        if name.startswith(PREFIX):
            (nearest, *_) = [*get_close_matches(name, sorted(known)), "one of those in the README"]
            raise SettingsError(f"{name} is not a setting. Nothing was started. Did you mean {nearest}? Otherwise take it out.")


def secrets_in(remote: str) -> list[str]:
    """What a Spark Connect address has that is secret and has another place, by name."""
    host, *parameters = remote.split(";")
    has_token = any(parameter.partition("=")[0].strip().lower() == "token" for parameter in parameters)
    return ["a user"] * ("@" in host) + ["a token"] * has_token


def host_of(remote: str) -> str:
    """A Spark Connect address as it is shown: without its parameters, whose values may be secret."""
    return remote.partition(";")[0]
