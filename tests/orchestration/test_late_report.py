"""The picture of late rows in Dagster. In process, no Spark."""

from dagster import AssetKey, DagsterInstance, Definitions, materialize

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.case_reports.tables import TABLES as WHOLE_DAYS
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.other_assets import REPORT, late_reports
from tests.worlds.deliveries import day
from tests.worlds.recorded import late_lake
from tests.worlds.tables import workspace_of

CALENDAR = Calendar(day(0), day(19))


def test_it_is_drawn_from_the_ledger_and_counts_what_is_outdated(tmp_path):
    late_lake(tmp_path)
    with DagsterInstance.ephemeral() as instance:
        result = materialize(
            late_reports(workspace_of(TABLES, CALENDAR, str(tmp_path))), instance=instance
        )
    (materialized,) = result.asset_materializations_for_node("reports__late_arrivals")
    values = {name: value.value for name, value in materialized.metadata.items()}
    assert str(values.pop("staging/outage_updates")).startswith(
        "![staging/outage_updates](data:image/png;base64,"
    )
    assert values == {"outdated within the horizon": 1, "outdated beyond the horizon": 1}


def test_before_anything_has_arrived_there_is_no_picture(tmp_path):
    with DagsterInstance.ephemeral() as instance:
        result = materialize(
            late_reports(workspace_of(TABLES, CALENDAR, str(tmp_path))), instance=instance
        )
    (materialized,) = result.asset_materializations_for_node("reports__late_arrivals")
    assert "staging/outage_updates" not in materialized.metadata


def test_the_code_location_has_it_after_the_table_it_shows_and_in_no_job_of_tables(tmp_path):
    definitions = definitions_of(workspace_of(TABLES, CALENDAR, str(tmp_path)))
    Definitions.validate_loadable(definitions)
    node = definitions.resolve_asset_graph().get(REPORT)
    assert node.parent_keys == {AssetKey(["staging", "outage_updates"])}
    assert not node.is_partitioned
    for job in ("rebuild", "nightly"):
        assert REPORT not in definitions.resolve_job_def(job).asset_layer.selected_asset_keys


def test_a_project_whose_tables_read_whole_days_has_none(tmp_path):
    assert late_reports(workspace_of(WHOLE_DAYS, CALENDAR, str(tmp_path))) == []
