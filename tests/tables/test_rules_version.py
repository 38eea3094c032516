"""The version of a table's rules follows what they promise and how they judge."""

import functools
import importlib
import math
import operator
import sys
from collections import defaultdict
from datetime import date
from enum import Enum
from pathlib import Path

import pytest

from backfill_assets.quality.rule import Rule
from backfill_assets.quality.rules import (
    has_rows,
    no_nulls,
    rejected_at_most,
    rows_between,
    rows_within,
    unique_key,
)
from backfill_assets.tables.code_version.rules import refuse_unseen, rules_version, signature
from backfill_assets.tables.code_version.source import parsed
from backfill_assets.tables.declaration import SliceDays, table


class Size(Enum):
    SMALL = 1
    LARGE = 2


class Between:
    """A judge that is an object."""

    def __init__(self, low, high):
        self.low = low
        self.high = high

    def __call__(self, day):
        return self.low <= day.rows <= self.high, "", {}

    def judged(self, day):
        return self(day)


def few(*values, **named) -> Rule:
    return Rule("few", "Few rows.", lambda day: (day.rows in (values, named), "", {}))


def limited(limit, day):
    return day.rows <= limit, "", {}


def judging(judge) -> Rule:
    return Rule("few", "Few rows.", judge)


def larger(bound):
    return lambda rows: rows > bound


def by_default(limit) -> Rule:
    return judging(lambda day, limit=limit: (day.rows <= limit, "", {}))


def test_another_judgement_is_another_rule_whatever_its_promise_says():
    """Days that were accepted under the earlier one are audited again."""

    def bounded(bound: int) -> Rule:
        return Rule("few", "Few rows.", lambda day: (day.rows <= bound, "", {}))

    at_least = Rule("few", "Few rows.", lambda day: (day.rows >= 5, "", {}))
    rules = [
        bounded(5),
        bounded(6),
        at_least,
        rejected_at_most(0.05, "raw/a"),
        rejected_at_most(0.05, "raw/b"),
        unique_key(),
    ]
    assert len({signature(rule) for rule in rules}) == len(rules)
    assert signature(bounded(5)) == signature(bounded(5))
    assert signature(rows_between(at_least=1)) != signature(rows_between(at_least=1).as_warning())


@pytest.mark.parametrize(
    ("make", "other"),
    [
        pytest.param(lambda: few({1, 2}), lambda: few({1}), id="a set"),
        pytest.param(lambda: few(high={"a": 5}), lambda: few(high={"a": 1}), id="a dict"),
        pytest.param(lambda: few(None, 5), lambda: few(5, None), id="a value that is not given"),
        pytest.param(lambda: few(date(2024, 1, 1)), lambda: few(date(2024, 1, 2)), id="a day"),
        pytest.param(lambda: few(range(3)), lambda: few(range(4)), id="a range"),
        pytest.param(lambda: few(Size.SMALL), lambda: few(Size.LARGE), id="a member of an Enum"),
        pytest.param(lambda: few(operator.le), lambda: few(operator.lt), id="a built-in function"),
        pytest.param(
            lambda: few(larger(1)), lambda: few(larger(2)), id="a function made with another value"
        ),
        pytest.param(
            lambda: few(larger, limited, larger),
            lambda: few(larger, limited, limited),
            id="a function again",
        ),
        pytest.param(
            lambda: few(rows_between(at_least=1)),
            lambda: few(rows_between(at_least=2)),
            id="a rule",
        ),
        pytest.param(
            lambda: few(Between(1, 2)), lambda: few(Between(1, 3)), id="an object of its project"
        ),
        pytest.param(
            lambda: judging(Between(1, 2)),
            lambda: judging(Between(1, 3)),
            id="a judge that is an object",
        ),
        pytest.param(
            lambda: judging(Between(1, 2).judged),
            lambda: judging(Between(1, 3).judged),
            id="a method of it",
        ),
        pytest.param(
            lambda: judging(functools.partial(limited, 5)),
            lambda: judging(functools.partial(limited, 1)),
            id="a partial function",
        ),
        pytest.param(lambda: by_default(1), lambda: by_default(2), id="a default"),
    ],
)
def test_a_value_that_a_rule_judges_by_is_in_its_signature(make, other):
    assert signature(make()) == signature(make()) != signature(other())
    refuse_unseen([make()])


def test_a_set_reads_the_same_in_every_process():
    assert "set('a', 'b', 'c')" in signature(few({"b", "c", "a"}))


