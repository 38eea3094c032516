"""A page that a command writes for `--html FILE`."""

import secrets
from pathlib import Path

from backfill_assets.errors import UsageError


def refuse_page(file: Path, done: str) -> None:
    """UsageError for a file that is not to hold a page, or in a folder that is not there; nothing was `done`."""
    if file.suffix != ".html" or file.is_dir():
        raise UsageError(f"{file} is not a file that ends in .html. Nothing was {done}. Name such a file.")
    if not file.parent.is_dir():
        raise UsageError(f"There is no folder {file.parent}. Nothing was {done}. Make it, or name another file.")


def write_page(page: str, file: Path) -> None:
    """Write the page, which takes the place of one that is there when it is complete."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        beside.write_text(page, encoding="utf-8", errors="backslashreplace")
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
