"""Owners and tags of a table, for Dagster's catalog."""

import re
from collections.abc import Mapping, Sequence

OWNER = re.compile(r"team:[\w.-]+|[^@\s]+@[^@\s]+\.[^@\s]+")
TAG_NAME, TAG_VALUE = re.compile(r"[\w.-]{1,63}(/[\w.-]{1,63})?", re.ASCII), re.compile(r"[\w.-]{0,63}", re.ASCII)


def refuse_unusable_labels(name: str, owners: Sequence[str], tags: Mapping[str, str]) -> None:
    """ValueError for owners and tags that Dagster refuses when it loads the table."""
    wrong = [owner for owner in owners if not OWNER.fullmatch(owner)]
    if wrong:
        raise ValueError(f"{name}: {wrong[0]!r} is no owner; write an e-mail address or team:NAME")
    unusable = [f"{key}={value}" for key, value in tags.items() if not (TAG_NAME.fullmatch(key) and TAG_VALUE.fullmatch(value))]
    if unusable:
        raise ValueError(f"{name}: {unusable[0]!r} is no tag; write letters, digits, dots, hyphens and underscores, 63 at most")
