"""A function's code version: a hash of its source text and of everything in its project that it uses.

Functions and classes count by their source, without comments, docstrings and layout; numbers and dates by their value, however
it is written or computed; texts and collections as they are written. Names are followed through imports within the project,
which is the top-level package or module that the function is in; other packages do not count. A module that is used as a value
counts whole. What is looked up only while running (`getattr`), or added to a registry by another module, is not seen: give such
a table its version by hand.
"""

import builtins
import hashlib
import sys
from collections.abc import Iterator

from backfill_assets.tables.source_text import NUMBERS, Definition, file_of, plain, source_of

LENGTH = 12
WHOLE_MODULE = "*"
OF_EVERY_MODULE = frozenset({"__name__", "__file__", "__doc__", "__package__", "__path__", "__spec__"})
BY_HAND = "give its table a version by hand: version=..."


def code_version(module: str, name: str, *, also: str = "") -> str:
    """The version of the top-level `name` of `module`, twelve hexadecimal digits; the text `also` is hashed with it.

    Raises ValueError where there is no source to read, no such name in it, or a name is used that is defined nowhere.
    """
    version = hashlib.sha256(also.encode())
    for definition, text in sorted(definitions_used(module, name).items()):
        version.update(f"\n{definition}\n{text}".encode())
    return version.hexdigest()[:LENGTH]


def definitions_used(module: str, name: str) -> dict[str, str]:
    """The text of `name` and of every definition in its project that it uses, directly or not, by `module:name`."""
    project, texts, pending = module.partition(".")[0], dict[str, str](), [(module, name)]
    while pending:
        origin, name = pending.pop()
        definition = f"{origin}:{name}"
        if definition in texts:
            continue
        source = source_of(origin)
        if name == WHOLE_MODULE:
            pending += [(origin, each) for each in source.texts]
            continue
        text = source.texts.get(name)
        if text is None:
            raise ValueError(f"{definition} is not defined at the top of its file; {BY_HAND}")
        loaded = getattr(sys.modules.get(origin), name, None)
        # Texts and collections count as they are written: computed ones may differ from place to place, or in their order.
        value = plain(loaded) if type(loaded) in NUMBERS else ""
        texts[definition] = value or text
        if not value:
            pending += [other for used in source.used[name] for other in _definitions_of(project, origin, used, definition)]
    return texts


def _definitions_of(project: str, module: str, used: str, definition: str) -> Iterator[Definition]:
    """Where a name that `definition` uses is defined, if that is in the project. It may be dotted: `package.module.name`.

    In several places if different functions import different things under that name.
    """
    source = source_of(module)
    first, *rest = used.split(".")
    if first in source.texts:
        yield module, first
    elif first not in source.imports and not hasattr(builtins, first) and first not in OF_EVERY_MODULE:
        raise ValueError(f"{definition} uses {first}, which is not defined at the top of {module}; {BY_HAND}")
    for imported in source.imports.get(first, ()):
        full = [*imported, *rest]
        if full[0] == project:
            yield from _defined_as(project, full, definition)


def _defined_as(project: str, full: list[str], definition: str) -> Iterator[Definition]:
    if file_of(".".join(full)):
        yield ".".join(full), WHOLE_MODULE
        return
    within = max((n for n in range(1, len(full)) if file_of(".".join(full[:n]))), default=0)
    if within:
        origin, name = ".".join(full[:within]), full[within]
        if name in source_of(origin).texts:
            yield origin, name
        else:
            yield from _definitions_of(project, origin, name, definition)
