"""What a checklist comes to, what a person may accept of it, and which versions it is about."""

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.verbs.verify import verdict_lines
from backfill_assets.verify.checklist import (
    Acceptance,
    CheckLine,
    CheckOutcome,
    PlanVerdict,
    Remedy,
    VerdictResult,
    read_verdict,
    verdict_json,
)
from backfill_assets.verify.verify import Verdicts
from tests.worlds.depth import CHARACTERS, tries

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAY = date(2019, 9, 1)
BUILT = CheckLine("built staging/o", CheckOutcome.PASSED, "3 of 3 days", "staging/o")
DRIFT = CheckLine("drift staging/o.customers", CheckOutcome.DECISION, "index 0.310", "staging/o")
ROWS = CheckLine("rows staging/o", CheckOutcome.DECISION, "9 rows | 3 before", "staging/o", (DAY,))
KEYS = CheckLine("keys staging/o", CheckOutcome.FAILED, "2 keys twice", "staging/o", (DAY,))
NONE = CheckLine("keys raw/e", CheckOutcome.SKIPPED, "declares no key", "raw/e")


def verdict(*lines: CheckLine, at: datetime = NOON, **fields) -> PlanVerdict:
    return PlanVerdict(
        "p1",
        lines,
        {"live staging/o": 4, "shadow staging/o": 1},
        {"staging/o": "c1"},
        at,
        "ada",
        **fields,
    )


@pytest.mark.parametrize(
    ("lines", "accepted", "result"),
    [
        pytest.param([BUILT, NONE], [], VerdictResult.PASSED, id="all passed or skipped"),
        pytest.param([BUILT, DRIFT], [], VerdictResult.NEEDS_A_DECISION, id="one to be decided"),
        pytest.param(
            [BUILT, DRIFT, ROWS], [DRIFT], VerdictResult.NEEDS_A_DECISION, id="one of two decided"
        ),
        pytest.param([BUILT, DRIFT, ROWS], [DRIFT, ROWS], VerdictResult.PASSED, id="both decided"),
        pytest.param([KEYS, DRIFT], [DRIFT], VerdictResult.FAILED, id="what failed stays failed"),
    ],
)
def test_the_result_is_the_worst_of_the_lines_that_nobody_accepted(lines, accepted, result):
    found = verdict(*lines)
    for line in accepted:
        found = found.accept(line.name, who="ben", reason="the new rule counts twice", at=NOON)
    assert (found.result, found.passed) == (result, result == VerdictResult.PASSED)
    assert found.accepted == {
        line.name: Acceptance("ben", "the new rule counts twice", NOON) for line in accepted
    }
    assert found.lines == tuple(lines)


def test_a_pattern_that_matches_only_lines_without_a_decision_is_refused():
    found = verdict(BUILT, DRIFT, ROWS, KEYS)
    assert found.named("*staging/o*") == [DRIFT.name, ROWS.name]
    assert [found.named(pattern) for pattern in ("built *", "keys *", "nothing *")] == [
        [BUILT.name],
        [KEYS.name],
        ["nothing *"],
    ]


def test_what_was_accepted_is_counted_as_that(golden):
    found = verdict(BUILT, DRIFT, ROWS).accept(ROWS.name, who="ben", reason="meant", at=NOON)
    golden(next(verdict_lines(found)))


def test_what_failed_names_the_command_that_corrects_it():
    built = replace(BUILT, outcome=CheckOutcome.FAILED, remedy=Remedy.BUILD)
    assert "`backfill resume p1`" in list(verdict_lines(verdict(built)))[-1]
    assert "`backfill discard p1`" in list(verdict_lines(verdict(built, KEYS)))[-1]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("drift", "fine", id="no such line"),
        pytest.param(KEYS.name, "fine", id="a line that failed"),
        pytest.param(BUILT.name, "fine", id="a line that passed"),
        pytest.param(ROWS.name, "fine", id="a line that is accepted"),
        pytest.param(DRIFT.name, " ", id="no reason"),
    ],
)
def test_what_cannot_be_accepted_is_refused(name, reason, golden):
    found = verdict(BUILT, DRIFT, ROWS, KEYS).accept(
        ROWS.name, who="ada", reason="as meant", at=NOON
    )
    with pytest.raises(UsageError) as refused:
        found.accept(name, who="ada", reason=reason, at=NOON)
    golden(str(refused.value))


