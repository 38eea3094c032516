"""A page that a command writes for `--html FILE`."""

from pathlib import Path

from backfill_assets.errors import UsageError
from backfill_assets.lake.documents import write_whole


def refuse_page(file: Path, done: str) -> None:
    """UsageError for a file that is not to hold a page, or in a folder that is not there; nothing was `done`."""
    if file.suffix != ".html" or file.is_dir():
        raise UsageError(f"{file} is not a file that ends in .html. Nothing was {done}. Name such a file.")
    if not file.parent.is_dir():
        raise UsageError(f"There is no folder {file.parent}. Nothing was {done}. Make it, or name another file.")


def write_page(page: str, file: Path) -> None:
    """Write the page, which takes the place of one that is there when it is complete."""
    write_whole(file, page.encode(errors="backslashreplace"))
