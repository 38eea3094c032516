"""A function's code version: a hash of its source text and of everything in its project that it uses.

Functions and classes count by their source, without comments, docstrings and layout; numbers and dates by their value, however
it is written or computed; texts and collections as they are written. Names are followed through imports within the project,
which is every module in the folder of the top-level package or module that the function is in; other packages do not count. A
module that is used as a value counts whole, and what `@table` declares of a function where a value of that table is used, such
as `orders.columns`. Code that reads a file or an environment variable, or imports by computed names, is refused, unless what
comes of it is a number or a date. What is looked up only while running (`getattr`), what other packages read, and what another
module adds to a registry or sets on a class, is not seen: give such a table its version by hand.
"""

import builtins
import hashlib
import sys
from collections.abc import Iterator, Sequence

from backfill_assets.tables.code_version.source import (
    NUMBERS,
    VALUE,
    Definition,
    ModuleSource,
    declaration_of,
    file_of,
    in_project,
    is_there,
    plain,
    readers_among,
    source_of,
)

LENGTH = 12
WHOLE_MODULE = "*"
OF_EVERY_MODULE = frozenset({"__name__", "__file__", "__doc__", "__package__", "__path__", "__spec__"})
BY_HAND = "give its table a version by hand: version=..."


def code_version(module: str, name: str, *, also: str = "", may_read: bool = False) -> str:
    """The version of the top-level `name` of `module`, twelve hexadecimal digits; the text `also` is hashed with it.

    Raises ValueError where there is no source to read, no such name in it, a name is used that is defined nowhere, or, unless
    `may_read`, where the code reads files or environment variables.
    """
    version = hashlib.sha256(also.encode())
    for definition, text in sorted(definitions_used(module, name, may_read=may_read).items()):
        version.update(f"\n{definition}\n{text}".encode())
    return version.hexdigest()[:LENGTH]


def definitions_used(module: str, name: str, *, may_read: bool = False) -> dict[str, str]:
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
            if not may_read:
                _refuse_readers(source, name, definition)
            pending += [other for used in source.used[name] for other in definitions_of(project, origin, used, definition)]
    return texts


def _refuse_readers(source: ModuleSource, name: str, definition: str) -> None:
    readers = sorted({*readers_among(source.used[name], source), *source.methods[name]})
    if readers:
        raise ValueError(
            f"{definition} uses {readers[0]}, and what that returns is not part of the code version: write it in the code, "
            f"or {BY_HAND}"
        )


def definitions_of(project: str, module: str, used: str, definition: str) -> Iterator[Definition]:
    """Where a name that `definition` uses is defined, if that is in the project. It may be dotted: `package.module.name`.

    In several places if different functions import different things under that name.
    """
    source = source_of(module)
    first, *rest = used.split(".")
    if first in source.texts:
        yield module, first
        yield from _declared(module, first, rest)
    elif first not in source.imports and not hasattr(builtins, first) and first not in OF_EVERY_MODULE:
        raise ValueError(f"{definition} uses {first}, which is not defined at the top of {module}; {BY_HAND}")
    imported = source.imports.get(first, [])
    # `try: from .fast import f`, `except ImportError: from .slow import f`: a module that is not there is not imported.
    present = [full for full in imported if not _is_missing(project, full)]
    for full in present if present or first in source.texts else imported:
        if in_project(project, full[0]):
            yield from _defined_as(project, [*full, *rest], definition)


def _is_missing(project: str, full: list[str]) -> bool:
    """Whether an import names a module that its package in the project does not have."""
    if not in_project(project, full[0]) or file_of(".".join(full)):
        return False
    origin, name = _split(full)
    if not name:
        return False
    package = source_of(origin)
    return not ({name, "*"} & (package.texts.keys() | package.imports.keys()) or is_there(origin, name))


def _defined_as(project: str, full: list[str], definition: str) -> Iterator[Definition]:
    module = ".".join(full).removesuffix(f".{VALUE}")
    if file_of(module):
        yield module, WHOLE_MODULE
        return
    origin, name = _split(full)
    if not name:
        return
    within = [(origin, name)] if name in source_of(origin).texts else definitions_of(project, origin, name, definition)
    for defined_in, defined in within:
        yield defined_in, defined
        yield from _declared(defined_in, defined, full[origin.count(".") + 2 :])


def _declared(module: str, name: str, attributes: Sequence[str]) -> Iterator[Definition]:
    """What `@table` declares of a name, where that is used otherwise than by calling it: `orders.columns` uses one argument."""
    texts = source_of(module).texts
    if attributes and declaration_of(name) in texts:
        argument = declaration_of(name, attributes[0])
        yield module, argument if argument in texts else declaration_of(name)


def _split(full: list[str]) -> tuple[str, str]:
    """The module with a file that a dotted name begins with, the longest, and the name within it; both empty without one."""
    within = max((n for n in range(1, len(full)) if file_of(".".join(full[:n]))), default=0)
    return (".".join(full[:within]), full[within]) if within else ("", "")