@pytest.fixture
def market(tmp_path, monkeypatch):
    """Write the module `market` with a RULE that judges by `judge`, and the module `limits`."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(text: str, limits: str = "") -> Rule:
        for name, each in (
            ("market", f"from backfill_assets.quality.rule import Rule\n{text}"),
            ("limits", limits),
        ):
            Path(tmp_path / f"{name}.py").write_text(each)
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        parsed.cache_clear()
        return importlib.import_module("market").RULE

    yield written
    for name in ("market", "limits"):
        sys.modules.pop(name, None)


RULE = 'RULE = Rule("few", "Few rows.", lambda day: (day.rows <= {}, "", {{}}))\n'
BY_FUNCTION = f"def high():\n    return LIMIT\n{RULE.format('high()')}LIMIT = 5\n"
LATE = (
    'def judge(day):\n    from limits import HIGH\n    return day.rows < HIGH, "", {}\nRULE ='
    ' Rule("few", "Few.", judge)\n'
)


@pytest.mark.parametrize(
    ("text", "limits", "old", "new"),
    [
        pytest.param(f"LIMIT = 5\n{RULE.format('LIMIT')}", "", "= 5", "= 6", id="a constant"),
        pytest.param(f"LIMIT = [5]\n{RULE.format('LIMIT[0]')}", "", "[5]", "[6]", id="a list"),
        pytest.param(BY_FUNCTION, "", "= 5", "= 6", id="a constant that a function below uses"),
        pytest.param(
            f"import limits\n{RULE.format('limits.HIGH')}",
            "HIGH = 5\n",
            "= 5",
            "= 6",
            id="one of a module beside it",
        ),
        pytest.param(LATE, "HIGH = 5\n", "= 5", "= 6", id="one imported by the judge"),
    ],
)
def test_what_a_judge_uses_of_its_project_is_in_its_signature(market, text, limits, old, new):
    before = signature(market(text, limits))
    assert signature(market(text, limits)) == before
    assert signature(market(text.replace(old, new), limits.replace(old, new))) != before


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            f"import os\n{RULE.format('int(os.environ[`K`])')}", id="an environment variable"
        ),
        pytest.param(
            f"import os\nK = os.environ\n{RULE.format('int(K[`K`])')}", id="one in a constant"
        ),
        pytest.param(
            f"from pathlib import Path\n{RULE.format('len(Path(`K`).read_text())')}", id="a file"
        ),
        pytest.param(f"{RULE.format('len(open(`K`).read())')}", id="an opened file"),
    ],
)
def test_a_judge_that_reads_what_no_version_sees_is_refused(market, text, golden):
    with golden.raises(ValueError):
        refuse_unseen([market(text.replace("`", "'"))])


@pytest.mark.parametrize(
    "value",
    [object(), defaultdict(int), {1: {object()}}],
    ids=["an object", "a defaultdict", "one within"],
)
def test_a_value_without_a_text_is_refused_unless_the_table_has_its_version_by_hand(value, golden):
    def declared(version: str):
        return table(
            "raw/a",
            version=version,
            partition_by="day",
            columns="day DATE, n INT",
            reads={"x": SliceDays()},
            rules=[few(value)],
        )

    with golden.raises(ValueError):
        declared("")(lambda x: x)
    assert declared("1")(lambda x: x).rules_version


def test_the_rules_of_this_package_have_the_versions_they_had():
    """Otherwise every day of every lake would count as accepted under earlier rules."""
    rules = [
        has_rows(),
        no_nulls("a", "b"),
        rows_within(0.5, 2.0),
        rejected_at_most(0.05, "raw/a").as_warning(),
        unique_key(),
    ]
    assert rules_version(rules) == "983a75458bc1"


def test_comments_and_layout_of_a_judge_do_not_count(tmp_path, monkeypatch):
    """Otherwise a formatter makes every day count as accepted under earlier rules."""
    rules = {
        "plain_rules": "def judge(day):\n    return day.rows > 1, '', {}\n",
        "laid_out_rules": (
            "def judge(\n    day,\n):\n    # Two at least.\n    return (day.rows > 1, '', {})\n"
        ),
        "other_rules": "def judge(day):\n    return day.rows > 2, '', {}\n",
    }
    monkeypatch.syspath_prepend(tmp_path)
    versions = {}
    for module, text in rules.items():
        (tmp_path / f"{module}.py").write_text(text)
        versions[module] = rules_version([judging(importlib.import_module(module).judge)])
    assert versions["plain_rules"] == versions["laid_out_rules"] != versions["other_rules"]


def test_a_function_of_another_package_counts_by_its_name(market):
    assert "math" in signature(few(math.floor))
    refuse_unseen([market(f"from statistics import median\n{RULE.format('median([1])')}")])
