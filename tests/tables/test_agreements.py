"""The version of a reconciliation or consumer changes with everything it decides by."""

from functools import partial

from backfill_assets import Reconciled, consumer, reconciliation
from backfill_assets.tables.agreements import Consumer, Reconciliation

A = ["raw/a"]


def gap_of_one(read, days):
    return Reconciled("", ["a gap"] if read("raw/a", days).num_rows > 1 else [])


def gap_of_a_thousand(read, days):
    return Reconciled("", ["a gap"] if read("raw/a", days).num_rows > 1000 else [])


def rows(read, days, at_least):
    return Reconciled("", [] if read("raw/a", days).num_rows >= at_least else ["few rows"])


class Rows:
    def __init__(self, at_least: int) -> None:
        self.at_least = at_least

    def __call__(self, read, days):
        return rows(read, days, self.at_least)


def bounded(at_least: int):
    return lambda read, days: rows(read, days, at_least)


def agreed(check) -> Reconciliation:
    return reconciliation(tables=A, name="sums")(check)


def consumed(query, tables=A, **declared) -> Consumer:
    return consumer(tables=tables, name="report", **declared)(query)


def customers(read, days):
    return read("raw/a", days, ["customers"]).num_rows


def outages(read, days):
    return read("raw/a", days, ["outages"]).num_bytes


def test_a_value_that_a_function_was_made_with_is_in_the_version():
    versions = [
        agreed(check).version
        for check in (
            gap_of_one,
            gap_of_a_thousand,
            partial(rows, at_least=1),
            partial(rows, at_least=2),
            Rows(1),
            Rows(2),
        )
    ]
    versions += [agreed(bounded(1)).version, agreed(bounded(2)).version]
    versions += [consumed(customers).version, consumed(outages).version]
    assert len(set(versions)) == len(versions)


def test_what_a_consumer_declares_makes_another_version():
    versions = {consumed(customers).version, consumed(customers, ["raw/a", "raw/b"]).version}
    assert len(versions | {consumed(customers, may_be_empty=True).version}) == 3


def test_the_same_declaration_has_the_same_version():
    for check in (gap_of_one, partial(rows, at_least=1), Rows(1), bounded(1)):
        assert agreed(check).version == agreed(check).version
    assert agreed(Rows(1)).version == agreed(Rows(1)).version
