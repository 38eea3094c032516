"""How much tests try: a part in a run of the default tests, all in those of `scale`, `nightly`."""

from collections.abc import Collection, Iterable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

PART = "a part"
EVERYTHING = "everything"
# Those that UTF-8 can encode. Without them named so, each process of a new clone tries all, which
# takes seconds.
CHARACTERS = st.characters(exclude_categories=["Cs"])
# An example takes as long as a busy machine makes it. A failing example is printed, so that it can
# be tried again.
hypothesis.settings.register_profile(EVERYTHING, deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    PART, hypothesis.settings.get_profile(EVERYTHING), max_examples=10
)


def load_depth(markers: str) -> None:
    """Choose the depth of a run that selects tests by these markers (`pytest -m`)."""
    hypothesis.settings.load_profile(EVERYTHING if markers == "scale" else PART)


def tries_everything() -> bool:
    return hypothesis.settings.get_current_profile_name() == EVERYTHING


def tries(examples: int) -> int:
    """The number of examples of a property: all of them, or a tenth."""
    return examples if tries_everything() else max(3, examples // 10)


def each_write(last: int) -> pytest.MarkDecorator:
    """Parameters of a test that kills an act after each of its writes.

    The first, a middle and the last write are killed in the default run, and the others nightly.
    """
    part = (1, (last + 1) // 2, last)
    return pytest.mark.parametrize(
        "writes", deep(range(1, last + 1), part, others=pytest.mark.nightly)
    )


def deep(
    values: Iterable[Any],
    part: Collection[Any],
    others: pytest.MarkDecorator = pytest.mark.scale,
) -> list[Any]:
    """Parameters of a test. Those that are not in `part` have the mark `others`."""
    return [value if value in part else pytest.param(value, marks=others) for value in values]
