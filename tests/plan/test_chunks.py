"""A plan's chunks: everything once, and nothing before what it reads."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.plan.plan import Chunk, cut_into_chunks
from backfill_assets.tables.graph import Graph
from tests.worlds.deliveries import day, days
from tests.worlds.tables import CALENDAR, existing, graphs, history, outages, raw, reads, updates

CHAIN = Graph((raw, updates, outages, history), CALENDAR)


@given(st.data())
def test_every_partition_is_in_one_chunk_and_its_inputs_not_in_a_later_one(data):
    graph = data.draw(graphs())
    partitions = sorted(data.draw(st.sets(st.sampled_from(existing(graph)))))
    order = data.draw(st.sampled_from(["asc", "desc"]))
    size = data.draw(st.integers(1, 4))
    canary = data.draw(st.integers(0, 3))
    chunks = cut_into_chunks(partitions, graph, days_per_run=size, order=order, canary=canary)
    assert Counter(partition for chunk in chunks for partition in chunk.partitions()) == Counter(
        partitions
    )
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    place = {partition: chunk.number for chunk in chunks for partition in chunk.partitions()}
    for chunk in chunks:
        assert all(number < chunk.number for number in chunk.after)
        for partition in chunk.partitions():
            planned = {place[other] for other in partitions if reads(graph, partition, other)}
            assert planned <= {chunk.number, *chunk.after}


def of(chunks: list[Chunk], table) -> list[list[object]]:
    return [list(chunk.days.get(table.name, ())) for chunk in chunks]


ALL = [(table.name, at) for table in CHAIN.tables for at in CALENDAR.days()]


def test_a_chunk_takes_along_the_later_days_that_its_own_read():
    chunks = cut_into_chunks(ALL, CHAIN, days_per_run=3)
    assert of(chunks, outages) == [days(0, 1, 2), days(3, 4, 5), days(6, 7)]
    assert of(chunks, updates) == [days(0, 1, 2, 3, 4, 5, 6), days(7), []]
    assert [chunk.after for chunk in chunks] == [[], [0], [0, 1]]


def test_going_back_in_time_tables_that_read_themselves_wait_for_the_first_day():
    chunks = cut_into_chunks(ALL, CHAIN, days_per_run=4, order="desc")
    assert of(chunks, outages) == [days(4, 5, 6, 7), days(0, 1, 2, 3)]
    assert of(chunks, history) == [[], CALENDAR.days()]


def test_the_canary_is_the_first_days_of_the_longest_stretch():
    partitions = [(raw.name, at) for at in days(0, 3, 4, 5, 6)]
    assert of(cut_into_chunks(partitions, CHAIN, days_per_run=10, canary=2), raw) == [
        days(3, 4),
        days(0, 5, 6),
    ]
    assert of(cut_into_chunks(partitions, CHAIN, days_per_run=10, order="desc", canary=2), raw) == [
        days(5, 6),
        days(0, 3, 4),
    ]


@pytest.mark.parametrize(
    ("size", "numbers", "groups"),
    [
        pytest.param(4, (0, 1, 2, 4, 5, 6), [(0, 1, 2), (4, 5, 6)], id="it ends at a gap"),
        pytest.param(2, (0, 2, 4), [(0, 2), (4,)], id="single days share chunks"),
        pytest.param(2, (0, 2, 3, 4, 6), [(0,), (2, 3), (4, 6)], id="a longer span is divided"),
    ],
)
def test_a_chunk_ends_at_a_gap_if_it_can(size, numbers, groups):
    partitions = [(raw.name, at) for at in days(*numbers)]
    chunks = cut_into_chunks(partitions, CHAIN, days_per_run=size)
    assert of(chunks, raw) == [days(*group) for group in groups]


def test_days_that_are_no_more_than_the_canary_need_none():
    assert of(cut_into_chunks([(raw.name, day(0))], CHAIN, days_per_run=10, canary=2), raw) == [
        [day(0)]
    ]
