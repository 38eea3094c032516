"""Rules: the checks that a day must pass before it is committed.

A rule looks at one day's profile (and the row counts of the accepted days before it) and knows
nothing of Spark or Dagster. A rule declares the figures that it needs beyond counts and nulls, so
that one pass answers all rules of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from backfill_assets.quality.rule import Cut, DayProfile, Judged, Rule

TRAILING_DAYS = 28
# Fewer days than a week say little about what is usual: weekdays differ.
ENOUGH_TRAILING_DAYS = 7


def types_as_declared() -> Rule:
    """The computed columns are the declared ones, with the declared types."""

    def judge(day: DayProfile) -> Judged:
        wrong = day.schema_mismatches
        return not wrong, "; ".join(wrong) or "as declared", {"faults": len(wrong)}

    return Rule("types_as_declared", "Columns and types are the declared ones.", judge)


def columns_still_filled() -> Rule:
    """No column is null in all rows of a day whose accepted rows had values.

    Every table with a source has this rule.
    """

    def judge(day: DayProfile) -> Judged:
        empty = [
            name for name in day.filled_before if day.rows and day.nulls.get(name, 0) == day.rows
        ]
        advice = f" If that is right, accept it: --accept {','.join(empty)} --reason 'why'"
        message = (
            f"{', '.join(empty)} null in all {day.rows:,} rows, and had values in the accepted"
            f" ones.{advice}"
        )
        return not empty, message if empty else "no column lost its values", {"columns": len(empty)}

    return Rule(
        "columns_still_filled",
        "No column loses all its values from one delivery of a day to the next.",
        judge,
    )


def rows_between(*, at_least: int = 0, at_most: int | None = None) -> Rule:
    """The day has this many rows."""
    if at_least <= 0 and at_most is None:
        raise ValueError("rows_between() would accept any day: give at_least or at_most")
    if at_most is not None and at_most < at_least:
        raise ValueError(f"no row count is at least {at_least} and at most {at_most}")
    bounds = f"at least {at_least:,}" + (f", at most {at_most:,}" if at_most is not None else "")

    def judge(day: DayProfile) -> Judged:
        passed = at_least <= day.rows and (at_most is None or day.rows <= at_most)
        return passed, f"{day.rows:,} rows; {bounds} promised", {"rows": day.rows}

    return Rule("rows_between", f"Rows: {bounds}.", judge)


def has_rows() -> Rule:
    return replace(rows_between(at_least=1), name="has_rows", promise="The day has rows.")


def rows_within(low: float, high: float) -> Rule:
    """Rows between `low` and `high` times the median of the accepted days among the 28 before.

    A day passes after fewer than 7 such days, and after a median of 0, which no day with rows could
    follow.
    """
    if not 0 <= low < high:
        raise ValueError(f"rows_within({low}, {high}): low must be below high and not negative")

    def judge(day: DayProfile) -> Judged:
        if len(day.trailing_rows) < ENOUGH_TRAILING_DAYS:
            return (
                True,
                f"{len(day.trailing_rows)} accepted days before: too few to compare",
                {"rows": day.rows},
            )
        usual = median(day.trailing_rows)
        if not usual:
            return (
                True,
                "most accepted days before have no rows: nothing to compare with",
                {"rows": day.rows, "usual": usual},
            )
        passed = low * usual <= day.rows <= high * usual
        message = f"{day.rows:,} rows; {low:g} to {high:g} times the usual {usual:,.0f} promised"
        return passed, message, {"rows": day.rows, "usual": usual}

    return Rule(
        "rows_within", f"Rows: {low:g} to {high:g} times the median of the 28 days before.", judge
    )


def no_nulls(*columns: str) -> Rule:
    return replace(
        nulls_at_most(0, *columns), name="no_nulls", promise=f"No nulls in {', '.join(columns)}."
    )


def nulls_at_most(share: float, *columns: str) -> Rule:
    """At most this share (0 to 1) of the day's values is null, in each column."""
    return _share_of_each(
        "nulls_at_most",
        share,
        columns,
        "null",
        lambda day, column: day.nulls.get(column, 0),
        offending=" OR ".join(f"`{column}` IS NULL" for column in columns),
        looks_at=columns,
    )