def test_a_checklist_without_lines_or_with_two_of_one_name_is_none():
    for lines in ([], [BUILT, replace(BUILT, outcome=CheckOutcome.FAILED)]):
        with pytest.raises(ValueError, match="different names"):
            verdict(*lines)


@pytest.mark.parametrize(
    ("versions", "code", "said"),
    [
        pytest.param(
            {"live staging/o": 5}, {}, r"live staging/o \(seen 4, now 5\)", id="live was written"
        ),
        pytest.param({"live raw/e": 0}, {}, r"live raw/e \(seen none, now 0\)", id="a table came"),
        pytest.param(
            {}, {"staging/o": "c2"}, r"staging/o \(seen c1, now c2\)", id="the code changed"
        ),
    ],
)
def test_a_verdict_is_about_the_versions_it_saw_and_no_others(versions, code, said):
    seen = verdict(BUILT)
    seen.refuse_other_versions(dict(seen.versions_seen), dict(seen.code))
    with pytest.raises(RefusedByGuard, match=f"(?s){said}.*p1"):
        seen.refuse_other_versions({**seen.versions_seen, **versions}, {**seen.code, **code})


def test_what_was_accepted_stays_so_on_the_same_versions_only():
    earlier = verdict(DRIFT, ROWS).accept(DRIFT.name, who="ada", reason="as meant", at=NOON)
    assert verdict(DRIFT, ROWS).with_acceptances_of(earlier).accepted == earlier.accepted
    assert verdict(ROWS).with_acceptances_of(earlier).accepted == {}
    assert verdict(DRIFT).with_acceptances_of(replace(earlier, versions_seen={})).accepted == {}
    worse = replace(DRIFT, outcome=CheckOutcome.FAILED)
    assert verdict(worse).with_acceptances_of(earlier).result == VerdictResult.FAILED


TEXTS = st.text(CHARACTERS)
LINES = st.builds(
    CheckLine,
    TEXTS,
    st.sampled_from(CheckOutcome),
    TEXTS,
    TEXTS,
    st.lists(st.dates(), max_size=3).map(tuple),
)


@given(st.lists(LINES, min_size=1, max_size=4, unique_by=lambda line: line.name), TEXTS)
@settings(max_examples=tries(30))
def test_a_verdict_is_read_as_it_was_written(lines, reason):
    written = verdict(*lines, accepted={lines[0].name: Acceptance("ada", reason, NOON)})
    assert read_verdict(verdict_json(written)) == written


def test_every_verdict_is_kept_and_the_newest_counts_whatever_the_clocks_say(tmp_path):
    verdicts = Verdicts(str(tmp_path))
    assert (verdicts.newest("p1"), verdicts.all("p1")) == (None, [])
    first = verdict(KEYS)
    second = verdict(BUILT, at=datetime(2025, 12, 31, tzinfo=UTC))
    verdicts.keep(first)
    verdicts.keep(second)
    assert (verdicts.all("p1"), verdicts.newest("p1")) == ([first, second], second)
    assert verdicts.newest("p2") is None
    assert len(list((tmp_path / "_verdicts" / "p1").iterdir())) == 2


def test_lines_are_accepted_in_the_lake_all_or_none(tmp_path):
    verdicts = Verdicts(str(tmp_path))
    with pytest.raises(UsageError, match="p1"):
        verdicts.accept("p1", [DRIFT.name], who="ada", reason="as meant", at=NOON)
    verdicts.keep(verdict(DRIFT, ROWS, BUILT))
    with pytest.raises(UsageError, match="needs no decision"):
        verdicts.accept("p1", [DRIFT.name, BUILT.name], who="ada", reason="as meant", at=NOON)
    assert verdicts.all("p1") == [verdict(DRIFT, ROWS, BUILT)]
    accepted = verdicts.accept("p1", [DRIFT.name, ROWS.name], who="ada", reason="as meant", at=NOON)
    assert (accepted.result, verdicts.newest("p1")) == (VerdictResult.PASSED, accepted)
    assert [each.result for each in verdicts.all("p1")] == [
        VerdictResult.NEEDS_A_DECISION,
        VerdictResult.PASSED,
    ]


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"format": 99}', verdict_json(replace(verdict(BUILT), plan="p2"))]
)
def test_a_file_that_is_no_verdict_of_the_plan_is_named(tmp_path, text, golden):
    verdicts = Verdicts(str(tmp_path))
    verdicts.keep(verdict(BUILT))
    (file,) = (tmp_path / "_verdicts" / "p1").iterdir()
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        verdicts.newest("p1")
    golden(str(refused.value), FILE=file.name)
