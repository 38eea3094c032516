"""How a rebuild is asked for on the command line, as a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from backfill_assets.cli.options import rebuild_flags
from backfill_assets.errors import UsageError
from backfill_assets.plan.plan import PlanOptions
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.settings import read_settings

MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0}


def asked(**flags: Any) -> RebuildRequest:
    """These flags; what is not given comes from the settings. UsageError for a budget or a Spark setting that is none."""
    options = PlanOptions(
        write_mode=flags["write_mode"],
        force=flags["force"],
        order=flags["order"],
        days_per_run=flags["days_per_run"] or read_settings().days_per_run,
        max_parallel=flags["max_parallel"],
        canary=flags["canary"],
        retries=flags["retries"],
        budget_minutes=minutes(flags["budget"]),
        spark_conf=dict(setting(text) for text in flags["spark_conf"] or []),
        reason=flags["reason"],
    )
    return RebuildRequest(
        flags["partitions"], flags["target"], flags["only"], flags["upstream"], flags["downstream"], options, flags["yes"]
    )  # fmt: skip


def given(flags: Mapping[str, Any]) -> list[str]:
    """The names of the flags that are not as they are if nobody types them."""
    return [name for name, value in rebuild_flags().items() if flags[name] != value]


def minutes(text: str) -> float:
    """`90s`, `30m`, `2h` or `1d` in minutes; nothing is no limit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if text and not found:
        raise UsageError(f"--budget {text} is no length of time. Nothing was started. Type 90s, 30m, 2h or 1d.")
    return float(found[1]) * MINUTES[found[2]] if found else 0.0


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise UsageError(
            f"--spark-conf {text} is no Spark setting. Nothing was started. Type it as spark.sql.shuffle.partitions=8."
        )
    return name.strip(), value.strip()
