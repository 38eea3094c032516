"""Names and places in settings that must not be there, and what of a setting's value must not be shown."""

import json
import os
import re
from collections.abc import Collection
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dotenv import dotenv_values
from dotenv.parser import parse_stream

from backfill_assets.errors import SettingsError
from backfill_assets.nearest import nearest
from backfill_assets.setting_examples import EXAMPLES

PREFIX = "BACKFILL_"
STORE = re.compile(r"(s3a?|gs|az|adl|azure|abfss?)://[^/]+")
CRON_WORDS = re.compile("jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat|l", re.IGNORECASE)
MONTHS = {name: str(n) for n, name in enumerate(CRON_WORDS.pattern.split("|")[:12], start=1)}
# The most days of a month, where they are not 31.
LENGTHS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
# A value of these may hold a password, a token or a key: no message shows it.
MAY_BE_SECRET = frozenset(
    {"lake", "landing", "spark_master", "spark_remote", "spark_conf", "dagster_url", "allowed_hosts", "service_urls"}
)


def refuse_unknown(fields: Collection[str], file: Path) -> None:
    """SettingsError for such a name in the environment or in `file`, if it is there, and for lines of that which set nothing;
    `fields` are those of the settings."""
    known = {f"{PREFIX}{name.upper()}" for name in fields}
    for name in sorted({*os.environ, *_names_in(file)} - known):
        if name.startswith(PREFIX):
            meant = nearest(name, known) or "one that `backfill guide settings-and-commands` lists"
            raise SettingsError(f"{name} is not a setting. Nothing was done. Did you mean {meant}? Otherwise take it out.")


def _names_in(file: Path) -> list[str]:
    bindings = list(parse_stream(StringIO(file.read_text("utf-8")))) if file.is_file() else []
    for each in bindings:
        if each.error or (each.value is None and (each.key or "").startswith(PREFIX)):
            raise SettingsError(
                f"Line {each.original.line} of {file} sets nothing. Nothing was done. Write NAME=value; a quote that begins a "
                "value also ends it."
            )
    return [each.key for each in bindings if each.key]


def secrets_in(remote: str) -> list[str]:
    """What a Spark Connect address has that is secret and has another place, by name."""
    host, *parameters = remote.split(";")
    has_token = any(parameter.partition("=")[0].strip().lower() == "token" for parameter in parameters)
    return ["a user"] * ("@" in host) + ["a token"] * has_token


def parsable(url: str) -> str:
    """The web address itself; ValueError, which does not show it, for a port that is none, or a password that was cut."""
    try:
        parts = urlsplit(url)
        cut = "@" in parts.path + parts.query + parts.fragment
        is_whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        cut, is_whole = "@" in url, False
    if cut:
        raise ValueError("a password in an address has %23 for #, %2F for /, %3F for ? and %40 for @")
    if not is_whole:
        raise ValueError("it needs a host, and a port from 1 to 65535")
    return url


def schedule(cron: str) -> str:
    """A cron line itself; ValueError for anything else."""
    fields, bounds = cron.split(), ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    numbers = [(int(n), of) for field, of in zip(fields, bounds, strict=False) for n in re.findall(r"\d+", field)]
    is_outside = any(not low <= number <= high for number, (low, high) in numbers)
    # Steps of nothing, and words that are none of a month, of a weekday, or "the last".
    is_word = any(not CRON_WORDS.fullmatch(word) for word in re.findall(r"[a-zA-Z]+", cron))
    if len(fields) != len(bounds) or is_outside or re.search(r"/0*(\D|$)", cron) or is_word:
        raise ValueError("a schedule is MINUTE (0-59) HOUR (0-23) DAY (1-31) MONTH (1-12) WEEKDAY (0-7)")
    if fields[4] == "*" and _never_comes(fields[2], fields[3].lower()):
        raise ValueError(f"no month of {fields[3]} has a day {fields[2]}, so that it would never start")
    return cron


def _never_comes(day: str, month: str) -> bool:
    """Whether no month that a cron line names has a day that it names. Of ranges of days the first counts; of months, none."""
    firsts = [part[0] for each in day.split(",") if (part := re.findall(r"^\d+", each))]
    months = [MONTHS.get(each, each) for each in month.split(",")]
    if len(firsts) < len(day.split(",")) or not all(each.isdigit() for each in months):
        return False
    return all(int(first) > LENGTHS.get(int(each), 31) for first in firsts for each in months)


def from_json(value: Any) -> Any:
    """A value, out of the JSON that it may be written as; ValueError, which does not show it, for any other text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("it is not JSON") from None


def without_password(address: str) -> str:
    """A path or an address itself; ValueError for one of an object store that has a user with a password in it."""
    user, at, _ = address.partition("://")[2].partition("/")[0].rpartition("@")
    if at and ":" in user:
        raise ValueError("its address has a password, which logs and the UI would show: set the store's own variables")
    return address


def of_known_store(place: str) -> str:
    """A path or an address itself; ValueError for one of a store that is neither read nor written."""
    if "://" in place and not STORE.match(place):
        raise ValueError("it is a folder's path, or begins with s3://, gs:// or abfs:// and names a bucket")
    return place


def host_of(remote: str) -> str:
    """A Spark Connect address as it is shown: without its parameters, whose values may be secret."""
    return remote.partition(";")[0]


def refuse_file(home: Path) -> None:
    """SettingsError for a home that is a file, or that would have to be in one."""
    nearest = next((place for place in (home, *home.parents) if place.exists()), home)
    if nearest.exists() and not nearest.is_dir():
        what = "is a file, and no folder" if nearest == home else f"cannot be made: {nearest} is a file"
        raise SettingsError(
            f"The home {home} {what}. Nothing was done. Move {nearest} away, or set BACKFILL_HOME to another folder."
        )


def home_set_by(folder: Path) -> str:
    """Which setting names the home of commands that are typed in this project's folder."""
    return set_by("HOME", folder) or f"the one of the folder {folder}"


def set_by(setting: str, folder: Path) -> str:
    """Where a setting of commands that are typed in this project's folder comes from; "" if it is not set."""
    name, file = f"{PREFIX}{setting}", folder / ".env"
    if os.environ.get(name):
        return f"set by {name}"
    in_file = file.is_file() and dotenv_values(file, encoding="utf-8").get(name)
    return f"set by {file}" if in_file else ""


def sentence(problem: Any) -> str:
    """What pydantic found wrong with a setting, with an example of a right one."""
    name = str(problem["loc"][0]) if problem["loc"] else ""
    reason = problem["msg"].removeprefix("Value error, ")
    if not name:
        return f"{reason}. Nothing was done."
    example = f", for example {EXAMPLES[name]}" if name in EXAMPLES else ""
    value = "" if name in MAY_BE_SECRET else f"={problem['input']!r}"
    return f"BACKFILL_{name.upper()}{value} is not allowed: {reason}{example}. Nothing was done."
