"""The settings, as one frozen value.

A setting is an environment variable `BACKFILL_<NAME>`, or a line of `.env` in the project's folder,
or of `settings.env` in the home. The first place that has it counts. The project's folder is the
nearest folder, from the working directory upward, with a file that names a project
(project_file.py); by default the working directory. Relative paths begin there, and files without
a configured path are in its `.backfill`.

Some settings may not contain secrets. Shown settings hide secrets.
"""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Collection
from datetime import date
from io import StringIO
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backfill_assets.calendar import as_day, fixed_days, known_zone
from backfill_assets.errors import SettingsError, UsageError, nearest
from backfill_assets.grouping import comma_separated
from backfill_assets.project_file import FILES, NamedProject

BUNDLED = "backfill_assets.datasets.outages.project"


def project_at(start: Path) -> tuple[Path, str]:
    """The project's folder and module, as the nearest file names it, from `start` upward.

    Without one: `start` and the bundled outages. Raises SettingsError as `NamedProject.at`.
    """
    named = NamedProject.at(start)
    return (named.folder, named.module) if named else (start, BUNDLED)


def code_location(settings: Settings, start: Path) -> str:
    """The name of the code location: as `dg dev` names it, but the module if that is a setting."""
    named = NamedProject.at(start)
    if named and not set_by("PROJECT", named.folder):
        return named.location
    return settings.project


def project_set_by(settings: Settings, start: Path) -> tuple[str, bool]:
    """The origin of the project's setting, and whether the folder `start` names another project."""
    named = NamedProject.at(start)
    by = set_by("PROJECT", project_at(start)[0])
    if not named or named.module == BUNDLED:
        return by or "the bundled one", False
    by = by or f"named by {named.named_by}"
    is_other = named.module != settings.project
    return f"{by}; {named.named_by} names {named.module}" if is_other else by, is_other


def refuse_unnamed_project(settings: Settings, start: Path) -> None:
    """Raise SettingsError in a Python project that does not name its tables.

    The bundled example would look like the tables of that project. In a home with the demo, the
    user wants to see the example.
    """
    if NamedProject.at(start) or set_by("PROJECT", start) or settings.home.exists():
        return
    files = (folder / name for folder in (start, *start.parents) for name in FILES)
    if file := next((file for file in files if file.is_file()), None):
        raise SettingsError(
            f"{file} names no project.",
            unchanged="Nothing was done.",
            next_step=(
                'Add [tool.backfill] with project = "my_module", the module that calls'
                " `backfill_assets.definitions`, or go to a project's folder. For the bundled"
                " example, type `backfill demo`."
            ),
        )


EXAMPLES = {
    "project": "my_module",
    "home": "/data/backfill",
    "lake": "/data/lake or s3a://bucket/lake",
    "landing": "/data/landing or s3://bucket/landing",
    "first_day": "2019-08-15",
    "last_day": "2019-10-13",
    "zone": "Europe/Berlin",
    "days_per_run": "100",
    "spark_master": "local[*] or spark://host:7077",
    "spark_remote": "sc://host:15002",
    "spark_conf": '{"spark.executor.memory": "4g"}',
    "shared_disk": "1",
    "fsync": "false",
    "spark_jars": "/jars/delta-spark_4.2_2.13-4.4.0.jar,/jars/delta-storage-4.4.0.jar",
    "dagster_url": "http://127.0.0.1:3000",
    "dagster_token": "the token that the proxy accepts",
    "dagster_ca": "/etc/ssl/company.pem",
    "code_server": "code.example.com:4000",
    "dagster_storage": "postgresql://user:password@host:5432/dagster",
    "allowed_hosts": "dagster.example.com,localhost:8080",
    "service_urls": '{"weather": "https://archive-api.open-meteo.com/v1/archive"}',
    "nightly_cron": "30 1 * * *",
    "nightly_late_rows": "false",
    "max_line_bytes": "16777216",
    "protected_days": "2019-01-01..2019-06-30,2019-12-31",
    "ask_above_days": "100",
    "rollback_days": "30",
    "price_per_hour": "0.35",
    "alerts": "mailto://user:password@example.com?to=night@example.com slack://T/B/C",
}