def filled_at_most(share: float, *columns: str) -> Rule:
    """At most this share (0 to 1) of the day's rows has a value in each of these columns.

    Such columns describe the faults of a row.
    """
    return _share_of_each(
        "filled_at_most",
        share,
        columns,
        "filled",
        lambda day, column: day.rows - day.nulls.get(column, 0),
        offending=" OR ".join(f"`{column}` IS NOT NULL" for column in columns),
        looks_at=columns,
    )


def unique_key() -> Rule:
    def judge(day: DayProfile) -> Judged:
        message = (
            f"{day.repeated_keys:,} keys more than once" if day.repeated_keys else "every key once"
        )
        return day.repeated_keys == 0, message, {"repeated_keys": day.repeated_keys}

    return Rule("unique_key", "No key twice.", judge, counts_keys=True)


def unparsed_at_most(share: float, columns: Sequence[str]) -> Rule:
    """At most this share of a day's values could not be read into each column's type.

    The table lists the names of these columns in its column `unparsed`, and has the measures
    `unparsed_<column>`.
    """
    return _share_of_each(
        "unparsed_at_most",
        share,
        columns,
        "unreadable",
        lambda day, column: day.measures.get(f"unparsed_{column}", 0),
        offending="size(unparsed) > 0",
        looks_at=["unparsed"],
        measures=[f"unparsed_{column}" for column in columns],
    )


def _share_of_each(
    name: str,
    share: float,
    columns: Sequence[str],
    kind: str,
    count: Callable[[DayProfile, str], int],
    offending: str,
    looks_at: Sequence[str],
    measures: Sequence[str] = (),
) -> Rule:
    """A rule that at most `share` of a day's values are of a kind, in each of `columns`."""
    _require_share(name, share)
    if not columns:
        raise ValueError(f"{name} names no column, and would accept any day")

    def judge(day: DayProfile) -> Judged:
        counts = {column: count(day, column) for column in columns}
        over = [
            f"{column} {n:,} of {day.rows:,}"
            for column, n in counts.items()
            if n > share * day.rows
        ]
        return (
            not over,
            f"{kind}: {', '.join(over)}" if over else f"{kind} values at most {share:.2%}",
            counts,
        )

    promise = f"At most {share:.2%} {kind} values in {', '.join(columns)}."
    return Rule(name, promise, judge, offending, columns=looks_at, measures=measures)


def rejected_at_most(share: float, table: str) -> Rule:
    """At most this share of the day's lines went to `table`, declared in `compared_with`."""
    _require_share("rejected_at_most", share)

    def judge(day: DayProfile) -> Judged:
        rejected = day.compared_rows.get(table, 0)
        lines = rejected + day.rows
        return (
            rejected <= share * lines,
            f"{rejected:,} of {lines:,} lines in {table}",
            {"rejected": rejected, "lines": lines},
        )

    promise = f"At most {share:.2%} of the day's lines rejected."
    return Rule("rejected_at_most", promise, judge, tables=[table])


def no_leak(cut: str, known: Mapping[str, str], outcomes: Sequence[str] = ()) -> Rule:
    """No row uses values that were known only after its `cut`, a column of times.

        rules.no_leak("asked_at", known={"prices": "known_at", "shops": ""}, outcomes=["paid_at"])

    cut       the column with the time at which the values of a row must have been known
    known     by input, the SQL expression of the time at which a row of it was known; "" for an
              input that is always known
    outcomes  columns that are known later, such as the label of a model

    The table is computed again for one of the days that are built together, without the rows that
    were known only after the cut. `leaks(table, inputs)` does the same in a test.
    """
    if outcomes and isinstance(outcomes, str):
        raise ValueError(f"no_leak: write outcomes=[{outcomes!r}]")

    def judge(day: DayProfile) -> Judged:
        if day.leaks is None:
            return True, "no row was computed once more: there is nothing to compare with", {}
        changed = "; ".join(day.leaks)
        message = (
            f"changed without what was known only after {cut}: {changed}"
            if changed
            else "nothing known later is used"
        )
        return not day.leaks, message, {"changed": len(day.leaks)}

    inputs = "; ".join(f"{name} by {sql}" if sql else name for name, sql in known.items())
    but = f", but for {', '.join(outcomes)}" if outcomes else ""
    promise = f"Nothing is made of what was known only from {cut} on ({inputs}){but}."
    return Rule("no_leak", promise, judge, columns=[cut, *outcomes], cut=Cut(cut, known, outcomes))


def _require_share(rule: str, share: float) -> None:
    if not 0 <= share < 1:
        raise ValueError(f"{rule}({share}): a share is at least 0 and below 1")
