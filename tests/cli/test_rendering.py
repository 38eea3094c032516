"""The tables that a rebuild is shown as, where there is little room."""

from io import StringIO

import pytest
from rich.console import Console

from backfill_assets.cli.rendering import WIDTH_OF_A_PIPE, outcome_table
from backfill_assets.plan.outcome import TableOutcome

NAME = "features/restoration_examples"


@pytest.mark.parametrize("width", [80, WIDTH_OF_A_PIPE], ids=["a narrow terminal", "a pipe"])
def test_no_name_of_a_table_and_no_figure_is_cut(width):
    printed = StringIO()
    table = outcome_table([TableOutcome(NAME, 1234, changed=1234, rows=12_345_678, checks=7_404, checks_passed=7_404)])
    Console(file=printed, width=width).print(table)
    assert (NAME in printed.getvalue(), "…" in printed.getvalue()) == (True, False)
