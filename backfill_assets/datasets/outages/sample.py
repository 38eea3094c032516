"""The bundled sample, delivered into a landing area as its source would deliver it."""

from __future__ import annotations

import filecmp
import shutil
from datetime import date
from pathlib import Path

from backfill_assets.errors import UsageError

FIRST_DAY, LAST_DAY = date(2019, 8, 15), date(2019, 10, 13)
SAMPLE = Path(__file__).resolve().parents[2] / "sample" / "outage_events"


def deliver(landing: Path) -> int:
    """Copy the sample's files that `landing` lacks; how many. UsageError, and nothing copied, if one there differs."""
    target = landing / SAMPLE.name
    files = {path: target / path.relative_to(SAMPLE) for path in sorted(SAMPLE.rglob("*")) if path.is_file()}
    differing = [there for path, there in files.items() if there.exists() and not filecmp.cmp(path, there, shallow=False)]
    if differing:
        raise UsageError(
            f"{landing} holds {len(differing)} other file(s) where the sample's would go, the first is {differing[0]}. "
            "Nothing was copied or started. Point BACKFILL_LANDING (or BACKFILL_HOME) at another folder for the demo."
        )
    missing = {path: there for path, there in files.items() if not there.exists()}
    for path, there in missing.items():
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, there)
    return len(missing)