PREFIX = "BACKFILL_"
LOOPBACK = "127.0.0.1"
STORE = re.compile(r"(s3a?|gs|az|adl|azure|abfss?)://[^/\s]+")
_ADDRESS = re.compile(r".*://|(s3a?|gs|az|adl|azure|abfss?):")
CRON_WORDS = re.compile(
    "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat|l", re.IGNORECASE
)
MONTHS = {name: str(n) for n, name in enumerate(CRON_WORDS.pattern.split("|")[:12], start=1)}
# The most days of a month, if not 31.
LENGTHS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
# Values of these settings may contain a password, a token or a key. No message shows them.
MAY_BE_SECRET = frozenset(
    {
        "lake",
        "landing",
        "spark_master",
        "spark_remote",
        "spark_conf",
        "dagster_url",
        "dagster_storage",
        "dagster_token",
        "allowed_hosts",
        "service_urls",
        "alerts",
    }
)


def refuse_unknown_settings(fields: Collection[str], file: Path) -> None:
    """Raise SettingsError for unknown settings in the environment or in `file`.

    Also for a line of the file that sets nothing. `fields` are the names of all settings.
    """
    names = {f"{PREFIX}{name.upper()}" for name in fields}
    for name in sorted({*os.environ, *_names_in(file)} - names):
        if name.startswith(PREFIX):
            similar = nearest(name, names)
            question = f"Did you mean {similar}? If not, remove it." if similar else "Remove it."
            raise SettingsError(
                f"{name} is not a setting.",
                unchanged="Nothing was done.",
                next_step=f"{question} `backfill guide settings-and-commands` lists the settings.",
            )


def _names_in(file: Path) -> list[str]:
    bindings = list(parse_stream(StringIO(file.read_text("utf-8")))) if file.is_file() else []
    for binding in bindings:
        if binding.error or (binding.value is None and (binding.key or "").startswith(PREFIX)):
            raise SettingsError(
                f"Line {binding.original.line} of {file} sets nothing.",
                unchanged="Nothing was done.",
                next_step="Write NAME=value; a quote that begins a value also ends it.",
            )
    return [binding.key for binding in bindings if binding.key]


def secrets_in(remote: str) -> list[str]:
    """The secrets in a Spark Connect address, by name. They belong in other settings."""
    host, *parameters = remote.split(";")
    has_token = any(
        parameter.partition("=")[0].strip().lower() == "token" for parameter in parameters
    )
    return ["a user"] * ("@" in host) + ["a token"] * has_token


