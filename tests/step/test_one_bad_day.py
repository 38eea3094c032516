"""One bad day stops no other: only it fails, and days that are computed from it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, ArithmeticException
from pyspark.errors.exceptions.connect import AnalysisException as AnalysisOnServer
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.functions import expr

from backfill_assets.errors import InputsChanged, ServiceUnavailable
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.status import latest_builds
from backfill_assets.quality.rule import Rule
from backfill_assets.step.errors import failure_text, may_be_of_days
from backfill_assets.step.step import FAILED_FIRST, BadDayIsolator
from backfill_assets.tables.declaration import same_day
from tests.worlds.deliveries import day, days
from tests.worlds.outages import DAILY, FOUR, HISTORY, OUTAGES, World, assert_same, broken_rules
from tests.worlds.tables import history, outages

LOST_FILE = "PATH_NOT_FOUND"


def dividing_by_zero(world: World, name: str, column: str, *bad: int):
    """The table, another version of it, in which no row of these days can be computed."""
    plain = world.table(name)
    zero = " OR ".join(f"outage_day = DATE'{day(n)}'" for n in bad)

    def compute(**inputs):
        rows = plain.compute(**inputs)
        divided = expr(f"{column} / IF({zero}, 0, 1)").cast(rows.schema[column].dataType)
        return rows.withColumn(column, divided)

    return replace(plain, version="2", compute=compute)


def failing(world: World, name: str, calls: list[int], *errors: Exception):
    """The table whose first computations raise these errors. `calls` counts computations."""
    plain = world.table(name)
    left = list(errors)

    def compute(**inputs):
        calls.append(1)
        if left:
            raise left.pop(0)
        return plain.compute(**inputs)

    return replace(plain, version="2", compute=compute)


def versions(world: World, name: str) -> list[str]:
    """The code version that each of the four days was accepted under; "1" for that of before."""
    mine = world.table(name).version
    return [
        build.code_version.replace(mine, "1") for _, build in sorted(world.accepted(name).items())
    ]


def test_a_day_whose_rows_cannot_be_computed_fails_and_the_others_are_committed(built):
    before = built.rows(OUTAGES)
    result = built.run(FOUR, dividing_by_zero(built, OUTAGES, "customers", 1), run="mine")[OUTAGES]
    assert [b.day for b in result.failed()] == days(1)
    assert result.failed()[0].message.startswith("ArithmeticException: [DIVIDE_BY_ZERO]")
    assert versions(built, OUTAGES) == ["2", "1", "2", "2"]
    assert built.rows(OUTAGES) == before
    assert [latest_builds(built.workspace).last[OUTAGES, at].outcome for at in FOUR].count(
        "failed"
    ) == 1


def test_a_run_that_loses_its_engine_records_no_day_as_failed(built):
    """A run that is stopped loses its driver first. That says nothing about its days."""
    before = built.lake.ledger.builds()
    gone = ConnectionRefusedError(111, "Connection refused")
    with pytest.raises(ConnectionRefusedError):
        built.run(FOUR, failing(built, OUTAGES, [], gone))
    assert built.lake.ledger.builds() == before
    result = built.run(FOUR, failing(built, OUTAGES, []))[OUTAGES]
    assert [build.day for build in result.accepted()] == FOUR


def test_a_day_whose_rule_raises_fails_with_the_error_and_others_are_committed(built, golden):
    def judge(profile):
        return 1 / (profile.day - day(1)).days != 0, "fine", {}

    plain = built.table(DAILY)
    of = replace(plain, version="2", rules=[*plain.rules, Rule("ratio", "A ratio.", judge)])
    result = built.run(FOUR, of)[DAILY]
    (failed,) = result.failed()
    assert failed.day == day(1)
    golden(failed.message)
    assert versions(built, DAILY) == ["2", "1", "2", "2"]


@pytest.mark.parametrize(
    ("offending", "raised"),
    [
        pytest.param(
            "outages_ < 0",
            "AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
            id="a column that is misspelt",
        ),
        pytest.param(
            "CAST(region AS INT) < 0",
            "NumberFormatException: [CAST_INVALID_INPUT]",
            id="a value it cannot look at",
        ),
    ],
)
def test_a_day_is_refused_even_if_its_bad_rows_cannot_be_shown(built, offending, raised, golden):
    not_that_day = Rule(
        "by_hand",
        "Not.",
        lambda profile: (profile.day != day(1), "not that day", {}),
        offending=offending,
    )
    result = built.run(FOUR, replace(built.table(DAILY), version="2", rules=[not_that_day]))[DAILY]
    (refused,) = result.failed()
    assert (refused.day, broken_rules(refused)) == (day(1), ["by_hand"])
    ours, error, _ = refused.message.partition(raised)
    assert error
    golden(ours)
    assert versions(built, DAILY) == ["2", "1", "2", "2"]


@pytest.mark.scale
def test_a_cumulative_table_is_built_up_to_the_day_that_fails(built, golden):
    before = built.rows(HISTORY)
    result = built.run(FOUR, dividing_by_zero(built, HISTORY, "outages_total", 1), run="mine")[
        HISTORY
    ]
    messages = {b.day: b.message for b in result.failed()}
    assert list(messages) == days(1, 2, 3)
    assert messages.pop(day(1)).startswith("ArithmeticException: [DIVIDE_BY_ZERO]")
    golden(messages)
    assert versions(built, HISTORY) == ["2", "1", "1", "1"]
    assert built.rows(HISTORY) == before


@pytest.mark.scale
def test_a_day_of_a_cumulative_table_fails_with_a_refused_day_before_it(built, golden):
    def judge(profile):
        return profile.day != day(1), "not that day", {}

    plain = failing(built, HISTORY, [], ArithmeticException("of all days together"))
    result = built.run(FOUR, replace(plain, rules=[Rule("not", "Not.", judge)]))[HISTORY]
    golden({b.day: b.message for b in result.failed()})


@pytest.mark.scale
def test_a_table_that_reads_itself_comes_to_the_same_day_by_day(once, built):
    made = built.run(
        FOUR, failing(built, HISTORY, [], ArithmeticException("of all days together")), force=True
    )[HISTORY]
    assert [b.outcome for b in made.built] == ["unchanged"] * 4
    assert [b.inputs for b in made.built] == [once.accepted(HISTORY)[at].inputs for at in FOUR]
    assert_same(built, once, [HISTORY])


@pytest.mark.parametrize(
    ("name", "computed"),
    [
        pytest.param(OUTAGES, 4, id="all days, then three"),
        pytest.param(HISTORY, 2, id="all days, then the first"),
    ],
)
def test_a_table_of_which_no_day_can_be_computed_is_given_up_soon(built, name, computed):
    calls: list[int] = []
    with pytest.raises(ValueError, match="of every day"):
        built.run(FOUR, failing(built, name, calls, *[ValueError("of every day")] * 9))
    assert len(calls) == computed
    assert {b.message for b in built.lake.ledger.builds({name: FOUR}) if not b.succeeded} == {
        "ValueError: of every day"
    }


@pytest.mark.parametrize(
    "error", [NameError("colunm"), AnalysisException("no such column")], ids=["Python's", "Spark's"]
)
def test_an_error_of_code_is_not_tried_day_by_day(built, error):
    calls: list[int] = []
    with pytest.raises(type(error)):
        built.run(FOUR, failing(built, OUTAGES, calls, error))
    assert len(calls) == 1
    assert versions(built, OUTAGES) == ["1"] * 4


class Unavailable:
    name = "UNAVAILABLE"


@pytest.mark.parametrize(
    ("error", "of_days"),
    [
        pytest.param(
            ArithmeticException("[DIVIDE_BY_ZERO] Division by zero."),
            True,
            id="a row that cannot be computed",
        ),
        pytest.param(
            TypeError("'NoneType' object is not subscriptable"), True, id="a day without rows"
        ),
        pytest.param(
            SparkConnectGrpcException("Job aborted due to stage failure"),
            True,
            id="a file that is damaged",
        ),
        pytest.param(
            AnalysisOnServer("gone", errorClass=LOST_FILE), True, id="a file that is gone"
        ),
        pytest.param(
            AnalysisOnServer("[UNRESOLVED_COLUMN]"), False, id="a column that is not there"
        ),
        pytest.param(
            NameError("name 'colunm' is not defined"), False, id="a name that is misspelt"
        ),
        pytest.param(InputsChanged("built again"), False, id="an input built again"),
        pytest.param(ServiceUnavailable("no engine"), False, id="no engine to start with"),
        pytest.param(
            SparkConnectGrpcException("refused", grpc_status_code=Unavailable),
            False,
            id="an engine that is gone",
        ),
        pytest.param(
            SparkConnectGrpcException("new", errorClass="INVALID_HANDLE.SESSION_CHANGED"),
            False,
            id="an engine started anew",
        ),
        pytest.param(
            ConnectionRefusedError(111, "Connection refused"), False, id="a driver that has ended"
        ),
        pytest.param(
            Py4JNetworkError("Answer from Java side is empty"), False, id="a driver that ends"
        ),
        pytest.param(
            SparkConnectGrpcException("Job 7 cancelled because SparkContext was shut down"),
            False,
            id="a driver that shuts down",
        ),
        pytest.param(
            RuntimeError("java.io.IOException: No space left on device"), False, id="a full disk"
        ),
    ],
)
def test_errors_of_single_days_differ_from_errors_of_every_day(error, of_days):
    assert may_be_of_days(error) == of_days


THOUSAND = [date(2017, 1, 1) + timedelta(days=n) for n in range(1000)]


def apart(table, every, *, raising=(), refused=()) -> tuple[BadDayIsolator, list[int]]:
    """The isolator after a run in which some days raise and others are refused by a rule.

    Also returns the number of days of each computation.
    """
    sizes: list[int] = []

    def build(of: Sequence[date]) -> list[Build]:
        sizes.append(len(of))
        if bad := set(of) & set(raising):
            raise ValueError(f"of {min(bad)}")
        failed: set[date] = set()
        for at in of:  # as a step judges what it computes together
            if at in refused or (table is history and at - timedelta(days=1) in failed):
                failed.add(at)
        return [
            Build(table.name, at, "failed" if at in failed else "accepted", "a run", "1")
            for at in of
        ]

    tried = BadDayIsolator(table, build)
    tried.run(every)
    return tried, sizes


@pytest.mark.parametrize("bad", [1, 500, 998, 0])
def test_one_bad_day_of_a_thousand_costs_a_few_computations_and_no_other_day(bad):
    tried, sizes = apart(outages, THOUSAND, raising=[THOUSAND[bad]])
    assert tried.errors == {THOUSAND[bad]: f"ValueError: of {THOUSAND[bad]}"}
    assert sorted(build.day for build in tried.built) == [
        at for at in THOUSAND if at != THOUSAND[bad]
    ]
    assert len(sizes) <= 3 + 2 * log2(1000)


def test_a_table_of_which_no_day_can_be_built_is_given_up_after_the_first():
    tried, sizes = apart(outages, THOUSAND, raising=THOUSAND)
    assert (tried.built, sizes) == ([], [1] * FAILED_FIRST)


def test_an_engine_that_is_gone_is_not_taken_for_a_bad_day():
    def build(of):
        raise ServiceUnavailable("no engine")

    with pytest.raises(ServiceUnavailable):
        BadDayIsolator(outages, build).run(days(0, 1, 2))


@given(
    raising=st.sets(st.integers(0, 19)), refused=st.sets(st.integers(0, 19)), gap=st.integers(1, 18)
)
def test_exactly_the_bad_days_fail_and_what_a_cumulative_table_computes_from_them(
    raising, refused, gap
):
    every = [n for n in range(20) if n != gap]
    for table in (outages, history):
        tried, sizes = apart(table, days(*every), raising=days(*raising), refused=days(*refused))
        bad: set[int] = set()
        for n in every:
            if n in raising | refused or (table is history and n - 1 in bad):
                bad.add(n)
        if tried.built:
            assert {build.day for build in tried.built if build.succeeded} == set(
                days(*every)
            ) - set(days(*bad))
            assert sorted([*tried.errors, *(build.day for build in tried.built)]) == days(*every)
            assert set(tried.errors) >= set(days(*(raising - {gap})))
        else:
            assert sum(sizes) == len(sizes) <= FAILED_FIRST


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("int() of 4711"), "ValueError: (masked). Its text may quote masked values"),
        (ArithmeticException("4711"), "ArithmeticException: (masked). Its text may quote masked"),
        (AnalysisException("no column x"), "AnalysisException: no column x"),
        (ServiceUnavailable("no engine"), "ServiceUnavailable: no engine"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_that_may_quote_a_masked_value_is_named_in_the_record(error, text):
    secret = replace(outages, name="raw/secret", mask=["customers"])
    reader = replace(outages, name="staging/reader", reads={"secret": same_day(secret)})
    for table in (secret, reader):
        assert failure_text(error, table).startswith(text)
    assert str(error) in failure_text(error, replace(outages, mask=()))
