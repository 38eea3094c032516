"""The names that a function without a statement of its own, such as a lambda, uses: read from its compiled code."""

import dis
from collections.abc import Collection, Iterator
from types import CodeType

from backfill_assets.tables.outside import METHODS

GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME"}
LOCAL = {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF"}
ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}


def names_in(code: CodeType, imported: Collection[str]) -> Iterator[str]:
    """The names from outside, with their attributes: `name`, `module.name`; `imported` are all that the file imports."""
    chain: list[str] = []
    instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    imports = any(each.opname == "IMPORT_NAME" for each in instructions)
    for each in instructions:
        if chain and each.opname in ATTRIBUTE:
            chain.append(each.argval)
            continue
        if chain:
            yield ".".join(chain)
        local = imports and each.opname in LOCAL and each.argval in imported
        chain = [each.argval] if each.opname in GLOBAL or local else []
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_in(inner, imported)


def methods_in(code: CodeType) -> set[str]:
    """The methods by which the code reads files, whatever they are methods of."""
    inner = [methods_in(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(METHODS & set(code.co_names)).union(*inner)
