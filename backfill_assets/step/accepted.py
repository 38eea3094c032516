"""What a new delivery of a day is held against: its accepted rows, and what somebody accepts of it by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.lake.latest import COLUMNS
from backfill_assets.lake.record import Build
from backfill_assets.quality.rule import Rule
from backfill_assets.step.accept import is_accepted
from backfill_assets.step.inputs import Inputs
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# A column that fewer of the rows had a value of may well come without any.
FILLED = 0.5
FIGURES = (*COLUMNS, "nulls", "accept")


@dataclass(frozen=True)
class Baseline:
    """Of a day, the columns of which at least half the accepted rows had a value, without those that are accepted without; and
    the names that are accepted."""

    filled: Sequence[str] = ()
    accept: str = ""


NOTHING = Baseline()


def baselines(
    table: Table, days: Sequence[date], inputs: Mapping[date, Inputs], accept: str, workspace: Workspace
) -> dict[date, Baseline]:
    """Of each of `days` what it is held against. What was accepted with a delivery stays accepted while that is the same.

    Of a table without a source only what is accepted: what its rows are made from was judged before.
    """
    if table.source() is None:
        return dict.fromkeys(days, Baseline((), accept))
    accepted = workspace.lake.latest({table.name: days}, FIGURES).accepted
    judged = sorted(types_of(table.columns))

    def baseline(day: date) -> Baseline:
        last = accepted.get((table.name, day))
        if last is None:
            return Baseline((), accept)
        kept = last.accept if last.delivered and last.delivered == inputs[day].delivery.fingerprint else ""
        names = ",".join(dict.fromkeys(name for name in (accept, kept) if name))
        return Baseline([name for name in judged if _is_filled(last, name) and not is_accepted(name, names)], names)

    return {day: baseline(day) for day in days}


def acceptable_rules(table: Table) -> list[Rule]:
    """The rules that a delivery may break once that is accepted by name: those of a table with a source, which judge what was
    delivered; but for columns and keys, which other tables are built on."""
    return [rule for rule in table.rules[1:] if not rule.counts_keys] if table.source() else []


def with_accepted(table: Table, accept: str) -> list[Rule]:
    """The rules of a table, those that are accepted as warnings."""
    names = {rule.name for rule in acceptable_rules(table) if is_accepted(rule.name, accept)}
    return [rule.as_warning() if rule.name in names else rule for rule in table.rules]


def _is_filled(build: Build, column: str) -> bool:
    return build.rows > 0 and column in build.nulls and build.nulls[column] <= (1 - FILLED) * build.rows
