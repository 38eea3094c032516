"""The settings, as one frozen value.

A setting is an environment variable `BACKFILL_<NAME>`, or a line of `.env` in the project's folder,
or of `settings.env` in the home. The first of these that has it decides. The project's folder is
the nearest one, from the working directory upward, whose pyproject.toml names a project in
`[tool.backfill]`; without one it is the working directory. Relative paths begin there, and
everything without a path of its own is in its `.backfill`.

Secrets may not be in some settings, and are hidden where settings are shown.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection
from datetime import date
from io import StringIO
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backfill_assets.calendar import Calendar
from backfill_assets.errors import SettingsError, UsageError, nearest

BUNDLED = "backfill_assets.datasets.outages.project"


def project_at(start: Path) -> tuple[Path, str]:
    """The project's folder and its module, by the nearest pyproject.toml from `start` upward that
    names one.

    Without one: `start` and the bundled outages. Raises SettingsError for a pyproject.toml that is
    not TOML, or whose [tool.backfill] has any other key.
    """
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        contents = file.read_bytes() if file.is_file() else b""
        if b"backfill" not in contents:  # it concerns others, whether it can be read or not
            continue
        try:
            tool = tomllib.loads(contents.decode()).get("tool")
        except ValueError as error:
            raise SettingsError(
                f"{file} cannot be read: {error}.",
                unchanged="Nothing was done.",
                next_step="Correct it.",
            ) from None
        ours = tool.get("backfill") if isinstance(tool, dict) else None
        if not isinstance(ours, dict):
            continue
        project = ours.get("project")
        others = [key for key in ours if key != "project"]
        if others:
            raise SettingsError(
                f"[tool.backfill] in {file} has {others[0]}.",
                unchanged="Nothing was done.",
                next_step='It has one key, the module of the project: project = "my_module".',
            )
        if project:
            return folder, str(project)
    return start, BUNDLED


EXAMPLES = {
    "project": "my_module",
    "home": "/data/backfill",
    "lake": "/data/lake or s3a://bucket/lake",
    "landing": "/data/landing or s3://bucket/landing",
    "first_day": "2019-08-15",
    "last_day": "2019-10-13",
    "days_per_run": "100",
    "spark_master": "local[*] or spark://host:7077",
    "spark_remote": "sc://host:15002",
    "spark_conf": '{"spark.executor.memory": "4g"}',
    "spark_jars": "/jars/delta-spark_4.2_2.13-4.4.0.jar,/jars/delta-storage-4.4.0.jar",
    "dagster_url": "http://127.0.0.1:3000",
    "allowed_hosts": "dagster.example.com,localhost:8080",
    "service_urls": '{"weather": "https://archive-api.open-meteo.com/v1/archive"}',
    "nightly_cron": "30 1 * * *",
    "nightly_late_rows": "false",
    "max_line_bytes": "16777216",
    "protected_days": "2019-01-01..2019-06-30,2019-12-31",
    "ask_above_days": "100",
    "rollback_days": "30",
    "price_per_hour": "0.35",
}


PREFIX = "BACKFILL_"
STORE = re.compile(r"(s3a?|gs|az|adl|azure|abfss?)://[^/]+")
CRON_WORDS = re.compile(
    "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat|l", re.IGNORECASE
)
MONTHS = {name: str(n) for n, name in enumerate(CRON_WORDS.pattern.split("|")[:12], start=1)}
# The most days of a month, where they are not 31.
LENGTHS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
# A value of these may hold a password, a token or a key: no message shows it.
MAY_BE_SECRET = frozenset(
    {
        "lake",
        "landing",
        "spark_master",
        "spark_remote",
        "spark_conf",
        "dagster_url",
        "allowed_hosts",
        "service_urls",
    }
)


def refuse_unknown(fields: Collection[str], file: Path) -> None:
    """SettingsError for such a name in the environment or in `file`, if it is there, and for lines
    of that which set nothing; `fields` are those of the settings.
    """
    known = {f"{PREFIX}{name.upper()}" for name in fields}
    for name in sorted({*os.environ, *_names_in(file)} - known):
        if name.startswith(PREFIX):
            meant = nearest(name, known) or "one that `backfill guide settings-and-commands` lists"
            raise SettingsError(
                f"{name} is not a setting.",
                unchanged="Nothing was done.",
                next_step=f"Did you mean {meant}? Otherwise take it out.",
            )


def _names_in(file: Path) -> list[str]:
    bindings = list(parse_stream(StringIO(file.read_text("utf-8")))) if file.is_file() else []
    for each in bindings:
        if each.error or (each.value is None and (each.key or "").startswith(PREFIX)):
            raise SettingsError(
                f"Line {each.original.line} of {file} sets nothing.",
                unchanged="Nothing was done.",
                next_step="Write NAME=value; a quote that begins a value also ends it.",
            )
    return [each.key for each in bindings if each.key]


def secrets_in(remote: str) -> list[str]:
    """What a Spark Connect address has that is secret and has another place, by name."""
    host, *parameters = remote.split(";")
    has_token = any(
        parameter.partition("=")[0].strip().lower() == "token" for parameter in parameters
    )
    return ["a user"] * ("@" in host) + ["a token"] * has_token


def parsable(url: str) -> str:
    """The web address itself; ValueError, which does not show it, for a port that is none, or a
    password that was cut.
    """
    try:
        parts = urlsplit(url)
        cut = "@" in parts.path + parts.query + parts.fragment
        is_whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        cut = "@" in url
        is_whole = False
    if cut:
        raise ValueError(
            "a password in an address has %23 for #, %2F for /, %3F for ? and %40 for @"
        )
    if not is_whole:
        raise ValueError("it needs a host, and a port from 1 to 65535")
    return url


def schedule(cron: str) -> str:
    """A cron line itself; ValueError for anything else."""
    fields = cron.split()
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    numbers = [
        (int(n), of)
        for field, of in zip(fields, bounds, strict=False)
        for n in re.findall(r"\d+", field)
    ]
    is_outside = any(not low <= number <= high for number, (low, high) in numbers)
    # Steps of nothing, and words that are none of a month, of a weekday, or "the last".
    is_word = any(not CRON_WORDS.fullmatch(word) for word in re.findall(r"[a-zA-Z]+", cron))
    if len(fields) != len(bounds) or is_outside or re.search(r"/0*(\D|$)", cron) or is_word:
        raise ValueError(
            "a schedule is MINUTE (0-59) HOUR (0-23) DAY (1-31) MONTH (1-12) WEEKDAY (0-7)"
        )
    if fields[4] == "*" and _never_comes(fields[2], fields[3].lower()):
        raise ValueError(
            f"no month of {fields[3]} has a day {fields[2]}, so that it would never start"
        )
    return cron


def _never_comes(day: str, month: str) -> bool:
    """Whether no month that a cron line names has a day that it names. Of ranges of days the first
    counts; of months, none.
    """
    firsts = [part[0] for each in day.split(",") if (part := re.findall(r"^\d+", each))]
    months = [MONTHS.get(each, each) for each in month.split(",")]
    if len(firsts) < len(day.split(",")) or not all(each.isdigit() for each in months):
        return False
    return all(int(first) > LENGTHS.get(int(each), 31) for first in firsts for each in months)


def from_json(value: Any) -> Any:
    """A value, out of the JSON that it may be written as; ValueError, which does not show it, for
    any other text.
    """
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("it is not JSON") from None


def without_password(address: str) -> str:
    """A path or an address itself; ValueError for one of an object store that has a user with a
    password in it.
    """
    user, at, _ = address.partition("://")[2].partition("/")[0].rpartition("@")
    if at and ":" in user:
        raise ValueError(
            "its address has a password, which logs and the UI would show: set the store's own"
            " variables"
        )
    return address


def of_known_store(place: str) -> str:
    """The path or address. Raises ValueError for a store that is not supported."""
    if "://" in place and not STORE.match(place):
        raise ValueError(
            "it is a folder's path, or begins with s3://, gs:// or abfs:// and names a bucket"
        )
    return place


def host_of(remote: str) -> str:
    """A Spark Connect address without its parameters, which may hold secrets."""
    return remote.partition(";")[0]


def refuse_file(home: Path) -> None:
    """SettingsError for a home that is a file, or that would have to be in one."""
    nearest = next((place for place in (home, *home.parents) if place.exists()), home)
    if nearest.exists() and not nearest.is_dir():
        what = (
            "is a file, and no folder"
            if nearest == home
            else f"cannot be made: {nearest} is a file"
        )
        raise SettingsError(
            f"The home {home} {what}.",
            unchanged="Nothing was done.",
            next_step=f"Move {nearest} away, or set BACKFILL_HOME to another folder.",
        )


def home_set_by(folder: Path) -> str:
    """Which setting names the home of commands that are typed in this project's folder."""
    return set_by("HOME", folder) or f"the one of the folder {folder}"


