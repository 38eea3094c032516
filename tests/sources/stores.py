"""Landing areas of tests' own in object stores."""

from pathlib import Path

from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.copies import Copies
from backfill_assets.sources.object_store import ObjectStore


def area_at(place: str, tmp_path: Path) -> LandingArea:
    """Without trying again where a store does not answer, which takes half a minute."""
    files = ObjectStore(place, Copies(tmp_path / "copies"), retries=0)
    return LandingArea(Path(), tmp_path / "landed", lake=str(tmp_path / "lake"), files=files)
