"""The job `diff`, as Dagster executes it, in this process: what its run shows, and the page that it
keeps.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, A, SmallLake

FIRST, SECOND, _, _ = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1, SECOND: 2})
    return lake


def launched(lake: SmallLake, **config: Any) -> Any:
    return executed("diff", lake.workspace, config)[0]


def test_a_run_shows_what_a_plan_changed_and_where_the_page_is(lake):
    plan = lake.plan({A.name: [SECOND]})
    lake.write({SECOND: 3}, plan=plan.id)
    result = launched(lake, compare=plan.id[:6])
    assert result.success
    shown = metadata(result)
    assert f"| raw/a | 1: {SECOND} | 2 | 3 | 3 | 2 | 0 |  |" in shown["tables"]
    assert "raw/a: no key, so whole rows are compared" in shown["details"]
    assert (shown["added"], shown["removed"], shown["changed"]) == (3, 2, 0)
    page = Path(shown["page"])
    assert page.parent == lake.root / "_diffs"
    assert f"before plan {plan.id} → after plan {plan.id}" in page.read_text()


def test_a_day_of_a_table_is_named_as_in_a_terminal(lake):
    lake.write({FIRST: 4})
    assert metadata(launched(lake, compare=f"{A.name} {FIRST}"))["removed"] == 1


def test_what_cannot_be_compared_fails_the_run_with_its_message_and_no_retry(lake):
    result = launched(lake, compare="1 2")
    assert not result.success
    assert "There is no release in" in str(failure(result))
