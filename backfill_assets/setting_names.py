"""Names in settings that must not be there: of settings that there are not, and of what an address should not show."""

import os
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path

from dotenv import dotenv_values

from backfill_assets.errors import SettingsError

PREFIX = "BACKFILL_"
# Parameters of a Spark Connect address that hold no secret.
HARMLESS_PARAMETERS = {"use_ssl", "user_id", "user_agent", "session_id", "grpc_max_message_size"}


def refuse_unknown(fields: Collection[str], file: Path) -> None:
    """SettingsError for such a name in the environment or in `file`, if it is there; `fields` are those of the settings."""
    known = {f"{PREFIX}{name.upper()}" for name in fields}
    named = {*os.environ, *(dotenv_values(file, encoding="utf-8") if file.is_file() else ())}
    for name in sorted(named - known):
        if name.startswith(PREFIX):
            (nearest, *_) = [*get_close_matches(name, sorted(known)), "one of those in the README"]
            raise SettingsError(f"{name} is not a setting. Nothing was started. Did you mean {nearest}? Otherwise take it out.")


def secrets_in(remote: str) -> list[str]:
    """What a Spark Connect address has that may be secret, by name."""
    host, *parameters = remote.split(";")
    names = [parameter.partition("=")[0].strip("/ ").lower() for parameter in parameters]
    user = ["a user"] if "@" in host else []
    return user + [name for name in names if name and name not in HARMLESS_PARAMETERS]
