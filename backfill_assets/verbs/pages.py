"""Pages and pictures: files that need no other file. Every value on them is escaped."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from backfill_assets.lake.storage import write_whole


def render(template: str, values: Mapping[str, Any], *filters: Callable[..., Any]) -> str:
    """Fill values into a template of this folder. It may use these functions as filters."""
    # Loading takes a moment, which no other command needs.
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {function.__name__: function for function in filters}
    return environment.get_template(template).render(values)


def write_page(page: str, file: Path) -> None:
    """Write the page. It replaces an existing page when it is complete."""
    write_whole(file, page.encode(errors="backslashreplace"))
