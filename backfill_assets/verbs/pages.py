"""Pages and pictures: files that need no other file. Every value on them is escaped."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from backfill_assets.lake.storage import write_whole
from backfill_assets.no_day import in_words

# Templates of code, whose values are not escaped.
CODE = "project/"


def render(template: str, values: Mapping[str, Any], *filters: Callable[..., Any]) -> str:
    """Fill values into a template of this folder. It may use these functions as filters."""
    # Loading takes a moment, which no other command needs.
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        autoescape=not template.startswith(CODE),
        loader=FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {function.__name__: function for function in filters}
    return environment.get_template(template).render(values)


# Characters that no XML may have, or that change the direction of the text after them.
_NOT_SHOWN = re.compile("[^\t\n\r -~\xa0-\u2029\u202f-\u2065\u206a-\ufffd\U00010000-\U0010ffff]")


def write_page(page: str, file: Path) -> int:
    """Write the page, and return its size. It replaces an existing page when it is complete."""
    shown = _NOT_SHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", in_words(page))
    contents = shown.encode(errors="backslashreplace")
    write_whole(file, contents)
    return len(contents)
