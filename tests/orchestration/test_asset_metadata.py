"""What Dagster's catalog shows of tables: their columns, places, code, owners and tags."""

import inspect
import re
from datetime import datetime

import pytest
from dagster import DailyPartitionsDefinition

from backfill_assets import same_day, table
from backfill_assets.datasets.outages.features import region_daily
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.orchestration.assets import dagster_schema, metadata_of, spec_of
from backfill_assets.quality.rule import Rule
from backfill_assets.quality.rules import no_nulls, nulls_at_most
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from tests.worlds.tables import CALENDAR, workspace_of

PARTITIONS = DailyPartitionsDefinition("2019-08-15")


def declared(*rules: Rule, **labels) -> Table:
    @table(
        "features/labelled",
        partition_by="outage_day",
        columns="outage_day DATE, n DECIMAL(9, 2) COMMENT 'unused, here'",
        reads={"daily": same_day(region_daily)},
        rules=rules,
        version="1",
        **labels,
    )
    def labelled(daily):
        """One row a day.

        Nothing else is to be known.
        """
        return daily

    return labelled


@pytest.mark.parametrize("of", TABLES, ids=lambda each: each.name)
def test_every_column_of_the_bundled_tables_has_its_type_and_a_description(of):
    columns = dagster_schema(of).columns
    assert {column.name: column.type for column in columns} == types_of(of.columns)
    assert [
        column.name
        for column in columns
        if not re.fullmatch(r"[A-Z].*\.", column.description or "")
    ] == []


@pytest.mark.parametrize(
    ("rules", "nullable"), [([], True), ([nulls_at_most(0.1, "n")], True), ([no_nulls("n")], False)]
)
def test_a_column_is_required_if_a_rule_refuses_its_nulls(rules, nullable):
    columns = dagster_schema(declared(*rules, key=["n"])).columns
    shown = [(c.name, c.type, c.constraints.nullable, c.constraints.unique) for c in columns]
    assert shown == [("outage_day", "DATE", False, False), ("n", "DECIMAL(9, 2)", nullable, True)]


def test_an_asset_says_where_its_table_and_its_code_are_and_whose_it_is(tmp_path):
    of = declared(
        owners=["team:data", "ada@example.com"],
        tags={"tier": "gold"},
        descriptions={"n": "A number."},
    )
    spec = spec_of(of, workspace_of([of], CALENDAR, str(tmp_path)), PARTITIONS)
    assert (spec.owners, spec.tags["tier"]) == (["team:data", "ada@example.com"], "gold")
    assert spec.description == "One row a day.\n\nNothing else is to be known."
    assert (spec.metadata["dagster/uri"], spec.metadata["dagster/table_name"]) == (
        f"file://{tmp_path}/features/labelled",
        "features.labelled",
    )
    (reference,) = spec.metadata["dagster/code_references"].code_references
    assert (reference.file_path, reference.line_number) == (
        __file__,
        inspect.getsourcelines(of.compute)[1],
    )


def test_a_lake_in_an_object_store_is_named_as_it_is():
    lake = workspace_of([], CALENDAR, "s3://bucket/lake").lake
    assert (
        metadata_of(region_daily, lake)["dagster/uri"] == "s3://bucket/lake/features/region_daily"
    )


@pytest.mark.parametrize(
    "labels",
    [
        {"owners": ["ada"]},
        {"tags": {"a tier": "gold"}},
        {"tags": {"tier": "x" * 64}},
        {"first_day": "2024-06-02"},
        {"first_day": datetime(2024, 6, 2)},
    ],
    ids=["owner", "name of a tag", "value of a tag", "text", "time"],
)
def test_wrong_labels_and_days_are_refused_when_they_are_declared(labels, golden):
    with pytest.raises(ValueError, match="features/labelled") as refused:
        declared(**labels)
    golden(str(refused.value))
