"""Tables without days: what is built from them, and what a change of them makes outdated."""

import pytest

from backfill_assets.calendar import NO_DAY
from tests.worlds.regions import CHANGES, DAYS, PLACED, REGIONS, Places, states


@pytest.fixture
def places(tmp_path, spark) -> Places:
    return Places(tmp_path, lambda: spark).deliver()


def accepted(days):
    return [f"{day} accepted" for day in days]


def test_daily_tables_read_it_whole_and_a_change_makes_all_their_days_outdated(places):
    assert places.outcomes() == {
        REGIONS: accepted([NO_DAY]),
        CHANGES: accepted(DAYS),
        PLACED: accepted(DAYS),
    }
    assert places.rows() == places.expected()
    assert places.outcomes() == {REGIONS: [], CHANGES: [], PLACED: []}
    head, _, *rest = places.file.read_text().splitlines()
    places.deliver_regions("\n".join([head, *rest]))
    assert states(places.status(), REGIONS) == {"outdated: source files changed": [NO_DAY]}
    assert states(places.status(), PLACED) == {"up to date": DAYS}
    assert places.outcomes(only=[REGIONS]) == {REGIONS: accepted([NO_DAY])}
    assert states(places.status(), PLACED) == {"outdated: input changed": DAYS}
    places.run()
    assert places.rows() == places.expected()
    assert places.status().states == {"up to date"}
