"""Rules: the checks that a day must pass before it is committed.

A rule judges one day's profile (and the row counts of the accepted days before it) and does not
know Spark or Dagster. A rule declares the figures that it needs beyond counts and nulls, so that
one pass answers all rules of a table.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from statistics import median

from backfill_assets.calendar import days_around, days_around_any
from backfill_assets.grouping import grouped
from backfill_assets.quality.rule import Cut, DayProfile, Judged, Rule

_TRAILING_DAYS = 28
# Less than a week of days does not show what is usual, because weekdays differ.
ENOUGH_TRAILING_DAYS = 7
MALFORMED = "malformed"
_EXAMPLES = 3
# With fewer rows, a column that is filled in half of them may well be null.
_ENOUGH_ROWS = 10


def trailing_days(day: date) -> list[date]:
    """The 28 days before a day, for comparison, the latest first."""
    return days_around(day, -_TRAILING_DAYS, -1)[::-1]


def with_trailing_days(days: Iterable[date]) -> list[date]:
    """These days, and the days with which they are compared."""
    return days_around_any(days, -_TRAILING_DAYS, 0)


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
            name
            for name in day.filled_before
            if day.rows
            and day.nulls.get(name, 0) == day.rows
            # Otherwise the column has values, and `values_parsed` judges them.
            and not day.measures.get(_unparsed_in(name), 0)
        ]
        advice = f" If that is right, accept it: --accept {','.join(empty)} --reason 'why'"
        why = dict.fromkeys(absent for name in empty if (absent := _absent(day, name)))
        message = (
            f"{', '.join(empty)} null in all {day.rows:,} rows, and had values in the accepted"
            f" ones{''.join(why)}.{advice}"
        )
        return not empty, message if empty else "no column lost its values", {"columns": len(empty)}

    return Rule(
        "columns_still_filled",
        "No column loses all its values from one delivery of a day to the next.",
        judge,
    )


def lines_as_usual(share: float = 0.25) -> Rule:
    """The delivery has at least this share of the lines of a usual day.

    Usual is the median of the accepted days among the 28 before. A day passes after fewer than 7
    such days. Every table with a source has this rule as a warning. Declare it to refuse the day.
    """
    name = "lines_as_usual"
    _require_share(name, share)

    def judge(day: DayProfile) -> Judged:
        if len(day.trailing_lines) < ENOUGH_TRAILING_DAYS:
            return True, "too few accepted days before to compare with", {"lines": day.lines}
        usual = median(day.trailing_lines)
        figures = {"lines": day.lines, "usual": usual}
        if day.lines >= share * usual:
            return True, f"{day.lines:,} lines; {usual:,.0f} are usual", figures
        message = f"{day.lines:,} lines were delivered, and {usual:,.0f} are usual{_accept(name)}"
        return False, message, figures

    return Rule(name, f"At least {share:.0%} of the lines of a usual day.", judge)


def columns_as_usual() -> Rule:
    """The day has values in the columns that had some on the accepted days before.

    The files also still have the undeclared columns of the day before. Days with few rows pass.
    Every table with a source has this rule as a warning. Declare it to refuse the day.
    """
    name = "columns_as_usual"

    def judge(day: DayProfile) -> Judged:
        empty = [
            column
            for column in day.usually_filled
            if day.rows >= _ENOUGH_ROWS
            and day.nulls.get(column, 0) == day.rows
            and not day.measures.get(_unparsed_in(column), 0)
            and column not in day.filled_before
        ]
        reasons = [
            f"{column} is null in all {day.rows:,} rows{_absent(day, column)}" for column in empty
        ]
        if day.vanished:
            reasons.append(f"the files no longer have the undeclared {', '.join(day.vanished)}")
        figures = {"empty": len(empty), "vanished": len(day.vanished)}
        message = f"unlike on the days before, {'; '.join(reasons)}{_accept(name)}"
        return not reasons, message if reasons else "columns as on the days before", figures

    return Rule(name, "The columns that had values on the days before have some.", judge)


def _absent(day: DayProfile, column: str) -> str:
    """The reason why a column is null, if no file of the day has the column."""
    if column not in day.absent:
        return ""
    new = day.absent[column]
    renamed = f"; it may be called {new} now" if new else ""
    return f", because no file has it{renamed}"


def _accept(name: str) -> str:
    return f". If that is right, accept it: --force --accept {name} --reason 'why'"


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

    A day passes after fewer than 7 such days, and after a median of 0, because otherwise no day
    with rows could follow.
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
        offending="NULL",
    )


def unique_key() -> Rule:
    def judge(day: DayProfile) -> Judged:
        message = (
            f"{day.repeated_keys:,} keys more than once" if day.repeated_keys else "every key once"
        )
        return day.repeated_keys == 0, message, {"repeated_keys": day.repeated_keys}

    return Rule("unique_key", "No key twice.", judge, counts_keys=True)


def unparsed_at_most(share: float, columns: Sequence[str]) -> Rule:
    """At most this share (0 to 1) of a day's values cannot be parsed, in each of these columns.

    The table has a column `unparsed MAP<STRING, STRING>`: by column, the text that is not a value
    of its type. Values that are null do not count.
    """
    return _unparsed("unparsed_at_most", dict.fromkeys(columns, share))


def values_parsed(
    shares: Mapping[str, float], hints: Mapping[str, Mapping[str, str]] | None = None
) -> Rule:
    """At most these shares (0 to 1) of the values of columns cannot be parsed.

    Smaller shares are a warning. `hints` say, by column, what to write if all examples match a
    regular expression. Every table that reads typed columns of files has this rule.
    """
    return _unparsed("values_parsed", shares, hints or {})


def _unparsed(
    name: str,
    shares: Mapping[str, float],
    hints: Mapping[str, Mapping[str, str]] | None = None,
) -> Rule:
    for share in shares.values():
        _require_share(name, share)
    if not shares:
        raise ValueError(f"{name} names no column, and would accept any day")

    def judge(day: DayProfile) -> Judged:
        counts = {column: day.measures.get(_unparsed_in(column), 0) for column in shares}
        over = {c for c, n in counts.items() if n > shares[c] * _values_of(day, c, n)}
        shown = over or {c for c, n in counts.items() if n and hints is not None}
        whys = [
            f"{column}: {n:,} of {_values_of(day, column, n):,} values cannot be parsed"
            f"{_for_example(day.samples.get(_unparsed_in(column), ()), (hints or {}).get(column))}"
            for column, n in counts.items()
            if column in shown
        ]
        if not whys:
            return True, "the values of all columns can be parsed, or nearly all", counts
        message = (
            f"{'; '.join(whys)}. Fix the file, or the type of the column. If null is right for"
            f" them, accept it: --accept {name} --reason 'why'"
        )
        return False if over else "warning", message, counts

    by_share = grouped((share, column) for column, share in shares.items())
    bounds = "; ".join(f"{share:.2%} in {', '.join(of)}" for share, of in by_share.items())
    return Rule(
        name,
        f"Values that cannot be parsed: at most {bounds}.",
        judge,
        "size(unparsed) > 0",
        columns=["unparsed"],
        own_measures={_unparsed_in(c): f"unparsed['{c}'] IS NOT NULL" for c in shares},
        own_samples={_unparsed_in(c): _if_present(f"unparsed['{c}']") for c in shares},
    )


def _if_present(value: str) -> str:
    """SQL of an array with the value, empty if it is null. Spark compiles no `array_compact`."""
    return f"if({value} IS NULL, array(), array({value}))"


def _unparsed_in(column: str) -> str:
    """The name of the measure, and of the sample, for a column's unparsed values."""
    return f"unparsed_{column}"


