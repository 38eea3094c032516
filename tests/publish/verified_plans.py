"""A released lake of two tables with ten rows a day, and plans that are published by their verdict. No Spark."""

from datetime import date
from pathlib import Path

from backfill_assets.plan.plan import Plan
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.published import Published
from backfill_assets.publish.release_live import release_live
from backfill_assets.verify.checklist import Verdict
from backfill_assets.verify.verdicts import Verdicts
from backfill_assets.verify.verified import verified
from backfill_assets.verify.verify import verify
from backfill_assets.workspace import Workspace
from tests.publish.site import DAYS, NOW, A, B, Site

TEN = dict.fromkeys(DAYS, 10)


def ten_rows(root: Path) -> Site:
    """Ten rows of every day of A and B, released."""
    site = Site(root / "lake")
    for table in (A.name, B.name):
        site.write(TEN, table=table)
    release_live(site.workspace, who="sensor")
    return site


def rebuilt(site: Site, values: dict[date, int], of: tuple[str, ...] = (A.name, B.name)) -> Plan:
    plan = site.shadow_plan({name: list(values) for name in of}, reason=str(values))
    for table in of:
        site.write(values, table=table, into=plan)
    return plan


def verdict_of(plan: Plan, workspace: Workspace) -> Verdict:
    """The verdict, with every decision taken: these tables drift with each row."""
    verdict = verify(plan, workspace, who="ada", now=lambda: NOW)
    if not verdict.undecided():
        return verdict
    return Verdicts(workspace.lake.root).accept(plan.id, ["*"], who="ada", reason="a test", at=NOW)


def publish(site: Site, plan: Plan, workspace: Workspace | None = None, act=None, channel: str = "stable") -> Published:
    """Publish what was verified; `act` happens between the look at the shadow and the first commit."""
    workspace = workspace or site.workspace
    approve = verified(plan, workspace)

    def approved(state: ShadowState) -> None:
        approve(state)
        if act:
            act()

    return Publication(plan, workspace, "ada").publish(channel, lambda: NOW, approved)
