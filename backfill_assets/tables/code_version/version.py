"""The code version of a function: a hash of its source, and of all it uses in its project.

Nothing is imported or run: source.py reads files as text.

Definitions count by their source, without comments, docstrings and layout. Constants that are
written out count by their value, and so does arithmetic with numbers: `7` is `3 + 4`.

Names are followed through imports within the project: every module in the folder of the top-level
package or module of the function. Other packages do not count. A module that is used as a value
counts as a whole. The arguments of `@table` count if a value of that table is used, such as
`orders.columns`.

Code that reads a file or an environment variable, or imports by computed names, is refused, unless
its result is a number or a date in a loaded module, which counts by its value. These changes are
not detected: names that are looked up only at run time (`getattr`), files that other packages read,
and values that another module adds to a registry or sets on a class. Such a table needs an explicit
version.
"""

import builtins
import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence

from backfill_assets.tables.code_version.modules import file_of, in_project, is_there, look_again
from backfill_assets.tables.code_version.source import (
    NUMBERS,
    VALUE,
    Definition,
    TopLevelName,
    declaration_of,
    plain,
    readers_among,
    source_of,
)

LENGTH = 12
WHOLE_MODULE = "*"
MODULE_NAMES = {"__name__", "__file__", "__doc__", "__package__", "__path__", "__spec__"}
BY_HAND = "give its table a version by hand: version=..."


def code_version(module: str, name: str, *, also: str = "", may_read: bool = False) -> str:
    """The version of the top-level `name` of `module`: twelve hexadecimal digits.

    The text `also` is hashed with it. Raises ValueError if there is no source to read, if the name,
    or a name that it uses, is not defined, or, unless `may_read`, if the code reads files or
    environment variables.
    """
    version = hashlib.sha256(also.encode())
    for definition, text in sorted(definitions_used(module, name, may_read=may_read).items()):
        version.update(f"\n{definition}\n{text}".encode())
    return version.hexdigest()[:LENGTH]


def definitions_used(module: str, name: str, *, may_read: bool = False) -> dict[str, str]:
    """The text of `name`, and of every definition in its project that it uses, by `module:name`."""
    look_again()
    project = module.partition(".")[0]
    texts: dict[str, str] = {}
    pending = [(module, name)]
    while pending:
        origin, name = pending.pop()
        place = f"{origin}:{name}"
        if place in texts:
            continue
        if name == WHOLE_MODULE:
            pending += _used_by(project, origin, name)
            continue
        definition = _definition(origin, name)
        # A number that was read is in no file. All other values count by their source, because
        # their module may be loaded in one process and not in another.
        loaded = getattr(sys.modules.get(origin), name, None)
        if type(loaded) in NUMBERS and _is_read(project, origin, name):
            texts[place] = plain(loaded)
            continue
        texts[place] = definition.text
        readers = _readers(origin, name)
        if readers and not may_read:
            raise ValueError(
                f"{place} uses {min(readers)}, and its result is not part of the code version:"
                f" write it in the code, or {BY_HAND}"
            )
        pending += _used_by(project, origin, name)
    return texts


def _definition(module: str, name: str) -> Definition:
    definitions = source_of(module).definitions
    if name not in definitions:
        raise ValueError(f"{module}:{name} is not defined at the top of its file; {BY_HAND}")
    return definitions[name]


def _used_by(project: str, module: str, name: str) -> Iterator[TopLevelName]:
    """The names that a definition uses directly; for a whole module, all its definitions."""
    if name == WHOLE_MODULE:
        yield from ((module, top_level) for top_level in source_of(module).definitions)
        return
    for used in sorted(_definition(module, name).used):
        yield from definitions_behind(project, module, used, f"{module}:{name}")


def _is_read(project: str, module: str, name: str) -> bool:
    """True if a definition reads data, directly or through a definition that it uses."""
    seen = set[TopLevelName]()
    pending = [(module, name)]
    while pending:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        if _readers(*place):
            return True
        pending += _used_by(project, *place)
    return False


def _readers(module: str, name: str) -> set[str]:
    """The functions by which a definition reads data outside the code."""
    if name == WHOLE_MODULE:
        return set()
    definition = _definition(module, name)
    return {*readers_among(definition.used, source_of(module)), *definition.reading_methods}


def definitions_behind(
    project: str, module: str, used: str, definition: str
) -> Iterator[TopLevelName]:
    """Find the definitions in the project of a name that `definition` uses.

    The name may be dotted: `package.module.name`. There are several if functions import different
    things under that name.
    """
    source = source_of(module)
    first, *rest = used.split(".")
    if first in source.definitions:
        yield module, first
        yield from _declared(module, first, rest)
    elif not (first in source.imports or hasattr(builtins, first) or first in MODULE_NAMES):
        raise ValueError(
            f"{definition} uses {first}, which is not defined at the top of {module}; {BY_HAND}"
        )
    imported = source.imports.get(first, [])
    # For `try: from .fast import f`, `except ImportError: from .slow import f`, the existing
    # module.
    present = [full for full in imported if not _is_missing(project, full)]
    for full in present if present or first in source.definitions else imported:
        if in_project(project, full[0]):
            yield from _defined_as(project, [*full, *rest], definition)


def _is_missing(project: str, full: list[str]) -> bool:
    """True if an import names a module that is missing in its package of the project."""
    if not in_project(project, full[0]) or file_of(".".join(full)):
        return False
    origin, name = _split(full)
    if not name:
        return False
    package = source_of(origin)
    is_defined = not {name, "*"}.isdisjoint({*package.definitions, *package.imports})
    return not is_defined and not is_there(origin, name)


def _defined_as(project: str, full: list[str], definition: str) -> Iterator[TopLevelName]:
    module = ".".join(full).removesuffix(f".{VALUE}")
    if file_of(module):
        yield module, WHOLE_MODULE
        return
    origin, name = _split(full)
    if not name:
        return
    places: Iterable[TopLevelName] = [(origin, name)]
    if name not in source_of(origin).definitions:
        places = definitions_behind(project, origin, name, definition)
    attributes = full[origin.count(".") + 2 :]
    for defined_in, defined in places:
        yield defined_in, defined
        yield from _declared(defined_in, defined, attributes)


def _declared(module: str, name: str, attributes: Sequence[str]) -> Iterator[TopLevelName]:
    """The declaration by `@table` of a name whose attribute is used, such as `orders.columns`."""
    definitions = source_of(module).definitions
    if attributes and declaration_of(name) in definitions:
        argument = declaration_of(name, attributes[0])
        yield module, argument if argument in definitions else declaration_of(name)


def _split(full: list[str]) -> tuple[str, str]:
    """The longest module at the beginning of a dotted name, and the name in it; "" without one."""
    for length in range(len(full) - 1, 0, -1):
        module = ".".join(full[:length])
        if file_of(module):
            return module, full[length]
    return "", ""
