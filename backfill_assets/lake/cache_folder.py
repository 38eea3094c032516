"""The folder of the home in which sources keep what saves them time."""

from pathlib import Path

from backfill_assets.settings import PRIVATE


def make_cache(folder: Path, *, and_home: bool = False) -> None:
    """Make the folder in the home. OSError where there is no home: `status` makes none, unless it cannot do without.

    Then (`and_home`) the home is made too, private to its owner.
    """
    if and_home:
        folder.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