def _values_of(day: DayProfile, column: str, unparsed: int) -> int:
    """The number of delivered values of a column."""
    return min(day.rows, day.rows - day.nulls.get(column, 0) + unparsed)


def _for_example(texts: Sequence[str], hints: Mapping[str, str] | None = None) -> str:
    """Some of the texts, and what to write if all of them match a regular expression."""
    if not texts:
        return ""
    shown = ", ".join(f"'{text}'" for text in texts[:_EXAMPLES])
    remedies = [
        f" ({remedy})"
        for pattern, remedy in (hints or {}).items()
        if all(re.fullmatch(pattern, text) for text in texts)
    ]
    return f", for example {shown}{''.join(remedies)}"


def rows_well_formed(share: float, fault: str) -> Rule:
    """At most this share (0 to 1) of a day's rows is malformed: has its text in `malformed`.

    Smaller shares are a warning. `fault` says what is wrong with such rows. Every table that reads
    columns of text files has this rule.
    """
    name = "rows_well_formed"
    _require_share(name, share)

    def judge(day: DayProfile) -> Judged:
        malformed = day.rows - day.nulls.get(MALFORMED, day.rows)
        if not malformed:
            return True, "all rows, or nearly all", {MALFORMED: malformed}
        message = (
            f"{malformed:,} of {day.rows:,} rows {fault}"
            f"{_for_example(day.samples.get(MALFORMED, ()))}. {'. '.join([*day.notes[:2], ''])}"
            f"Fix the file. If these rows can be"
            f" left out, accept it: --accept {name} --reason 'why'"
        )
        figures = {MALFORMED: malformed}
        return False if malformed > share * day.rows else "warning", message, figures

    return Rule(
        name,
        f"At most {share:.2%} of the rows {fault}.",
        judge,
        f"{MALFORMED} IS NOT NULL",
        columns=[MALFORMED],
        own_samples={MALFORMED: _if_present(MALFORMED)},
    )


def _share_of_each(
    name: str,
    share: float,
    columns: Sequence[str],
    kind: str,
    count: Callable[[DayProfile, str], int],
    offending: str,
) -> Rule:
    """A rule that at most `share` of a day's values are `offending`, in each of `columns`.

    `offending` is NULL or NOT NULL.
    """
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
    is_offending = " OR ".join(f"`{column}` IS {offending}" for column in columns)
    return Rule(name, promise, judge, is_offending, columns=columns)


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
