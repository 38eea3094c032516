"""A released lake of two tables, plans that rebuild both in a shadow, and what readers of a channel get. No Spark."""

from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.published import Published
from backfill_assets.publish.release_live import Released, release_live
from tests.publish.killed import Killed, killed_at
from tests.publish.site import DAYS, NOW, A, B, Site

RELEASED = dict(zip(DAYS, [1, 2, 3, 4], strict=True))


def released_site(root: Path | str) -> Site:
    """Four days of A and B in the lake at `<root>/lake`, all of them released; the value of a day of B is that of A."""
    site = Site(f"{root}/lake" if isinstance(root, str) else root / "lake")  # type: ignore[arg-type]
    for table in (A.name, B.name):
        site.write(RELEASED, table=table)
    assert isinstance(release_live(site.workspace, who="sensor"), Released)
    return site


def rebuilt(site: Site, values: dict[date, int]) -> Plan:
    """A plan of these days of both tables, built in its shadow."""
    plan = site.shadow_plan({A.name: list(values), B.name: list(values)}, reason=str(values))
    for table in (A.name, B.name):
        site.write(values, table=table, into=plan)
    return plan


def approved(state: ShadowState) -> None:
    """Nobody objects."""


def publish(site: Site, plan: Plan, channel: str = "stable", reason: str = "a new rule", **options) -> Published:
    return Publication(plan, site.workspace, "ada", reason).publish(channel, lambda: NOW, approved, **options)


def half_published(site: Site, values: dict[date, int]) -> Plan:
    """A plan whose publication was killed when A was in live, and B was not."""
    plan = rebuilt(site, values)
    for stop in range(20):
        with pytest.raises(Killed), killed_at(stop):
            publish(site, plan)
        if site.values() != RELEASED:
            break
    assert site.values(B.name) == RELEASED
    return plan


def released(site: Site, table: str = A.name, channel: str = "stable") -> dict[date, int]:
    """The value of every day that readers of a channel get, which has as many rows as it says."""
    release = Releases(str(site.root)).of_channel(channel)
    rows = ReleasedTable(str(site.root), release, table).dataset().to_table().to_pydict()
    pairs = Counter(zip(rows["day"], rows["n"], strict=True))
    assert all(count == value for (_, value), count in pairs.items()), pairs
    return dict(sorted(pairs))
