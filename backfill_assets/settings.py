"""The settings, as one frozen value.

A setting is an environment variable `BACKFILL_<NAME>`, or a line of `.env` in the project's folder, or of `settings.env` in the
home; the first of these that has it decides. The project's folder is the nearest one, from the working directory upward, whose
pyproject.toml names a project in `[tool.backfill]`; without one it is the working directory. Relative paths begin there, and
everything without a path of its own is in its `.backfill`.
"""

from __future__ import annotations

import os
import re
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backfill_assets.calendar import Calendar
from backfill_assets.errors import SettingsError, UsageError
from backfill_assets.pyproject import BUNDLED, project_at
from backfill_assets.setting_names import (
    from_json,
    of_known_store,
    parsable,
    refuse_file,
    refuse_unknown,
    schedule,
    secrets_in,
    sentence,
    without_password,
)

# In the home: settings that go with it, such as the calendar of a demo. The environment and .env go before it.
REMEMBERED = "settings.env"
# The mode of a home: what lies in it, logs and tables too, only its owner can read. A folder that is there keeps its own.
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
    # One run of many days is several times faster than many runs (the guide to operations, "Speed"); the plan cuts chunks.
    days_per_run: int = Field(default=1000, ge=1)
    spark_master: str | None = None
    spark_remote: str | None = Field(default=None, pattern=r"^sc://.+")
    spark_conf: Annotated[dict[str, str], NoDecode, BeforeValidator(from_json)] = {}
    spark_jars: Annotated[tuple[Path, ...], NoDecode] = ()
    # Not given: the servers that `backfill up` runs on the home, and no others, which may be of another lake.
    dagster_url: WebAddress | None = None
    # Of proxies and tunnels before the webserver of `backfill up`; it answers to no other names than these and its own.
    allowed_hosts: Annotated[tuple[Host, ...], NoDecode] = ()
    # Where services are asked, by the name of their source, as JSON; a key may be in the address's query.
    service_urls: Annotated[dict[str, WebAddress], NoDecode, BeforeValidator(from_json)] = {}
    # When the nightly run starts, in UTC: by half past one the day before is in, with room.
    nightly_cron: Annotated[str, AfterValidator(schedule)] = "30 1 * * *"
    # Rows that arrive after the watermark make days of the horizon outdated; else somebody has to plan them.
    nightly_late_rows: bool = True
    # Days that no plan may rebuild: closed books, days somebody signed.
    protected_days: str = ""
    ask_above_days: int = Field(default=100, ge=0)  # a quarter of data: more is seldom rebuilt without thinking
    rollback_days: int = Field(default=30, ge=1, le=400)  # `backfill maintain` keeps files as long; tables keep commits 400
    # What an hour of this machine or cluster costs, in whatever money; a plan then says what it will cost.
    price_per_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_line_bytes: int = Field(default=16 * 2**20, ge=1)  # Spark holds a line in memory whole, several times over

    @field_validator("spark_jars", "allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

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
        lake, landing = str(values.get("lake", home / "lake")), str(values.get("landing", home / "landing"))
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
            shown = " ".join(each if each.isprintable() else repr(each) for each in sorted(set(wrong)))
            raise ValueError(f"Delta tables cannot be opened in a folder with {shown} in its path")
        return lake

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.first_day and self.last_day and self.last_day < self.first_day:
            raise ValueError(f"BACKFILL_LAST_DAY {self.last_day} is before BACKFILL_FIRST_DAY {self.first_day}")
        if self.spark_master and self.spark_remote:
            raise ValueError("BACKFILL_SPARK_MASTER and BACKFILL_SPARK_REMOTE exclude each other: set one")
        if secret := secrets_in(self.spark_remote or ""):
            raise ValueError(
                f"BACKFILL_SPARK_REMOTE has {', '.join(secret)}, which logs and errors would show: take it out. A token is set "
                "by SPARK_CONNECT_AUTHENTICATE_TOKEN"
            )
        try:
            self.protected()
        except UsageError as error:
            raise ValueError(
                f"BACKFILL_PROTECTED_DAYS={self.protected_days!r} is not allowed: {str(error).split('. ')[0]}"
            ) from None
        return self

    def protected(self) -> list[date]:
        """The days that no plan may rebuild, on the calendar or off it. UsageError for words that need a calendar."""
        if "last" in self.protected_days:
            raise UsageError(f"{self.protected_days!r} has another meaning every day: name the days, as 2019-09-01..2019-09-07")
        return Calendar(date.min, date.max).select(self.protected_days) if self.protected_days else []

    @property
    def dagster_home(self) -> Path:
        return self.home / "dagster"


def _absolute(folder: Path, path: str | Path) -> Path:
    # Without `..`, for Spark names files so; links are left, for what they lead to may change.
    return Path(os.path.abspath(folder / Path(path).expanduser()))  # noqa: PTH100


def read_settings(start: Path | None = None, *, remembered: bool = True, **given: Any) -> Settings:
    """The settings of a command typed in the folder `start` (the working directory, if None).

    `given` settings come before those of the environment. Without `remembered`, `settings.env` in the home is not read.
    Raises SettingsError with a line for every value that is not allowed.
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
        raise SettingsError(f"{files[0]} is not UTF-8: {error}. Nothing was done. Correct it.") from None


def remember(settings: Settings, **values: Any) -> None:
    """Keep `values` in the home, for every command that works on it without other settings in its environment."""
    settings.home.mkdir(PRIVATE, parents=True, exist_ok=True)
    lines = [f"BACKFILL_{name.upper()}={value}\n" for name, value in values.items()]
    (settings.home / REMEMBERED).write_text("".join(lines))
