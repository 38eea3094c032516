"""A function's code version: what it and everything of the project that it calls come to, as text.

Functions and classes count by their source, without comments, docstrings, annotations and layout; constants of plain data by
their value, so that one taken from a setting counts as it is set. Names are followed through imports within the project; what
other packages do does not count. What is looked up only while running (`getattr`, a name built from pieces), or comes by
`import *`, is not seen: such a table is given its version by hand.
"""

from __future__ import annotations

import hashlib
import sys

from backfill_assets.tables.source_text import Place, bare, file_of, plain

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
    """Where what is used in `module` is defined, if that is in the project. `used` may be dotted: `package.module.name`."""
    first, *rest = used.split(".")
    if first in bare(module).texts:
        return module, first
    full = [*bare(module).imports.get(first, ()), *rest]
    if full[:1] != [project]:
        return None
    within = max((n for n in range(1, len(full)) if file_of(".".join(full[:n]))), default=0)
    if not within:
        return None
    origin, name = ".".join(full[:within]), full[within]
    return (origin, name) if name in bare(origin).texts else _followed(project, origin, name)
