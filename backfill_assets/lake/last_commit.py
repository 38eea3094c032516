"""Whether anything was committed to a table since it was looked at last, without opening it."""

from contextlib import suppress
from pathlib import Path

from backfill_assets.lake.ledger import version_of


def last_commit(path: str) -> str:
    """Another text for each version of the Delta table at `path`; "" where there is none.

    On a local disk it is the name of the newest file of the log. In an object store, listing the log costs more than reading
    its end.
    """
    if "://" in path:
        return str(version_of(path))
    with suppress(FileNotFoundError):
        names = (file.name for file in Path(path, "_delta_log").iterdir())
        return max((name for name in names if name[:20].isdigit() and name.endswith(".json")), default="")
    return ""
