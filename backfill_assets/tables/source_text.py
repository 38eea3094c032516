"""The source text of a module by top-level name, without comments, docstrings, annotations and layout. Nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

Definition = tuple[str, str]  # a module, and a name at the top of it

ATOMS = (bool, int, float, complex, str, bytes, date, time, timedelta, Decimal, re.Pattern)  # a datetime is a date


@dataclass(frozen=True)
class ModuleSource:
    """What counts of a module: the text of each top-level name, the names that it uses, and what imported names stand for."""

    texts: dict[str, str]
    used: dict[str, frozenset[str]]
    imports: dict[str, list[str]]


def source_of(module: str) -> ModuleSource:
    """Read a module's file. Raises ValueError if it has none."""
    path = file_of(module)
    if path is None:
        raise ValueError(f"the source of {module} cannot be read; give its tables a version by hand: version=...")
    return parsed(module, path)


# By the path too: modules of two projects may have the same name.
@lru_cache(maxsize=256)
def parsed(module: str, path: Path) -> ModuleSource:
    tree = _Stripped().visit(ast.parse(path.read_text()))
    texts = {name: _literal(node) or ast.unparse(node) for node in tree.body for name in _names(node)}
    used = {name: frozenset(_used(text)) for name, text in texts.items()}
    return ModuleSource(texts, used, dict(_imports(tree, module, package=path.name == "__init__.py")))


def _literal(node: ast.stmt) -> str:
    """The value of a constant that is written out; so it reads the same before its module is loaded."""
    try:
        return plain(ast.literal_eval(node.value)) if isinstance(node, ast.Assign | ast.AnnAssign) and node.value else ""
    except (ValueError, TypeError):
        return ""


def file_of(module: str) -> Path | None:
    """The source file of a module, found without importing anything."""
    package, *within = module.split(".")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not spec.submodule_search_locations:
        return Path(spec.origin) if spec.origin and not within else None
    path = Path(spec.submodule_search_locations[0]).joinpath(*within)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


class _Stripped(ast.NodeTransformer):
    """Drops docstrings, annotations, and `@table(...)`, which declares something about a function without changing it."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.decorator_list = [d for d in node.decorator_list if not _is_table(d)]
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._without_docstring(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def _without_docstring(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


def _is_table(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "id", getattr(called, "attr", "")) == "table"


def _names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top of a file defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))


def _used(text: str) -> Iterator[str]:
    """The names from outside that a statement uses, with their attributes: `name`, `module.name`."""
    outside = set(_globals(symtable.symtable(text, "", "exec")))
    dotted = {".".join(chain) for node in ast.walk(ast.parse(text)) if (chain := _chain(node)) and chain[0] in outside}
    yield from outside | dotted


def _chain(node: ast.AST) -> list[str]:
    """`a.b.c` as its names; nothing for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    names = _chain(node.value) if isinstance(node, ast.Attribute) else []
    return [*names, node.attr] if names and isinstance(node, ast.Attribute) else []


def _globals(scope: symtable.SymbolTable) -> Iterator[str]:
    top = scope.get_type() == "module"
    yield from (s.get_name() for s in scope.get_symbols() if s.is_referenced() and (top or s.is_global()))
    for child in scope.get_children():
        yield from _globals(child)


def _imports(tree: ast.Module, module: str, *, package: bool) -> Iterator[tuple[str, list[str]]]:
    """Each imported name, and the full dotted name that it stands for."""
    names = module.split(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                full = alias.name.split(".")
                yield (alias.asname, full) if alias.asname else (full[0], full[:1])
        elif isinstance(node, ast.ImportFrom):
            parent = names[: len(names) - node.level + package] if node.level else []
            origin = [*parent, *(node.module.split(".") if node.module else [])]
            yield from ((alias.asname or alias.name, [*origin, alias.name]) for alias in node.names)


def plain(value: Any) -> str:
    """Plain data as text, the same in every process; an empty text for anything else."""
    if isinstance(value, ATOMS):
        return repr(value)
    if isinstance(value, dict):
        pairs = [(plain(k), plain(v)) for k, v in value.items()]
        return "" if any("" in pair for pair in pairs) else f"{{{', '.join(f'{k}: {v}' for k, v in pairs)}}}"
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(item) for item in value]
        ordered = sorted(items) if isinstance(value, set | frozenset) else items
        return "" if "" in items else f"{type(value).__name__}({', '.join(ordered)})"
    return ""
