"""Two days of a bundled table in live, for the verbs of plans that are published."""

from pathlib import Path

from tests.cli.test_run import REJECTED
from tests.deliveries import day
from tests.publish.site import Site

FIRST, SECOND = day(0), day(1)


def two_days(home: Path) -> Site:
    """They were not released yet."""
    site = Site(home / "lake", "arrival_day")
    site.write({FIRST: 1, SECOND: 2}, table=REJECTED)
    return site
