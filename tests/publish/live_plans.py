"""Four days of one table in live, and plans that build days of it there, which a rollback takes back."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from backfill_assets.plan.plan import Plan
from tests.publish.site import DAYS, A, Site


def four_days(root: Path) -> Site:
    """Four days of A, with the values 1 to 4, of an older code."""
    site = Site(root)
    site.write({at: n for n, at in enumerate(DAYS, start=1)}, code="0")
    return site


def rebuilt(site: Site, values: Mapping[date, int], **options: Any) -> Plan:
    """A plan that has built these days in live."""
    plan = site.plan({A.name: list(values)})
    site.write(values, plan=plan.id, **options)
    return plan
