"""How tolerances are typed."""

import pytest

from backfill_assets.diff.tolerance import Tolerance, parse_tolerances, tolerances_of
from backfill_assets.errors import UsageError


def test_a_tolerance_is_a_size_or_a_percentage():
    assert parse_tolerances(["price=0.01", "share = 1e-3 %"]) == {
        "price": Tolerance(0.01),
        "share": Tolerance(1e-5, is_relative=True),
    }


def test_a_column_has_one_tolerance():
    with pytest.raises(UsageError):
        parse_tolerances(["price=1", "price=2"])


def test_a_tolerance_is_shown_as_it_was_typed():
    shown = [str(each) for each in parse_tolerances(["a=1234567.5", "b=0.07%"]).values()]
    assert shown == ["1234567.5", "0.07 %"]


@pytest.mark.parametrize("typed", ["price", "price=", "=1", "price=-1", "price=inf", "price=nan"])
def test_anything_else_is_refused(typed):
    with pytest.raises(UsageError):
        parse_tolerances([typed])


def test_the_first_name_or_pattern_that_fits_a_column_decides():
    typed = parse_tolerances(["price=1", "*=2"])
    assert tolerances_of(["Price", "cost"], typed) == {"Price": Tolerance(1), "cost": Tolerance(2)}
