"""A function's code version: a hash of its source text and of everything in its project that it uses.

Functions and classes count by their source, without comments, docstrings, annotations and layout; constants of plain data by
their value, however it is written or computed. Names are followed through imports within the project, which is the top-level
package or module that the function is in; other packages do not count. Names that are looked up only while running (`getattr`)
or imported by `import *` are not seen: give such a table its version by hand.
"""

from __future__ import annotations

import hashlib
import sys

from backfill_assets.tables.source_text import Definition, file_of, plain, source_of

LENGTH = 12


def code_version(module: str, name: str, *, also: str = "") -> str:
    """The version of the top-level `name` of `module`, twelve hexadecimal digits; the text `also` is hashed with it.

    Raises ValueError where there is no source to read, or no such name in it.
    """
    version = hashlib.sha256(also.encode())
    for definition, text in sorted(definitions_used(module, name).items()):
        version.update(f"\n{definition}\n{text}".encode())
    return version.hexdigest()[:LENGTH]


def definitions_used(module: str, name: str) -> dict[str, str]:
    """The text of `name` and of every definition in its project that it uses, directly or not, by `module:name`."""
    project, texts, left = module.partition(".")[0], dict[str, str](), [(module, name)]
    while left:
        origin, wanted = left.pop()
        definition = f"{origin}:{wanted}"
        if definition in texts:
            continue
        source = source_of(origin)
        text = source.texts.get(wanted)
        if text is None:
            raise ValueError(
                f"{definition} is not defined at the top of its file; give its table a version by hand: version=..."
            )
        value = plain(getattr(sys.modules.get(origin), wanted, None))
        texts[definition] = value or text
        if not value:
            left += [other for used in source.used.get(wanted, ()) if (other := _definition_of(project, origin, used))]
    return texts


def _definition_of(project: str, module: str, used: str) -> Definition | None:
    """Where a name that `module` uses is defined, if that is in the project. It may be dotted: `package.module.name`."""
    source = source_of(module)
    first, *rest = used.split(".")
    if first in source.texts:
        return module, first
    full = [*source.imports.get(first, ()), *rest]
    if full[:1] != [project]:
        return None
    within = max((n for n in range(1, len(full)) if file_of(".".join(full[:n]))), default=0)
    if not within:
        return None
    origin, name = ".".join(full[:within]), full[within]
    return (origin, name) if name in source_of(origin).texts else _definition_of(project, origin, name)
