"""Days that hold rows of another program, as commands show them."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.worlds.command_line import REJECTED, backfill, refused, values_of

pytestmark = pytest.mark.lake

OCCUPIED = date(2019, 9, 3)
EMPTY = date(2019, 9, 4)
ASKS = ("--partitions", f"{OCCUPIED}..{EMPTY}", "--target", REJECTED)


@pytest.fixture
def home(tmp_path) -> Path:
    """A lake with a table of another program, that has one day."""
    rows = pa.table({"arrival_day": pa.array([OCCUPIED], pa.date32()), "n": [1]})
    path = tmp_path / "lake" / REJECTED
    write_deltalake(str(path), rows, partition_by=["arrival_day"])
    return tmp_path


def test_status_names_them_and_has_a_letter_for_them(home):
    shown = backfill("status", *ASKS, home=home).stdout
    assert "occupied" in shown
    assert "f occupied" in shown
    values = values_of("status", *ASKS, home=home)
    assert str(OCCUPIED) in str(values)
    why = backfill("status", REJECTED, str(OCCUPIED), "--why", home=home).stdout
    assert "occupied" in why
    assert "--replace-foreign-rows" in why


def test_a_plan_leaves_them_out_and_takes_them_with_the_option_and_a_reason(home, golden):
    values = values_of("plan", *ASKS, home=home)
    assert list(values["plan"]["reasons"][REJECTED]) == [str(EMPTY)]
    assert list(values["blocked"]) == [f"{REJECTED} {OCCUPIED}"]
    shown = backfill("plan", *ASKS, home=home).stdout
    golden(shown, "left out", command="plan", PLAN=values["id"])
    code, message = refused("plan", *ASKS, "--replace-foreign-rows", home=home)
    assert code == 2
    golden(message, "without a reason", command="plan")
    options = ("--replace-foreign-rows", "--reason", "why")
    values = values_of("plan", *ASKS, *options, home=home)
    assert values["plan"]["reasons"][REJECTED] == {
        str(OCCUPIED): "occupied",
        str(EMPTY): "missing",
    }
