"""The job `diff`, executed by Dagster in this process: its metadata and its page."""

from pathlib import Path

import pytest

from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, A, SmallLake

FIRST, SECOND, _, _ = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1, SECOND: 2})
    return lake


def test_a_run_shows_what_a_plan_changed_and_where_the_page_is(lake):
    plan = lake.plan({A.name: [SECOND]})
    lake.write({SECOND: 3}, plan=plan.id)
    result = executed("diff", lake.workspace, compare=plan.id[:6])
    assert result.success
    shown = metadata(result)
    row = shown["tables"].splitlines()[2].split(" | ")
    assert row[:7] == [f"| {A.name}", f"1: {SECOND}", "2", "3", "3", "2", "0"]
    assert f"{A.name}: no key" in shown["details"]
    assert (shown["added"], shown["removed"], shown["changed"]) == (3, 2, 0)
    page = Path(shown["page"])
    assert page.parent == lake.root / "_diffs"
    assert f"before plan {plan.id} → after plan {plan.id}" in page.read_text()


def test_a_day_of_a_table_is_named_as_in_a_terminal(lake):
    lake.write({FIRST: 4})
    result = executed("diff", lake.workspace, compare=f"{A.name} {FIRST}")
    assert metadata(result)["removed"] == 1


def test_a_refused_diff_fails_the_run_without_a_retry(lake, golden):
    result = executed("diff", lake.workspace, compare="1 2")
    golden(failure(result))
    assert metadata(result)["error"] == "UsageError"
