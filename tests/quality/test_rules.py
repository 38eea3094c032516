import json
from dataclasses import asdict
from datetime import date

import numpy as np
import pytest

from backfill_assets.quality.rule import DayProfile, Rule, refuse_unusable_rules
from backfill_assets.quality.rules import (
    has_rows,
    no_nulls,
    nulls_at_most,
    rejected_at_most,
    rows_between,
    rows_within,
    types_as_declared,
    unique_key,
    unparsed_at_most,
)


def profile(**figures) -> DayProfile:
    return DayProfile(date(2019, 8, 15), **{"rows": 100, **figures})


WEEK = {"trailing_rows": [100] * 7}


@pytest.mark.parametrize(
    ("rule", "figures", "passed"),
    [
        pytest.param(has_rows(), {"rows": 0}, False, id="an empty day has no rows"),
        pytest.param(has_rows(), {"rows": 1}, True, id="one row is enough"),
        pytest.param(
            rows_between(at_least=5, at_most=1000), {"rows": 1001}, False, id="one row too many"
        ),
        pytest.param(rows_within(0.5, 2), WEEK | {"rows": 49}, False, id="too few"),
        pytest.param(rows_within(0.5, 2), WEEK | {"rows": 200}, True, id="bound"),
        pytest.param(
            rows_within(0.5, 2),
            {"rows": 1, "trailing_rows": [100] * 6},
            True,
            id="six days say nothing of what is usual",
        ),
        pytest.param(
            rows_within(0.5, 2),
            {"rows": 5, "trailing_rows": [0] * 5 + [9] * 4},
            True,
            id="days without rows say nothing of those with rows",
        ),
        pytest.param(no_nulls("a"), {"nulls": {"a": 1}}, False, id="one null"),
        pytest.param(no_nulls("a"), {"nulls": {"b": 1}}, True, id="a null in another column"),
        pytest.param(nulls_at_most(0.05, "a"), {"nulls": {"a": 5}}, True, id="the share itself"),
        pytest.param(nulls_at_most(0.05, "a", "b"), {"nulls": {"a": 5, "b": 6}}, False, id="over"),
        pytest.param(unique_key(), {"repeated_keys": 2}, False, id="keys twice"),
        pytest.param(unique_key(), {}, True, id="keys once"),
        pytest.param(
            unparsed_at_most(0.05, ["customers"]),
            {"measures": {"unparsed_customers": 3}, "nulls": {"customers": 63}},
            False,
            id="too many values that cannot be parsed",
        ),
        pytest.param(
            unparsed_at_most(0.05, ["customers"]),
            {"measures": {"unparsed_customers": 2}, "nulls": {"customers": 62}},
            True,
            id="a few values that cannot be parsed",
        ),
        pytest.param(
            rejected_at_most(0.05, "raw/rejected_lines"),
            {"rows": 90, "compared_rows": {"raw/rejected_lines": 10}},
            False,
            id="a tenth of the lines rejected",
        ),
        pytest.param(
            rejected_at_most(0.05, "raw/rejected_lines"),
            {"rows": 95, "compared_rows": {"raw/rejected_lines": 5}},
            True,
            id="a twentieth of the lines rejected",
        ),
        pytest.param(
            types_as_declared(), {"schema_mismatches": ["a is int"]}, False, id="another type"
        ),
        pytest.param(types_as_declared(), {}, True, id="types as declared"),
    ],
)
def test_a_rule_judges_the_figures_of_one_day(rule, figures, passed, golden):
    verdict = rule.verdict(profile(**figures))
    assert (verdict.passed, verdict.refuses) == (passed, not passed)
    golden(verdict.message)


def test_a_rule_says_what_becomes_of_a_day_that_breaks_it(golden):
    golden(has_rows().described())
    golden(has_rows().as_warning().described(), "as a warning")


def test_a_warning_is_told_and_refuses_nothing():
    verdict = has_rows().as_warning().verdict(profile(rows=0))
    assert (verdict.passed, verdict.refuses, verdict.severity) == (False, False, "warning")


@pytest.mark.parametrize(
    "define",
    [
        pytest.param(lambda: rows_between(at_least=5, at_most=4), id="more at least than at most"),
        pytest.param(lambda: rows_within(2, 1), id="a low bound above the high one"),
        pytest.param(lambda: rows_within(-1, 1), id="a negative share"),
        pytest.param(lambda: nulls_at_most(1, "a"), id="a share of everything"),
        pytest.param(lambda: nulls_at_most(-0.1, "a"), id="a negative share of nulls"),
        pytest.param(lambda: no_nulls(), id="no nulls in no column"),
        pytest.param(lambda: nulls_at_most(0.1), id="few nulls in no column"),
        pytest.param(lambda: unparsed_at_most(0.1, []), id="few unreadable values in no column"),
        pytest.param(lambda: rows_between(), id="any number of rows"),
        pytest.param(
            lambda: unparsed_at_most(5, ["a"]), id="five instead of five percent unreadable"
        ),
        pytest.param(lambda: rejected_at_most(5, "t"), id="five instead of five percent rejected"),
    ],
)
def test_bounds_that_make_no_sense_are_refused_when_the_rule_is_defined(define):
    with pytest.raises(ValueError, match=r"\d|any day"):
        define()


@pytest.mark.parametrize(
    ("answer", "passed", "figures"),
    [
        pytest.param(
            (np.bool_(True), "fine", {"n": np.int64(3), "share": np.float64(0.5)}),
            True,
            {"n": 3, "share": 0.5},
            id="numpy's",
        ),
        pytest.param(
            (True, 5, {"day": date(2019, 8, 15), 1: None}),
            True,
            {"day": "2019-08-15", "1": "None"},
            id="others",
        ),
        pytest.param(
            (True, "fine", {"ratio": float("nan")}), True, {"ratio": "nan"}, id="no number"
        ),
        pytest.param((None, "undecided", {}), False, {}, id="neither yes nor no"),
        pytest.param((True, "fine", None), False, {}, id="no figures"),
        pytest.param(None, False, {}, id="nothing"),
    ],
)
def test_whatever_a_judge_answers_a_verdict_can_be_kept_and_shown(answer, passed, figures):
    verdict = Rule("by_hand", "A promise.", lambda day: answer).verdict(profile())
    assert (verdict.passed, verdict.figures) == (passed, figures)
    assert isinstance(verdict.message, str)
    json.dumps(asdict(verdict), allow_nan=False)


@pytest.mark.parametrize("name", ["no nulls", "", "half/half", "é"])
def test_a_name_that_dagster_has_no_check_for_is_refused_when_the_table_is_declared(name, golden):
    with golden.raises(ValueError):
        refuse_unusable_rules("raw/sales", [Rule(name, "A promise.", lambda day: (True, "", {}))])
