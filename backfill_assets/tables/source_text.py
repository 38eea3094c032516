"""The source text of a module by top-level name, without comments, docstrings and layout. Nothing is imported.

The text of a name is every statement at the top of its file that defines or changes it: an assignment, the `if`, `try`, `with`
or `for` that it stands in, `NAME[...] = ...`, `NAME.append(...)`, and what a function or decorator called there adds to it.
What `@table` declares of a function is no part of its text: `NAME@` has all of it, and `NAME@columns` one argument.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from backfill_assets.tables.changes import bound, changes
from backfill_assets.tables.module_files import file_of
from backfill_assets.tables.outside import methods_that_read
from backfill_assets.tables.syntax import Stripped, declarers, imported_names, names_used

Definition = tuple[str, str]  # a module, and a name at the top of it

NUMBERS = (bool, int, float, complex, Decimal, date, datetime, time, timedelta)


@dataclass(frozen=True)
class ModuleSource:
    """What counts of a module: by top-level name its text, the names it uses and the methods by which it reads files.

    And what imported names stand for.
    """

    texts: dict[str, str]
    used: dict[str, frozenset[str]]
    methods: dict[str, frozenset[str]]
    imports: dict[str, list[list[str]]]


def source_of(module: str) -> ModuleSource:
    """Read a module's file. Raises ValueError if it has none."""
    path = file_of(module)
    if path is None:
        raise ValueError(f"the source of {module} cannot be read; give its tables a version by hand: version=...")
    return parsed(module, path)


# By the path too: modules of two projects may have the same name.
@lru_cache(maxsize=256)
def parsed(module: str, path: Path) -> ModuleSource:
    parsed_file = ast.parse(path.read_bytes())
    stripped = Stripped(declarers(parsed_file))
    tree = stripped.visit(parsed_file)
    statements: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in bound(node):
            statements.setdefault(name, []).append(node)
    for node, name in changes(tree, statements):
        if node not in statements[name]:
            statements[name].append(node)
    imports: dict[str, list[list[str]]] = {}
    for name, full in imported_names(tree, module, package=path.name == "__init__.py"):
        imports.setdefault(name, []).append(full)
    unparsed = {name: "\n".join(map(ast.unparse, nodes)) for name, nodes in statements.items()}
    unparsed |= {name: "\n".join(map(ast.unparse, nodes)) for name, nodes in _declarations(stripped.declared).items()}
    texts = unparsed | {name: text for name, nodes in statements.items() if (text := _literal(nodes))}
    known = statements.keys() | imports.keys()
    used, methods = {}, {}
    for name, text in unparsed.items():
        nodes = list(ast.walk(ast.parse(text)))
        used[name] = frozenset(names_used(text, nodes, known))
        methods[name] = frozenset(methods_that_read(nodes))
    return ModuleSource(texts, used, methods, imports)


def _declarations(declared: Mapping[str, Sequence[ast.expr]]) -> dict[str, list[ast.expr]]:
    """What `@table` declares of each function: everything, and each argument by its name."""
    arguments: dict[str, list[ast.expr]] = {}
    for name, decorators in declared.items():
        arguments[declaration_of(name)] = list(decorators)
        for keyword in (k for each in decorators if isinstance(each, ast.Call) for k in each.keywords):
            arguments.setdefault(declaration_of(name, keyword.arg or ""), []).append(keyword.value)
    return arguments


def declaration_of(name: str, argument: str = "") -> str:
    return f"{name}@{argument}"


def _literal(nodes: Sequence[ast.stmt]) -> str:
    """The value of a constant that is written out; so it reads the same before its module is loaded."""
    node = nodes[0]
    try:
        written_out = len(nodes) == 1 and isinstance(node, ast.Assign | ast.AnnAssign) and node.value
        return plain(ast.literal_eval(written_out)) if written_out else ""
    except (ValueError, TypeError):
        return ""


def plain(value: Any) -> str:
    """Plain data as text, the same in every process; an empty text for anything else."""
    kind = type(value)  # exactly: what is derived from these (an Enum, a NamedTuple) has code of its own
    if kind in (*NUMBERS, str, bytes):
        return repr(value)
    if kind is re.Pattern:
        return f"re.compile({value.pattern!r}, {value.flags})"
    if kind is dict:
        pairs = [(plain(k), plain(v)) for k, v in value.items()]
        return "" if any("" in pair for pair in pairs) else f"{{{', '.join(f'{k}: {v}' for k, v in pairs)}}}"
    if kind in (list, tuple, set, frozenset):
        items = [plain(item) for item in value]
        ordered = sorted(items) if kind in (set, frozenset) else items
        return "" if "" in items else f"{kind.__name__}({', '.join(ordered)})"
    return ""
