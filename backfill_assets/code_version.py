"""A function's code version: what it and everything of the project that it calls come to, as text.

Functions and classes count by their source, without comments, docstrings, annotations and layout; constants of plain data by
their value, so that one taken from a setting counts as it is set. Names are followed through imports within the project; what
other packages do does not count. What is looked up only while running (`getattr`, a name built from pieces) is not seen: such
a table is given its version by hand.
"""

from __future__ import annotations

import hashlib
import sys

from backfill_assets.bare_source import Place, bare, file_of, plain

LENGTH = 12


def code_version(module: str, name: str, *, beside: str = "") -> str:
    """Twelve hexadecimal digits for the top-level `name` of `module`, and for `beside`, text that counts too.

    Raises ValueError where there is no source to read, or no such name in it.
    """
    told = hashlib.sha256(beside.encode())
    for place, text in sorted(reached(module, name).items()):
        told.update(f"\n{place}\n{text}".encode())
    return told.hexdigest()[:LENGTH]


def reached(module: str, name: str) -> dict[str, str]:
    """Everything of the project that `name` is made of: `module:name` to its bare text."""
    project, found, left = module.partition(".")[0], dict[str, str](), [(module, name)]
    while left:
        at, wanted = left.pop()
        place = f"{at}:{wanted}"
        if place in found:
            continue
        text = bare(at).texts.get(wanted)
        if text is None:
            raise ValueError(f"{place} is not defined at the top of its file; give its table a version by hand")
        value = plain(getattr(sys.modules.get(at), wanted, None))
        found[place] = value or text
        if value:
            continue
        left += [other for used in bare(at).used.get(wanted, ()) if (other := _followed(project, at, used))]
    return found


def _followed(project: str, module: str, used: str) -> Place | None:
    """Where a name that is used in `module` is defined, if that is in the project. `used` may be `module.name`."""
    first, _, rest = used.partition(".")
    here = bare(module)
    if first in here.texts:
        return module, first
    origin, name = here.imports.get(first, ("", ""))
    if origin.partition(".")[0] != project:
        return None
    if name and file_of(f"{origin}.{name}"):  # the name of a module
        origin, name = f"{origin}.{name}", ""
    name = name or rest
    if not name:
        return None
    return (origin, name) if name in bare(origin).texts else _followed(project, origin, name)
