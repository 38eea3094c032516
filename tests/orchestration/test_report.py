"""The materialization of a day, made without a run."""

import pytest
from dagster import AssetKey, UrlMetadataValue

from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.ledger import Build
from backfill_assets.orchestration.report import materialization
from tests.worlds.deliveries import day


@pytest.mark.parametrize("plan", ["ebb0d924512e", ""], ids=["of a plan", "without a plan"])
def test_a_day_links_to_the_runs_of_its_plan_without_naming_a_host(plan):
    build = Build(
        TABLES[0].name, day(0), "accepted", "run", TABLES[0].version, plan=plan, fingerprint="f"
    )
    metadata = materialization(
        AssetKey(["raw", "outage_events"]), TABLES[0], build, new=True, pointer=7
    ).metadata
    link = metadata.get("runs of the plan")
    assert link == (UrlMetadataValue("/runs?q[]=tag:backfill/plan=ebb0d924512e") if plan else None)
    assert ("plan" in metadata) == bool(plan)


def test_the_figures_of_rules_are_figures_of_the_day_which_dagster_plots_by_day():
    check = {
        "rule": "rows_within",
        "passed": True,
        "figures": {"rows": 12, "ratio": 1.5, "usual": "8 to 12", "new": True},
    }
    build = Build(TABLES[0].name, day(0), "accepted", "run", "1", fingerprint="f", checks=[check])
    key = AssetKey(["raw", "outage_events"])
    shown = materialization(key, TABLES[0], build, new=True, pointer=7).metadata
    figures = {name: entry.value for name, entry in shown.items() if name.startswith("rows_within")}
    assert figures == {"rows_within: rows": 12, "rows_within: ratio": 1.5}
