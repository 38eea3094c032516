"""Readers see whole releases only, while writers are killed. No Spark."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.drills.reader_history import KILLS, History, Observation, history_of, problems

OBSERVATIONS = 1_000
SEEN = Observation(0, 1, {"2019-08-15": [2, 2]}, {"2019-08-15": [2, 2]})


@pytest.mark.scale
def test_every_reading_is_of_exactly_one_release_and_no_reader_goes_back(tmp_path, seed):
    history = history_of(tmp_path, OBSERVATIONS, seed)
    assert list(problems(history)) == []
    assert len(history.observations) >= OBSERVATIONS
    assert history.kills >= KILLS
    assert len({seen.release for seen in history.observations}) > 3
    assert {"done night", "done publish"} <= history.acts.keys()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        (replace(SEEN, a={"2019-08-15": [1]}, b={"2019-08-15": [1]}), "other rows than before"),
        (replace(SEEN, release=2, b={"2019-08-15": [1]}), "other values in one table"),
        (replace(SEEN, release=2, a={"2019-08-15": [2]}, b={"2019-08-15": [2]}), "never written"),
        (replace(SEEN, release=0), "went back"),
    ],
)
def test_the_checker_finds_what_no_reader_may_see(seen, problem):
    found = problems(History([SEEN, seen], 0, Counter()))
    assert any(problem in each for each in found)
    assert list(problems(History([SEEN, SEEN], 0, Counter()))) == []
