"""The lines that a project declares, and what its functions may do wrong."""

import re

import pyarrow as pa
import pytest

from backfill_assets import Reconciled, consumer, definitions, reconciliation
from backfill_assets.tables.agreements import refuse_unusable
from backfill_assets.verify.checklist import CheckLine, CheckOutcome
from backfill_assets.verify.checks import SideReader, project_checks
from tests.worlds.deliveries import day, days
from tests.worlds.tables import TABLE, accepted_build, raw, reader, rows_of_days

READ = reader(o=rows_of_days([0, 1, 2], n=[1, 2, 3]), p=rows_of_days([0], n=[1]))


def reconciled(function) -> CheckLine:
    (line,) = project_checks(
        [reconciliation(tables=[TABLE], name="sums")(function)], {TABLE: [day(0)]}, READ
    )
    assert line.name == "reconciliation sums"
    return line


def test_a_reconciliation_gets_the_days_that_were_rebuilt_of_any_of_its_tables():
    @reconciliation(tables=[TABLE, "staging/p"])
    def equal_sums(read, days):
        """Both have the same sum."""
        sums = [sum(read(table, days, ["n"])["n"].to_pylist()) for table in (TABLE, "staging/p")]
        return Reconciled(
            f"{sums[0]}, {sums[1]}, {len(days)}",
            [] if sums[0] == sums[1] else ["they differ"],
        )

    (found,) = project_checks(
        [equal_sums], {TABLE: [day(2)], "staging/p": [day(0)], "raw/q": [day(1)]}, READ
    )
    assert (found.name, found.outcome) == ("reconciliation equal_sums", CheckOutcome.FAILED)
    assert found.figures == "4, 1, 2; they differ"
    (same,) = project_checks([equal_sums], {TABLE: [day(0)]}, READ)
    assert (same.outcome, same.figures) == (CheckOutcome.PASSED, "1, 1, 1")
    assert not list(project_checks([equal_sums], {"raw/q": [day(1)], TABLE: []}, READ))
    assert equal_sums.promise == "Both have the same sum."


def test_of_many_problems_the_first_are_shown_and_the_others_counted():
    line = reconciled(lambda read, days: Reconciled("5 days", [f"day {n}" for n in range(5)]))
    assert line.figures.split("; ") == ["5 days", "day 0", "day 1", "day 2", "and 2 more"]


def test_a_reconciliation_that_raises_or_returns_nonsense_fails():
    for function, error in (
        (lambda read, days: read("staging/none", days), "KeyError: 'staging/none'"),
        (lambda read, days: [], "TypeError: it returned list, not Reconciled(figures, problems)"),
    ):
        line = reconciled(function)
        assert line.outcome == CheckOutcome.FAILED
        assert line.figures == f"it raised {error}"


@pytest.mark.parametrize(
    ("query", "outcome", "figures"),
    [
        pytest.param(
            lambda read, days: read(TABLE, days),
            "passed",
            "it runs, and returns 2 row(s)",
            id="a table",
        ),
        pytest.param(
            lambda read, days: read(TABLE, days).to_pandas(),
            "passed",
            "it runs, and returns 2 row(s)",
            id="a frame",
        ),
        pytest.param(lambda read, days: 7, "passed", "it runs", id="a value"),
        pytest.param(
            lambda read, days: read(TABLE, []),
            "failed",
            "it runs, and returns nothing",
            id="no rows",
        ),
        pytest.param(
            lambda read, days: None, "failed", "it runs, and returns nothing", id="nothing"
        ),
        pytest.param(
            lambda read, days: 1 / 0,
            "failed",
            "it raised ZeroDivisionError: division by zero",
            id="an error",
        ),
    ],
)
def test_a_consumer_must_run_and_return_rows(query, outcome, figures):
    declared = consumer(tables=[TABLE], name="report")(query)
    (line,) = project_checks([declared], {TABLE: days(0, 1)}, READ)
    assert line == CheckLine("consumer report", CheckOutcome(outcome), figures)


def test_a_consumer_that_may_be_empty_passes_without_rows():
    declared = consumer(tables=[TABLE], name="report", may_be_empty=True)(lambda read, days: [])
    (line,) = project_checks([declared], {TABLE: [day(0)]}, READ)
    assert line.outcome == CheckOutcome.PASSED


def test_a_reader_counts_the_lines_that_builds_know_of():
    known = accepted_build(0, delivered="d", files={"a": 2, "b": 3})
    side = SideReader(
        lambda name, days, columns: pa.table({}),
        {(TABLE, day(0)): known, (TABLE, day(1)): accepted_build(1)},
    )
    assert side.lines(TABLE, days(0, 1, 2)) == {day(0): 5}


@reconciliation(tables=["raw/gone"])
def of_gone(read, days):
    return Reconciled("")


@reconciliation(tables=[TABLE])
def of_table(read, days):
    return Reconciled("")


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        pytest.param(
            [of_gone],
            "of_gone reads raw/gone, which is not among the tables",
            id="a table that there is not",
        ),
        pytest.param(
            [lambda read, days: 1],
            "is declared by @reconciliation(tables=[...])",
            id="a plain function",
        ),
        pytest.param(
            [of_table, consumer(tables=[TABLE], name="of_table")(print)],
            "are named of_table",
            id="two of a name",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_when_it_is_declared(declared, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        refuse_unusable(declared, [TABLE])


def test_a_reconciliation_without_tables_or_of_unknown_ones_is_refused(golden):
    for declare in (consumer, reconciliation):
        with pytest.raises(ValueError, match="tables") as refused:
            declare(tables=[])
        golden(str(refused.value), declare.__name__)
    with pytest.raises(ValueError, match="of_gone reads raw/gone"):
        definitions(tables=[raw], reconciliations=[of_gone])
