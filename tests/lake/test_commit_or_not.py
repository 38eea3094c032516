"""Who may commit: one at a time, on what was decided; what is refused leaves the table and the
ledger as they were.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import Conflict, NotRecorded, UsageError
from backfill_assets.lake.commit import FileCommit, commit_and_record
from backfill_assets.lake.history import recover_newest
from backfill_assets.lake.ledger import Build, Ledger
from tests.worlds.one_table import FIRST, NAME, SECOND, accepted, row


def test_an_accepted_day_only_is_committed_and_every_build_recorded(given):
    made = given.files(row(FIRST, 1), row(SECOND, 2))
    builds = commit_and_record(
        given.root, NAME, lambda: accepted(FIRST) + accepted(SECOND, outcome="failed"), made
    )
    assert [(b.day, b.outcome, b.delta_version) for b in builds] == [
        (FIRST, "accepted", 0),
        (SECOND, "failed", -1),
    ]
    assert given.by_delta() == [(FIRST, 1)]
    assert sorted(b.day for b in Ledger(given.root).builds()) == [FIRST, SECOND]


def test_another_type_is_refused_and_nothing_is_written(given):
    given.commit((FIRST, 1), (SECOND, 2), days=(FIRST, SECOND), columns="day DATE, n INT")
    with pytest.raises(UsageError, match=r"n is integer, now string\. Nothing was committed"):
        given.commit((FIRST, "1"), days=(FIRST,), columns="day DATE, n STRING")
    assert DeltaTable(given.folder).version() == 0
    assert [b.day for b in Ledger(given.root).builds()] == [FIRST, SECOND]


def test_a_column_that_is_spelled_in_another_case_is_refused(given):
    given.commit((FIRST, 1), (SECOND, 2), days=(FIRST, SECOND), columns="day DATE, n INT")
    with pytest.raises(UsageError, match=r"has n, now spelled N\. Nothing was committed"):
        given.commit((FIRST, 1), days=(FIRST,), columns="day DATE, N INT")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        pytest.param(
            {"delta.appendOnly": "true"},
            "takes no commit: .*append-only",
            id="a table that only grows",
        ),
        pytest.param(
            {"delta.constraints.small": "n < 2"},
            r"has constraints \(delta\.constraints\.small\)",
            id="a constraint",
        ),
    ],
)
def test_a_table_that_somebody_has_closed_is_refused_at_once_and_stays(given, properties, message):
    given.commit((FIRST, 1), days=(FIRST,), columns="day DATE, n INT")
    DeltaTable(given.folder).alter.set_table_properties(properties, raise_if_not_exists=False)
    decided: list[int] = []

    def decide() -> list[Build]:
        decided.append(1)
        return accepted(FIRST)

    with pytest.raises(UsageError, match=message):
        commit_and_record(
            given.root, NAME, decide, given.files((FIRST, 3), columns="day DATE, n INT")
        )
    assert (len(decided) < 2, given.by_delta()) == (True, [(FIRST, 1)])


@pytest.mark.parametrize(
    "altered",
    [
        pytest.param({"nullable": False}, id="that may not be null"),
        pytest.param(
            {"metadata": {"delta.invariants": '{"expression": {"expression": "n < 2"}}'}},
            id="with an invariant",
        ),
        pytest.param({"metadata": {"delta.generationExpression": "1 + 1"}}, id="that is computed"),
    ],
)
def test_a_table_of_which_somebody_has_made_a_column_is_refused_and_stays(given, altered):
    """Rows that break it would be in the table, and readers trust it. `deltalake` does not refuse
    the commit.
    """
    given.commit((FIRST, 1), days=(FIRST,), columns="day DATE, n INT")
    log = Path(given.folder, "_delta_log")
    made = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    (metadata,) = [action["metaData"] for action in made if "metaData" in action]
    schema = json.loads(metadata["schemaString"])
    schema["fields"] = [
        each | altered if each["name"] == "n" else each for each in schema["fields"]
    ]
    actions = [
        {"commitInfo": {"timestamp": 1, "operation": "CHANGE COLUMN"}},
        {"metaData": metadata | {"schemaString": json.dumps(schema)}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
    ]
    (log / f"{1:020d}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    with pytest.raises(
        UsageError,
        match=r"has columns that may not be null or are computed \(n\).* Nothing was committed",
    ):
        given.commit((FIRST, 3), days=(FIRST,), columns="day DATE, n INT")
    assert (DeltaTable(given.folder).version(), given.by_delta()) == (1, [(FIRST, 1)])


def test_who_comes_second_decides_again(given):
    given.commit(row(FIRST, 1), days=(FIRST,))
    made = given.files(row(SECOND, 2))
    other = given.files(row(SECOND, 3))
    decided: list[int] = []

    def decide() -> list[Build]:
        decided.append(DeltaTable(given.folder).version())
        # Without the lock, as on an object store, another writer may commit now.
        if len(decided) == 1:
            other(DeltaTable(given.folder), [SECOND], "")
        return accepted(SECOND)

    assert [b.delta_version for b in commit_and_record(given.root, NAME, decide, made)] == [2]
    assert decided == [0, 1]
    assert given.by_delta() == [(FIRST, 1), (SECOND, 2)]


def test_who_makes_the_table_second_decides_again(given):
    made = given.files(row(SECOND, 2))
    other = given.files(row(FIRST, 3))
    decided: list[int] = []

    def decide() -> list[Build]:
        decided.append(1)
        if len(decided) == 1:
            other(None, [FIRST], "")
        return accepted(SECOND)

    assert [b.delta_version for b in commit_and_record(given.root, NAME, decide, made)] == [1]
    assert (len(decided), given.by_delta()) == (2, [(FIRST, 3), (SECOND, 2)])


def test_a_commit_that_was_made_before_an_error_counts(given):
    made = given.files(row(FIRST, 1))

    @dataclass(frozen=True)
    class Failing(FileCommit):
        def __call__(self, *arguments):
            super().__call__(*arguments)
            raise OSError("no space left for a checkpoint")

    late = Failing(made.folder, "day", made.files, made.columns)
    builds = commit_and_record(given.root, NAME, lambda: accepted(FIRST), late)
    assert [(b.outcome, b.delta_version) for b in builds] == [("accepted", 0)]
    assert [(b.outcome, b.delta_version) for b in Ledger(given.root).builds()] == [("accepted", 0)]


def test_a_decision_that_is_withdrawn_commits_and_records_nothing(given):
    given.commit(row(FIRST, 1), days=(FIRST,))

    def decide() -> list[Build]:
        raise Conflict("another writer came first")

    with pytest.raises(Conflict):
        commit_and_record(given.root, NAME, decide, given.files(row(FIRST, 2)))
    assert given.by_delta() == [(FIRST, 1)]
    assert len(Ledger(given.root).builds()) == 1


def test_committed_rows_that_are_not_recorded_are_reported_and_recorded_later(given):
    blocked = Path(given.root) / "_ledger"

    def decide() -> list[Build]:
        blocked.write_text("no table")
        return accepted(FIRST)

    with pytest.raises(
        NotRecorded, match=r"raw/a: 2019-09-01 are committed, but the ledger could not be written"
    ):
        commit_and_record(given.root, NAME, decide, given.files(row(FIRST, 1)))
    blocked.unlink()
    assert given.by_delta() == [(FIRST, 1)]
    assert [b.day for b in recover_newest(Ledger(given.root), [NAME])] == [FIRST]
    assert [(b.day, b.outcome) for b in Ledger(given.root).builds()] == [(FIRST, "accepted")]


def test_an_error_of_the_library_is_said_in_one_line_without_colours(given, monkeypatch):
    """As it was on a disk that was full after the rows were committed."""

    def full(*_):
        causes = "".join(
            f"\n    \x1b[31m↳\x1b[0m {cause}"
            for cause in ("Unable to copy data to file", "No space left")
        )
        raise OSError(f"Generic LocalFileSystem error{causes}\n")

    monkeypatch.setattr(Ledger, "append", full)
    with pytest.raises(NotRecorded) as said:
        given.commit(row(FIRST, 1), days=(FIRST,))
    assert (
        ": Generic LocalFileSystem error Unable to copy data to file No space left. Nothing is lost"
        in str(said.value)
    )