def set_by(setting: str, folder: Path) -> str:
    """Where a setting of commands that are typed in this project's folder comes from; "" if it is
    not set.
    """
    name = f"{PREFIX}{setting}"
    file = folder / ".env"
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


# In the home: settings that go with it, such as the calendar of a demo. The environment and .env go
# before it.
REMEMBERED = "settings.env"
# The mode of a home: what lies in it, logs and tables too, only its owner can read. A folder that
# is there keeps its own.
PRIVATE = 0o700
WebAddress = Annotated[str, Field(pattern=r"^https?://.+"), AfterValidator(parsable)]
Host = Annotated[str, Field(pattern=r"^([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?$")]


class Settings(BaseSettings):
    """What the environment says; paths without a value lie under `home`."""

    model_config = SettingsConfigDict(env_prefix="BACKFILL_", frozen=True, extra="ignore")

    project: str = Field(default=BUNDLED, pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")
    home: Path = Path()
    lake: Annotated[str, AfterValidator(without_password), AfterValidator(of_known_store)] = ""
    landing: Annotated[str, AfterValidator(without_password), AfterValidator(of_known_store)] = ""
    first_day: date | None = None
    last_day: date | None = None
    # One run of many days is several times faster than many runs (the guide to operations,
    # "Speed"); the plan cuts chunks.
    days_per_run: int = Field(default=1000, ge=1)
    spark_master: str | None = None
    spark_remote: str | None = Field(default=None, pattern=r"^sc://.+")
    spark_conf: Annotated[dict[str, str], NoDecode, BeforeValidator(from_json)] = {}
    spark_jars: Annotated[tuple[Path, ...], NoDecode] = ()
    # Not given: the servers that `backfill up` runs on the home, and no others, which may be of
    # another lake.
    dagster_url: WebAddress | None = None
    # Of proxies and tunnels before the webserver of `backfill up`; it answers to no other names
    # than these and its own.
    allowed_hosts: Annotated[tuple[Host, ...], NoDecode] = ()
    # Where services are asked, by the name of their source, as JSON; a key may be in the address's
    # query.
    service_urls: Annotated[dict[str, WebAddress], NoDecode, BeforeValidator(from_json)] = {}
    # When the nightly run starts, in UTC: by half past one the day before is in, with room.
    nightly_cron: Annotated[str, AfterValidator(schedule)] = "30 1 * * *"
    # Rows that arrive after the watermark make days of the horizon outdated; else somebody has to
    # plan them.
    nightly_late_rows: bool = True
    # Days that no plan may rebuild: closed books, days somebody signed.
    protected_days: str = ""
    # A quarter of data: more is seldom rebuilt without thinking.
    ask_above_days: int = Field(default=100, ge=0)
    # `backfill maintain` keeps files as long; tables keep commits 400.
    rollback_days: int = Field(default=30, ge=1, le=400)
    # What an hour of this machine or cluster costs, in whatever money; a plan then says what it
    # will cost.
    price_per_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    # Spark holds a line in memory whole, several times over.
    max_line_bytes: int = Field(default=16 * 2**20, ge=1)

    @field_validator("spark_jars", "allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return (
            tuple(part.strip() for part in value.split(",") if part.strip())
            if isinstance(value, str)
            else value
        )

    @field_validator("spark_jars")
    @classmethod
    def _jars_exist(cls, jars: tuple[Path, ...]) -> tuple[Path, ...]:
        missing = [str(jar) for jar in jars if not jar.is_file()]
        if missing:
            raise ValueError(f"no such file: {', '.join(missing)}")
        return jars

    @model_validator(mode="before")
    @classmethod
    def _places(cls, values: dict[str, Any]) -> dict[str, Any]:
        values = {name: value for name, value in values.items() if value != ""}
        folder, project = project_at(values.pop("start", None) or Path.cwd())
        home = _absolute(folder, values.get("home", ".backfill"))
        lake = str(values.get("lake", home / "lake"))
        landing = str(values.get("landing", home / "landing"))
        paths = {
            "home": home,
            "lake": lake if "://" in lake else str(_absolute(folder, lake)),
            "landing": landing if "://" in landing else str(_absolute(folder, landing)),
        }
        return {"project": project} | values | paths

    @field_validator("lake")
    @classmethod
    def _opens(cls, lake: str) -> str:
        wrong = re.findall(r"%[0-9A-Fa-f]{2}|[\[\]{}^|\\\x00-\x1f]", lake)
        if wrong and "://" not in lake:
            shown = " ".join(
                each if each.isprintable() else repr(each) for each in sorted(set(wrong))
            )
            raise ValueError(f"Delta tables cannot be opened in a folder with {shown} in its path")
        return lake

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.first_day and self.last_day and self.last_day < self.first_day:
            raise ValueError(
                f"BACKFILL_LAST_DAY {self.last_day} is before BACKFILL_FIRST_DAY {self.first_day}"
            )
        if self.spark_master and self.spark_remote:
            raise ValueError(
                "BACKFILL_SPARK_MASTER and BACKFILL_SPARK_REMOTE exclude each other: set one"
            )
        if secret := secrets_in(self.spark_remote or ""):
            raise ValueError(
                f"BACKFILL_SPARK_REMOTE has {', '.join(secret)}, which logs and errors would show:"
                " take it out. A token is set by SPARK_CONNECT_AUTHENTICATE_TOKEN"
            )
        try:
            self.protected()
        except UsageError as error:
            raise ValueError(
                f"BACKFILL_PROTECTED_DAYS={self.protected_days!r} is not allowed:"
                f" {error.what.rstrip('.')}"
            ) from None
        return self

    def protected(self) -> list[date]:
        """The days that no plan may rebuild, on the calendar or off it. UsageError for words that
        need a calendar.
        """
        if "last" in self.protected_days:
            raise UsageError(
                f"{self.protected_days!r} has another meaning every day: name the days, as"
                " 2019-09-01..2019-09-07"
            )
        return (
            Calendar(date.min, date.max).select(self.protected_days) if self.protected_days else []
        )

    @property
    def dagster_home(self) -> Path:
        return self.home / "dagster"


def _absolute(folder: Path, path: str | Path) -> Path:
    # Without `..`, for Spark names files so; links are left, for what they lead to may change.
    return Path(os.path.abspath(folder / Path(path).expanduser()))  # noqa: PTH100


def read_settings(start: Path | None = None, *, remembered: bool = True, **given: Any) -> Settings:
    """The settings of a command typed in the folder `start` (the working directory, if None).

    `given` settings come before those of the environment. Without `remembered`, `settings.env` in
    the home is not read. Raises SettingsError with a line for every value that is not allowed.
    """
    start = start or Path.cwd()
    files = (project_at(start)[0] / ".env",)
    try:
        refuse_unknown(Settings.model_fields, files[0])
        settings = Settings(_env_file=files, start=start, **given)  # type: ignore[call-arg]
        refuse_file(settings.home)
        own = settings.home / REMEMBERED
        if remembered and own.is_file():
            return Settings(_env_file=(own, *files), start=start, **given)  # type: ignore[call-arg]
        return settings
    except ValidationError as error:
        raise SettingsError("\n".join(sentence(problem) for problem in error.errors())) from None
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{files[0]} is not UTF-8: {error}.",
            unchanged="Nothing was done.",
            next_step="Correct it.",
        ) from None


def remember(settings: Settings, **values: Any) -> None:
    """Keep `values` in the home, for every command that works on it without other settings in its
    environment.
    """
    settings.home.mkdir(PRIVATE, parents=True, exist_ok=True)
    lines = [f"BACKFILL_{name.upper()}={value}\n" for name, value in values.items()]
    (settings.home / REMEMBERED).write_text("".join(lines))
