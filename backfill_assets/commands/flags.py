"""How a rebuild is asked for on the command line, as a value."""

from __future__ import annotations

import re
from collections.abc import Sequence

from backfill_assets.backfill.chunks import Order
from backfill_assets.backfill.plan import How
from backfill_assets.errors import UsageError
from backfill_assets.lake.records import WriteMode
from backfill_assets.settings import read_settings

MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0}


def how(
    *,
    force: bool,
    order: Order,
    days_per_run: int | None,
    max_parallel: int,
    write_mode: WriteMode,
    canary: int,
    budget: str,
    spark_conf: Sequence[str],
    reason: str,
) -> How:
    """These flags; what is not given comes from the settings. UsageError for a budget or a Spark setting that is none."""
    return How(
        write_mode=write_mode,
        force=force,
        order=order,
        days_per_run=days_per_run or read_settings().days_per_run,
        max_parallel=max_parallel,
        canary=canary,
        budget_minutes=minutes(budget),
        spark_conf=dict(setting(text) for text in spark_conf),
        reason=reason,
    )


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
