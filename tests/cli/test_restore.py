"""`backfill reconcile --restore`: days that somebody else wrote to get the rows again that were
accepted. No Spark.
"""

import pytest
from deltalake import DeltaTable

from tests.worlds.deliveries import day
from tests.worlds.recorded import write_days
from tests.worlds.webservers import RECONCILED_TABLE, ReconciledLake, outages_build, reconciled_lake


@pytest.fixture
def place(tmp_path, monkeypatch, capsys) -> ReconciledLake:
    return reconciled_lake(tmp_path, monkeypatch, capsys)


def test_what_cannot_be_mended_is_left_with_the_command_to_type(place):
    DeltaTable(place.lake / RECONCILED_TABLE).delete(f"outage_day = '{day(0)}'")
    place.web.known[RECONCILED_TABLE][str(day(5))] = "f5"
    lines = [
        "staging/outages: rewritten by somebody else: 2019-08-15",
        "  commit 1 (DELETE), after our commit 0",
        (
            "  Build again: `backfill run --partitions 2019-08-15 --target staging/outages`. Or put"
            " back the rows that were accepted: `backfill reconcile --restore`."
        ),
        "staging/outages: Dagster calls it materialized, but it has no accepted build: 2019-08-20",
        "  Build again: `backfill run --partitions 2019-08-20 --target staging/outages`.",
        "The ledger, the tables and Dagster agree on 1 partition(s) and differ on 2.",
    ]
    assert place.reconcile() == (1, lines)
    assert place.reconcile(repair=True) == (1, lines)


def test_days_that_somebody_else_wrote_to_are_put_back_as_they_were_accepted(place):
    """No source is asked: it may be gone, and with it what the day could be built from."""
    write_days(place.lake, outages_build(3, run="not recorded"))
    table = DeltaTable(place.lake / RECONCILED_TABLE)
    table.update({"n": "'changed'"}, predicate=f"outage_day = '{day(0)}'")
    table.delete(f"outage_day = '{day(1)}'")
    code, lines = place.reconcile(repair=True, restore=True)
    assert lines[:2] == [
        (
            f"Put back: {RECONCILED_TABLE} {day(0)}: it was rewritten by commits 2 to 3 (UPDATE,"
            " DELETE), not by this project."
        ),
        (
            f"Put back: {RECONCILED_TABLE} {day(1)}: it was rewritten by commits 2 to 3 (UPDATE,"
            " DELETE), not by this project."
        ),
    ]
    assert (code, lines[-1]) == (0, "The ledger, the tables and Dagster agree on 3 partition(s).")
    rows = DeltaTable(place.lake / RECONCILED_TABLE).to_pyarrow_table().to_pylist()
    assert sorted((row["outage_day"], row["n"]) for row in rows) == [
        (day(at), n) for at in (0, 1, 3) for n in "01"
    ]
    recorded = {
        b.day: (b.outcome, b.fingerprint, b.reason)
        for b in place.ledger.builds()
        if b.run.startswith("reconcile-")
    }
    assert recorded == {
        day(n): ("restored", f"f{n}", "put back as it was accepted") for n in (0, 1)
    }
    assert place.reconcile(restore=True)[1] == lines[-1:]


def test_a_day_whose_accepted_files_are_gone_is_left_and_the_others_are_put_back(place):
    table = DeltaTable(place.lake / RECONCILED_TABLE)
    (file,) = (place.lake / RECONCILED_TABLE / f"outage_day={day(0)}").iterdir()
    table.delete()
    file.unlink()
    code, lines = place.reconcile(restore=True)
    assert (code, lines[0]) == (
        1, f"Put back: {RECONCILED_TABLE} {day(1)}: it was rewritten by commit 1 (DELETE), not by this project.",
    )  # fmt: skip
    assert (
        lines[1] == f"Left as it is: {RECONCILED_TABLE} {day(0)}: its file"
        f" {file.relative_to(place.lake / RECONCILED_TABLE)} is missing."
    )
    assert [
        row["outage_day"]
        for row in DeltaTable(place.lake / RECONCILED_TABLE).to_pyarrow_table().to_pylist()
    ] == [day(1)] * 2
