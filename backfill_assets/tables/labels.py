"""The name of a table, and its owners, tags and schedule, as Dagster takes them."""

import re
from collections.abc import Mapping, Sequence

from backfill_assets.setting_names import schedule

OWNER = re.compile(r"team:[\w.-]+|[^@\s]+@[^@\s]+\.[^@\s]+")
TAG_NAME, TAG_VALUE = re.compile(r"[\w.-]{1,63}(/[\w.-]{1,63})?", re.ASCII), re.compile(r"[\w.-]{0,63}", re.ASCII)


def refuse_unusable_labels(name: str, owners: Sequence[str], tags: Mapping[str, str], cron: str = "") -> None:
    """ValueError for a name that is not layer/table, and owners, tags and schedules that Dagster refuses when it loads it."""
    if not re.fullmatch(r"[a-z]\w*/[a-z]\w*", name):
        raise ValueError(f"{name!r} is not the name of a table: write layer/table, for example staging/orders")
    try:
        schedule(cron or "0 0 * * *")
    except ValueError as error:
        raise ValueError(f"{name}: cron={cron!r}: {error}") from None
    wrong = [owner for owner in owners if not OWNER.fullmatch(owner)]
    if wrong:
        raise ValueError(f"{name}: {wrong[0]!r} is no owner; write an e-mail address or team:NAME")
    unusable = [f"{key}={value}" for key, value in tags.items() if not (TAG_NAME.fullmatch(key) and TAG_VALUE.fullmatch(value))]
    if unusable:
        raise ValueError(f"{name}: {unusable[0]!r} is no tag; write letters, digits, dots, hyphens and underscores, 63 at most")
