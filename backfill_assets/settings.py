"""The environment, read once, as one frozen value.

Every setting is an environment variable `BACKFILL_<NAME>` or a line of a `.env` file in the working directory. Without
any, everything lives in one folder beside the project, `.backfill`, which git ignores.
"""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backfill_assets.calendar import Calendar
from backfill_assets.errors import SettingsError, UsageError

PROJECT = Path(__file__).resolve().parent.parent
SAMPLE_FIRST_DAY, SAMPLE_LAST_DAY = date(2019, 8, 15), date(2019, 10, 13)

EXAMPLES = {
    "home": "/data/backfill",
    "lake": "/data/lake or s3a://bucket/lake",
    "landing": "/data/landing",
    "first_day": "2019-08-15",
    "last_day": "2019-10-13",
    "watermark_days": "2",
    "horizon_days": "14",
    "days_per_run": "100",
    "spark_master": "local[*] or spark://host:7077",
    "spark_remote": "sc://host:15002",
    "spark_conf": '{"spark.executor.memory": "4g"}',
    "spark_jars": "/jars/delta-spark_4.2_2.13-4.4.0.jar,/jars/delta-storage-4.4.0.jar",
    "dagster_url": "http://127.0.0.1:3000",
    "nightly_cron": "30 1 * * *",
    "protected_days": "2019-01-01..2019-06-30,2019-12-31",
    "ask_above_days": "100",
    "price_per_hour": "0.35",
}


class Settings(BaseSettings):
    """What the environment says; paths without a value lie under `home`."""

    model_config = SettingsConfigDict(env_prefix="BACKFILL_", env_file=".env", frozen=True, extra="ignore")

    home: Path = PROJECT / ".backfill"
    lake: str = ""
    landing: Path = Path()
    first_day: date = SAMPLE_FIRST_DAY
    last_day: date | None = None
    watermark_days: int = Field(default=2, ge=0, le=60)
    horizon_days: int = Field(default=14, ge=0, le=366)
    # One run of many days is several times faster than many runs (README, "How fast"); the plan cuts chunks.
    days_per_run: int = Field(default=1000, ge=1)
    spark_master: str | None = None
    spark_remote: str | None = Field(default=None, pattern=r"^sc://.+")
    spark_conf: dict[str, str] = {}
    spark_jars: Annotated[tuple[Path, ...], NoDecode] = ()
    dagster_url: str = Field(default="http://127.0.0.1:3000", pattern=r"^https?://.+")
    # When the nightly run starts, in UTC: by half past one the day before is in, with room.
    nightly_cron: str = Field(default="30 1 * * *", pattern=r"^\S+( \S+){4}$")

    # Days that no plan may rebuild: closed books, days somebody signed.
    protected_days: str = ""
    # About a quarter of data: more than that is seldom rebuilt by mistake, and seldom without thinking.
    ask_above_days: int = Field(default=100, ge=0)
    # What an hour of this machine or cluster costs, in whatever money; a plan then says what it will cost.
    price_per_hour: float | None = Field(default=None, ge=0)

    @field_validator("spark_jars", mode="before")
    @classmethod
    def _jars(cls, value: Any) -> Any:
        return tuple(Path(part.strip()) for part in value.split(",") if part.strip()) if isinstance(value, str) else value

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
        home = Path(values.get("home") or PROJECT / ".backfill").expanduser().absolute()
        lake = str(values.get("lake") or home / "lake")
        landing = Path(values.get("landing") or home / "landing").expanduser().absolute()
        return values | {
            "home": home,
            "lake": lake if "://" in lake else str(Path(lake).expanduser().absolute()),
            "landing": landing,
        }

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.last_day and self.last_day < self.first_day:
            raise ValueError(f"BACKFILL_LAST_DAY {self.last_day} is before BACKFILL_FIRST_DAY {self.first_day}")
        if self.spark_master and self.spark_remote:
            raise ValueError("BACKFILL_SPARK_MASTER and BACKFILL_SPARK_REMOTE exclude each other: set one")
        if self.horizon_days < self.watermark_days:
            raise ValueError("BACKFILL_HORIZON_DAYS must be at least BACKFILL_WATERMARK_DAYS")
        try:
            self.protected()
        except UsageError as error:
            raise ValueError(
                f"BACKFILL_PROTECTED_DAYS={self.protected_days!r} is not allowed: {str(error).split('. ')[0]}"
            ) from None
        return self

    def protected(self) -> list[date]:
        """The days that no plan may rebuild, on the calendar or off it."""
        return Calendar(date.min, date.max).select(self.protected_days) if self.protected_days else []

    @property
    def calendar(self) -> Calendar:
        return Calendar(self.first_day, self.last_day)

    @property
    def dagster_home(self) -> Path:
        return self.home / "dagster"


def read_settings(**given: Any) -> Settings:
    """The settings of this environment; SettingsError names every value that is not allowed."""
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentence(problem) for problem in error.errors())) from None
    except ValueError as error:  # a value that is not JSON where JSON is needed
        raise SettingsError(f"{error}. BACKFILL_SPARK_CONF is JSON, for example {EXAMPLES['spark_conf']}") from None


def _sentence(problem: Any) -> str:
    name = str(problem["loc"][0]) if problem["loc"] else ""
    reason = problem["msg"].removeprefix("Value error, ")
    if not name:
        return f"{reason}. Nothing was started."
    example = f", for example {EXAMPLES[name]}" if name in EXAMPLES else ""
    return f"BACKFILL_{name.upper()}={problem['input']!r} is not allowed: {reason}{example}. Nothing was started."


@cache
def settings() -> Settings:
    """The settings of this process, read at the first call."""
    return read_settings()