def parsable(url: str) -> str:
    """Return the web address. Raise ValueError for a wrong port or a password that was cut off.

    The error does not show the address.
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


def split_urls(text: Any) -> Any:
    """Split a text of URLs at blanks and commas before a scheme. URLs may contain commas."""
    if not isinstance(text, str):
        return text
    return tuple(dict.fromkeys(re.split(r"[\s,]+(?=\w+://)", text.strip())))


def schedule(cron: str) -> str:
    """Return the cron line. Raise ValueError for other texts."""
    fields = cron.split()
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    numbers = [
        (int(n), of)
        for field, of in zip(fields, bounds, strict=False)
        for n in re.findall(r"\d+", field)
    ]
    is_outside = any(not low <= number <= high for number, (low, high) in numbers)
    # Words other than months, weekdays and "l" (the last day).
    is_word = any(not CRON_WORDS.fullmatch(word) for word in re.findall(r"[a-zA-Z]+", cron))
    if len(fields) != len(bounds) or is_outside or re.search(r"/0*(\D|$)", cron) or is_word:
        raise ValueError(
            "a schedule is MINUTE (0-59) HOUR (0-23) DAY (1-31) MONTH (1-12) WEEKDAY (0-7)"
        )
    if fields[4] == "*" and _never_comes(fields[2], fields[3].lower()):
        raise ValueError(f"no month of {fields[3]} has a day {fields[2]}, so it would never start")
    return cron


def _never_comes(day: str, month: str) -> bool:
    """True if no month of a cron line has one of its days.

    For a range of days, only the first day is checked. A range of months is not checked.
    """
    days = [re.match(r"\d+", part) for part in day.split(",")]
    months = [MONTHS.get(part, part) for part in month.split(",")]
    if not all(days) or not all(part.isdigit() for part in months):
        return False
    return all(first and int(first[0]) > LENGTHS.get(int(m), 31) for first in days for m in months)


def as_typed_day(value: Any) -> Any:
    """Return the value, as a day if it is text. Raise ValueError for text that is not a day."""
    try:
        return as_day(value) if isinstance(value, str) else value
    except UsageError:
        raise ValueError("write it as YYYY-MM-DD") from None


def from_json(value: Any) -> Any:
    """Return the value, parsed if it is text. Raise ValueError for text that is not JSON.

    The error does not show the text.
    """
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("it is not JSON") from None


def without_password(address: str) -> str:
    """Return the path or address. Raise ValueError for an address with a password."""
    user, at, _ = address.partition("://")[2].partition("/")[0].rpartition("@")
    if at and ":" in user:
        raise ValueError(
            "its address has a password, which logs and the UI would show: set the variables of the"
            " store"
        )
    return address


def of_known_store(place: str) -> str:
    """The path or address. Raises ValueError for a store or an address that is not supported."""
    if not _ADDRESS.match(place):
        return place
    if not STORE.match(place):
        raise ValueError(
            "it is a folder's path, or begins with s3://, gs:// or abfs:// and names a bucket"
        )
    address = place.rstrip("/")
    folders = address.split("/")[3:]
    # Spark takes these for letters of a name; the other libraries for a query or an escape code.
    if re.search(r"[?#]|%[0-9A-Fa-f]{2}", address) or {"", ".", ".."}.intersection(folders):
        raise ValueError("an address has no ?, # or %20, and each of its folders has a name")
    return address


def is_in_s3(place: str) -> bool:
    """True for an address in an S3 store."""
    return place.startswith(("s3://", "s3a://"))


def runs_on_this_machine(address: str) -> bool:
    """True for a Spark master or a Spark Connect server whose executors are on this machine."""
    if address.startswith("local"):  # local[*] and local-cluster[...]
        return True
    places = address.partition("://")[2].partition("/")[0].split(",")
    return all(_is_loopback(place) for place in places)


def executors_elsewhere(settings: Settings) -> bool:
    """True if Spark's executors are on other machines."""
    return not runs_on_this_machine(settings.spark_remote or master_of(settings))


def master_of(settings: Settings) -> str:
    """The Spark master of drivers. A master in BACKFILL_SPARK_CONF comes first."""
    return settings.spark_conf.get("spark.master") or settings.spark_master or "local[*]"


def _is_loopback(place: str) -> bool:
    host = urlsplit(f"//{place}").hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # the name of a host
        return False


def host_of(remote: str) -> str:
    """A Spark Connect address without its parameters, which may hold secrets."""
    return remote.partition(";")[0]


def nearest_existing(place: Path) -> Path:
    """The file or folder, or the nearest folder above it that exists."""
    return next(above for above in (place, *place.parents) if above.exists())


def refuse_file_as_home(home: Path) -> None:
    """Raise SettingsError for a home that is a file, or is below a file."""
    existing = nearest_existing(home)
    if not existing.is_dir():
        why = "is a file" if existing == home else f"cannot be created: {existing} is a file"
        raise SettingsError(
            f"The home {home} {why}.",
            unchanged="Nothing was done.",
            next_step=f"Move {existing} away, or set BACKFILL_HOME to another folder.",
        )


def set_by(setting: str, folder: Path) -> str:
    """The origin of a setting for commands in this project's folder; "" if it is not set."""
    name = f"{PREFIX}{setting}"
    file = folder / ".env"
    if os.environ.get(name):
        return f"set by {name}"
    in_file = file.is_file() and dotenv_values(file, encoding="utf-8").get(name)
    return f"set by {file}" if in_file else ""


