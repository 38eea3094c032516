"""When a lake in an object store is looked at again."""

from collections.abc import Hashable
from datetime import timedelta

import pytest

from backfill_assets.plan.looks import COUNTS_FOR, Looks
from tests.worlds.webservers import NOON


class Lake:
    """Counts the looks at it."""

    version: Hashable = 1
    now = NOON
    looks = 0

    def look(self) -> int:
        self.looks += 1
        return self.looks

    def looked(self, *, is_local: bool = False) -> Looks[int]:
        return Looks(self.look, None if is_local else lambda: self.version, lambda: self.now)


def test_a_look_counts_until_a_build_is_recorded_or_a_while_has_passed():
    lake = Lake()
    looks = lake.looked()
    assert [looks.recent() for _ in range(3)] == [1, 1, 1]
    lake.version = 2
    assert [looks.recent() for _ in range(3)] == [2, 2, 2]
    lake.now += COUNTS_FOR
    assert [looks.recent() for _ in range(3)] == [3, 3, 3]
    assert [looks.new(), looks.recent()] == [4, 4]


def test_a_build_that_is_recorded_during_a_look_is_seen_by_the_next():
    lake = Lake()

    def look() -> int:
        lake.version = lake.looks + 2
        return lake.look()

    looks = Looks(look, lambda: lake.version, lambda: lake.now)
    assert [looks.recent(), looks.recent()] == [1, 2]


@pytest.mark.parametrize("passed", [timedelta(0), COUNTS_FOR])
def test_each_look_at_a_disk_is_new(passed):
    lake = Lake()
    looks = lake.looked(is_local=True)
    first = looks.recent()
    lake.now += passed
    assert (first, looks.recent()) == (1, 2)
