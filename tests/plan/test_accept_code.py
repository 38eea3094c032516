"""Days of earlier code that are kept: the present code builds new days only. No Spark."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backfill_assets.errors import NOTHING_CHANGED, UsageError
from backfill_assets.lake.ledger import BUILD_SCHEMA
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.verbs.accept_code import accept_code
from backfill_assets.verbs.explain import explain_day
from backfill_assets.verbs.log import BuildFilter, read_log
from backfill_assets.verbs.options import AcceptCodeOptions
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day
from tests.worlds.small_lake import DAYS, A, B, SmallLake, four_days, timeless

FIRST, SECOND, THIRD, FOURTH = DAYS
LATER = datetime(2100, 1, 1, tzinfo=UTC)
KEPT = {FIRST: State.UP_TO_DATE, SECOND: State.UP_TO_DATE}


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return four_days(tmp_path)


def accepted(workspace: Workspace, name=A.name, before=str(THIRD), reason="prices"):
    return accept_code(
        workspace, AcceptCodeOptions(target=name, before=before, reason=reason), who="ada"
    )


def states(workspace: Workspace) -> dict:
    status = status_of(workspace, workspace.tables[:1], DAYS, latest=latest_builds(workspace))
    return {at: status.partitions[A.name, at].state for at in DAYS}


def test_days_before_a_day_keep_the_rows_of_earlier_code(lake):
    before = lake.values(), lake.files(), lake.workspace.lake.version(A.name)
    assert set(states(lake.workspace).values()) == {State.CODE_CHANGED}
    report = accepted(lake.workspace)
    assert (report.table, report.code, report.days) == (A.name, "1", [FIRST, SECOND])
    outdated = dict.fromkeys([THIRD, FOURTH], State.CODE_CHANGED)
    assert states(lake.workspace) == KEPT | outdated
    assert (lake.values(), lake.files(), lake.workspace.lake.version(A.name)) == before


def test_the_record_names_both_codes_and_who_kept_the_days_and_why(lake, golden):
    accepted(lake.workspace)
    (build,) = lake.workspace.lake.ledger.builds({A.name: [FIRST]})[1:]
    assert (build.outcome, build.code_version, build.accepted_code) == ("unchanged", "0", "1")
    assert (build.who, build.reason, build.rows) == ("ada", "prices", 1)
    log = read_log(lake.workspace, A.name, "", BuildFilter(), every_column=False)
    explained = explain_day(lake.workspace, A.name, str(FIRST))
    for name, said in {"log": log, "day": explained}.items():
        golden(timeless("\n".join(map(str, said.lines()))), name, RUN=build.run)


def test_the_next_change_of_the_code_makes_kept_days_outdated(lake):
    accepted(lake.workspace)
    newer = replace(lake.workspace, tables=(replace(A, version="2"),))
    assert set(states(newer).values()) == {State.CODE_CHANGED}
    accepted(newer, before=str(FOURTH))
    assert list(states(newer).values()) == [State.UP_TO_DATE] * 3 + [State.CODE_CHANGED]
    assert set(states(lake.workspace).values()) == {State.CODE_CHANGED}


def test_kept_days_whose_inputs_changed_are_named(lake):
    """The next run builds them all the same."""
    lake.write(dict.fromkeys(DAYS, 5), table=B.name, code="0")
    assert accepted(lake.workspace, B.name).outdated == []
    lake.write({SECOND: 7, FOURTH: 7})
    newer = replace(lake.workspace, tables=(A, replace(B, version="2")))
    report = accepted(newer, B.name)
    assert (report.days, report.outdated) == ([FIRST, SECOND], [SECOND])


def test_a_kept_day_keeps_its_warnings(lake):
    (build,) = lake.workspace.lake.latest({A.name: [FIRST]}, BUILD_SCHEMA.names).accepted.values()
    warned = replace(build, message="lines_as_usual: 4 lines", at=LATER)
    lake.workspace.lake.ledger.append([warned])
    accepted(lake.workspace)
    status = status_of(lake.workspace, [A], [FIRST], latest=latest_builds(lake.workspace))
    why = status.partitions[A.name, FIRST].why
    assert "kept for 1" in why
    assert why.endswith("lines_as_usual: 4 lines")


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"reason": " "}, id="no reason"),
        pytest.param({"name": "raw/*"}, id="two tables"),
        pytest.param({"name": "raw/c"}, id="an unknown table"),
        pytest.param({"before": "last 7"}, id="no day"),
        pytest.param({"before": str(day(-9))}, id="no day of other code"),
    ],
)
def test_a_wrong_request_keeps_nothing(lake, wrong):
    with pytest.raises(UsageError) as refused:
        accepted(lake.workspace, **wrong)
    assert refused.value.unchanged.startswith("Nothing was ") or refused.value.next_step
    assert set(states(lake.workspace).values()) == {State.CODE_CHANGED}


def test_days_are_not_kept_twice(lake):
    accepted(lake.workspace)
    with pytest.raises(UsageError) as refused:
        accepted(lake.workspace)
    assert refused.value.unchanged == NOTHING_CHANGED
