"""What the statements of a module's file use and import, and what of them does not count."""

import ast
import symtable
from collections.abc import Collection, Iterator, Sequence

PACKAGE = __name__.partition(".")[0]
VALUE = "*"  # behind a name that is used otherwise than by calling it


class Stripped(ast.NodeTransformer):
    """Drops docstrings, and `@table(...)`, which declares something about a function without changing it; `declared` keeps it.

    Annotations count, since others read them while running (dataclasses, pandas functions): but not those of a table's own
    function, nor of a function's variables, which nobody reads.
    """

    def __init__(self, declarers: Collection[str]) -> None:
        self.declarers, self.within = declarers, False
        self.declared: dict[str, list[ast.expr]] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        decorators = [d for d in node.decorator_list if not self._declares(d)]
        if decorators != node.decorator_list:
            self.declared.setdefault(node.name, []).extend(d for d in node.decorator_list if d not in decorators)
            node.decorator_list, node.returns = decorators, None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        outer, self.within = self.within, True
        stripped = self._without_docstring(node)
        self.within = outer
        return stripped

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self.within = self.within, False
        stripped = self._without_docstring(node)
        self.within = outer
        return stripped

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if self.within:
            node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def _declares(self, decorator: ast.expr) -> bool:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        return ".".join(_chain(called)) in self.declarers

    def _without_docstring(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


def declarers(tree: ast.Module) -> set[str]:
    """The names by which a file calls this package's `table`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == PACKAGE:
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "table"}
        elif isinstance(node, ast.Import):
            names |= {f"{alias.asname or alias.name}.table" for alias in node.names if alias.name.partition(".")[0] == PACKAGE}
    return names


def names_used(text: str, nodes: Collection[ast.AST], known: Collection[str]) -> Iterator[str]:
    """The names from outside that statements use, with their attributes: `name`, `module.name`.

    Behind one that is not called stands `.*`. `nodes` are all of the text; `known` are the names that the module defines or
    imports.
    """
    outside = set(_globals(symtable.symtable(text, "", "exec"), known))
    within = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    chains = [_chain(node, () if id(node) in called else (VALUE,)) for node in nodes if id(node) not in within]
    yield from {".".join(chain) for chain in chains if chain and chain[0] in outside}


def _chain(node: ast.AST, end: Sequence[str] = ()) -> list[str]:
    """`a.b.c` as its names, with those of `end` after them; nothing for anything else."""
    if isinstance(node, ast.Name):
        return [node.id, *end]
    return _chain(node.value, (node.attr, *end)) if isinstance(node, ast.Attribute) else []


def _globals(scope: symtable.SymbolTable, known: Collection[str]) -> Iterator[str]:
    top, in_class = scope.get_type() == "module", scope.get_type() == "class"
    for symbol in scope.get_symbols():
        # `WEEK = WEEK + 1` in a class reads the module's WEEK.
        read_first = in_class and symbol.get_name() in known
        if symbol.is_referenced() and (top or read_first or symbol.is_global() or symbol.is_imported()):
            yield symbol.get_name()
    for child in scope.get_children():
        yield from _globals(child, known)


def imported_names(tree: ast.Module, module: str, *, package: bool) -> Iterator[tuple[str, list[str]]]:
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
