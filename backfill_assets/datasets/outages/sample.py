"""The bundled sample: sixty days of deliveries, copied into a landing area."""

import filecmp
import shutil
from datetime import date
from pathlib import Path

from backfill_assets.calendar import between
from backfill_assets.errors import UsageError

FIRST_DAY = date(2019, 8, 15)
LAST_DAY = date(2019, 10, 13)
SAMPLE = Path(__file__).resolve().parents[2] / "sample" / "outage_events"


def file_of(day: date) -> Path:
    """The bundled file of an arrival day."""
    return SAMPLE / f"year={day:%Y}" / f"month={day:%m}" / f"day={day:%d}" / "events.jsonl.gz"


def deliver(landing: Path, until: date = LAST_DAY) -> int:
    """Copy the files up to a day that `landing` lacks, and return their number.

    Raises UsageError, and copies nothing, if a file differs there.
    """
    target = landing / SAMPLE.name
    sources = map(file_of, between(FIRST_DAY, until))
    files = {path: target / path.relative_to(SAMPLE) for path in sources}
    differing = [
        copy
        for path, copy in files.items()
        if copy.exists() and not filecmp.cmp(path, copy, shallow=False)
    ]
    if differing:
        raise UsageError(
            f"{landing} holds {len(differing)} other file(s) where the sample's would go, the first"
            f" is {differing[0]}. Nothing was copied or started. Point BACKFILL_LANDING (or"
            " BACKFILL_HOME) at another folder for the demo."
        )
    missing = {path: copy for path, copy in files.items() if not copy.exists()}
    for path, copy in missing.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return len(missing)