def sentence(problem: Any) -> str:
    """An error of pydantic about a setting, as a sentence with an example."""
    name = str(problem["loc"][0]) if problem["loc"] else ""
    reason = problem["msg"].removeprefix("Value error, ")
    if not name:
        return f"{reason}."
    if problem["type"] == "string_pattern_mismatch":
        reason = "it has another form"
    example = f", for example {EXAMPLES[name]}" if name in EXAMPLES else ""
    value = "" if name in MAY_BE_SECRET else f"={problem['input']!r}"
    return f"BACKFILL_{name.upper()}{value} is not allowed: {reason}{example}."


# The settings of a home, such as the calendar of a demo. The environment and .env come first.
REMEMBERED = "settings.env"
# The mode of a new home: only its owner can read logs and tables. An existing folder keeps its
# mode.
PRIVATE = 0o700
WebAddress = Annotated[str, Field(pattern=r"^https?://.+"), AfterValidator(parsable)]
Database = Annotated[str, Field(pattern=r"^postgresql://.+"), AfterValidator(parsable)]
Host = Annotated[str, Field(pattern=r"^([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?$")]


class Settings(BaseSettings):
    """The settings. Paths without a value are below `home`."""

    model_config = SettingsConfigDict(env_prefix="BACKFILL_", frozen=True, extra="ignore")

    project: str = Field(default=BUNDLED, pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")
    home: Path = Path()
    lake: Annotated[str, AfterValidator(without_password), AfterValidator(of_known_store)] = ""
    landing: Annotated[str, AfterValidator(without_password), AfterValidator(of_known_store)] = ""
    first_day: Annotated[date | None, BeforeValidator(as_typed_day)] = None
    last_day: Annotated[date | None, BeforeValidator(as_typed_day)] = None
    # The zone of days and of schedules.
    zone: Annotated[str, AfterValidator(known_zone)] = ""
    # One run of many days is several times faster than many runs (guide to operations, "Speed").
    days_per_run: int = Field(default=1000, ge=1)
    spark_master: str | None = None
    spark_remote: str | None = Field(default=None, pattern=r"^sc://.+")
    spark_conf: Annotated[dict[str, str], NoDecode, BeforeValidator(from_json)] = {}
    spark_jars: Annotated[tuple[Path, ...], NoDecode] = ()
    # Whether all hosts of a Spark cluster have the folders of this project at the same paths.
    shared_disk: bool = False
    # Whether a lake on a local disk outlives a power cut.
    fsync: bool = True
    # By default only the servers of `backfill up` on this home. Others may have another lake.
    dagster_url: WebAddress | None = None
    # A proxy before the webserver may require a token, or use a certificate from a private CA.
    dagster_token: str | None = Field(default=None, pattern=r"^[!-~]+$")
    dagster_ca: Path | None = None
    # The code server, for a webserver or a daemon that runs alone (`backfill up --only`).
    code_server: Annotated[str | None, Field(pattern=r"^([\w.-]+|\[[\da-fA-F:]+\]):\d+$")] = None
    # Dagster's records. By default SQLite files in the home.
    dagster_storage: Database | None = None
    # Proxies and tunnels before the webserver of `backfill up`. The webserver refuses other host
    # names.
    allowed_hosts: Annotated[tuple[Host, ...], NoDecode] = ()
    # The addresses of services by the name of their source, as JSON. The query may hold a key.
    service_urls: Annotated[dict[str, WebAddress], NoDecode, BeforeValidator(from_json)] = {}
    # The start of the nightly run, in the zone. By then the deliveries of the day before have
    # arrived.
    nightly_cron: Annotated[str, AfterValidator(schedule)] = "30 1 * * *"
    # Whether rows that arrive after the watermark make days outdated. Otherwise a plan rebuilds
    # them.
    nightly_late_rows: bool = True
    # Days that no plan may rebuild, such as closed books.
    protected_days: str = ""
    # About a quarter of a year. Larger rebuilds need a confirmation.
    ask_above_days: int = Field(default=100, ge=0)
    # The number of days for which `backfill maintain` keeps files. Tables keep commits for 400
    # days.
    rollback_days: int = Field(default=30, ge=1, le=400)
    # The price of an hour of this machine or cluster. A plan then shows its cost.
    price_per_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    # URLs of apprise, which tell people what happens. They contain passwords and tokens.
    alerts: Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(split_urls)] = ()
    # Spark holds several copies of a line in memory.
    max_line_bytes: int = Field(default=16 * 2**20, ge=1)

    @field_validator("spark_jars", "allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(comma_separated(value)) if isinstance(value, str) else value

    @field_validator("spark_jars")
    @classmethod
    def _jars_exist(cls, jars: tuple[Path, ...]) -> tuple[Path, ...]:
        missing = [str(jar) for jar in jars if not jar.is_file()]
        if missing:
            raise ValueError(f"no such file: {', '.join(missing)}")
        return jars

    @field_validator("dagster_ca")
    @classmethod
    def _certificates(cls, file: Path | None) -> Path | None:
        try:
            if file:
                ssl.create_default_context(cafile=file)
        except OSError:  # ssl.SSLError is one
            raise ValueError("it is not a readable file of certificates (PEM)") from None
        return file

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
            "lake": lake if _ADDRESS.match(lake) else str(_absolute(folder, lake)),
            "landing": landing if _ADDRESS.match(landing) else str(_absolute(folder, landing)),
        }
        return {"project": project} | values | paths

    @field_validator("lake")
    @classmethod
    def _opens(cls, lake: str) -> str:
        wrong = re.findall(r"%[0-9A-Fa-f]{2}|[\[\]{}^|\\\x00-\x1f]", lake)
        if wrong and "://" not in lake:
            shown = " ".join(
                part if part.isprintable() else repr(part) for part in sorted(set(wrong))
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
        places = {"BACKFILL_LAKE": self.lake, "BACKFILL_LANDING": self.landing}
        local = [name for name, place in places.items() if "://" not in place]
        if local and not self.shared_disk and executors_elsewhere(self):
            own = "spark.master" in self.spark_conf
            of_master = "BACKFILL_SPARK_CONF" if own else "BACKFILL_SPARK_MASTER"
            setting = "BACKFILL_SPARK_REMOTE" if self.spark_remote else of_master
            raise ValueError(
                f"{setting} names another machine, and {' and '.join(local)} is a folder: executors"
                " would write rows to their own disks, and these rows would be lost. Use an object"
                " store, or set BACKFILL_SHARED_DISK=1 if every host has this folder at this path"
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
        """The days that no plan may rebuild, also outside the calendar.

        Raises UsageError for words that need a calendar.
        """
        return fixed_days(self.protected_days)

    @property
    def dagster_home(self) -> Path:
        return self.home / "dagster"


def _absolute(folder: Path, path: str | Path) -> Path:
    # Without `..`, as in Spark's names of files. Links stay, because their targets may change.
    return Path(os.path.abspath(folder / Path(path).expanduser()))  # noqa: PTH100


def read_settings(start: Path | None = None, *, remembered: bool = True, **given: Any) -> Settings:
    """The settings of a command typed in the folder `start` (None: the working directory).

    `given` settings come before those of the environment. Without `remembered`, `settings.env` in
    the home is not read. Raises SettingsError with a line for every wrong value.
    """
    start = start or Path.cwd()
    files = (project_at(start)[0] / ".env",)
    try:
        refuse_unknown_settings(Settings.model_fields, files[0])
        settings = Settings(_env_file=files, start=start, **given)  # type: ignore[call-arg]
        refuse_file_as_home(settings.home)
        own = settings.home / REMEMBERED
        if remembered and own.is_file():
            return Settings(_env_file=(own, *files), start=start, **given)  # type: ignore[call-arg]
        return settings
    except ValidationError as error:
        raise SettingsError(
            "\n".join(map(sentence, error.errors())),
            unchanged="Nothing was done.",
            next_step="Correct it in the environment, or in .env.",
        ) from None
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{files[0]} is not UTF-8: {error}.",
            unchanged="Nothing was done.",
            next_step="Correct it.",
        ) from None


def remember(settings: Settings, **values: Any) -> None:
    """Store `values` in the home, as settings of all commands that work on it."""
    settings.home.mkdir(PRIVATE, parents=True, exist_ok=True)
    lines = [f"BACKFILL_{name.upper()}={value}\n" for name, value in values.items()]
    (settings.home / REMEMBERED).write_text("".join(lines))
