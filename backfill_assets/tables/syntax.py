"""What the statements of a module's file define, change, use and import."""

import ast
import symtable
from collections.abc import Collection, Iterator, Mapping, Sequence

PACKAGE = __name__.partition(".")[0]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Stripped(ast.NodeTransformer):
    """Drops docstrings, and `@table(...)`, which declares something about a function without changing it.

    Annotations count, since others read them while running (dataclasses, pandas functions): but not those of a table's own
    function, nor of a function's variables, which nobody reads.
    """

    def __init__(self, declarers: Collection[str]) -> None:
        self.declarers, self.within = declarers, False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        decorators = [d for d in node.decorator_list if not self._declares(d)]
        if decorators != node.decorator_list:
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


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs of a statement at the top of a file when the file is imported: all but the bodies of functions."""
    yield node
    inner = [*node.decorator_list, *node.args.defaults] if isinstance(node, FUNCTIONS) else ast.iter_child_nodes(node)
    for child in inner:
        yield from _at_import(child)


def bound(node: ast.stmt) -> set[str]:
    """The names that a statement at the top of a file defines, or of which it sets an item or an attribute."""
    if isinstance(node, ast.ClassDef):
        return {node.name}
    names = {each.name for each in _at_import(node) if isinstance(each, (*FUNCTIONS, ast.ClassDef))}
    names |= {each.name for each in _at_import(node) if isinstance(each, ast.ExceptHandler) and each.name}
    return names | {root for each in _at_import(node) if _stored(each) and (root := _root(each))}


def _stored(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def changes(tree: ast.Module, defined: Mapping[str, Sequence[ast.stmt]]) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement at the top of a file that changes a name by a call, and that name."""
    functions = {name: nodes[0] for name, nodes in defined.items() if isinstance(nodes[0], FUNCTIONS)}
    for node in tree.body:
        decorators = [d for each in _at_import(node) for d in getattr(each, "decorator_list", ())]
        calls = [each for each in _at_import(node) if isinstance(each, ast.Call)]
        given = [argument for call in calls for argument in (*call.args, *(keyword.value for keyword in call.keywords))]
        # A class may be entered into a register by the class that it extends.
        bases = [base for each in _at_import(node) if isinstance(each, ast.ClassDef) for base in each.bases]
        for name in {_root(each) for each in (*(call.func for call in calls), *decorators, *given, *bases)}:
            if name in functions:
                yield from ((node, changed) for changed in _changed_by(name, functions) if changed in defined)
            elif name in defined and node not in defined[name]:
                yield node, name


def _changed_by(name: str, functions: Mapping[str, ast.AST], above: frozenset[str] = frozenset()) -> set[str]:
    """The names that a function assigns, of which it sets an item or an attribute, or whose methods it calls."""
    function, above = functions[name], above | {name}
    calls = [n.func for n in ast.walk(function) if isinstance(n, ast.Call)]
    changed = {_root(func) for func in calls if isinstance(func, ast.Attribute)}
    changed |= {_root(n) for n in ast.walk(function) if isinstance(n, ast.Attribute | ast.Subscript) and _stored(n)}
    changed |= {each for n in ast.walk(function) if isinstance(n, ast.Global) for each in n.names}
    for called in {_root(func) for func in calls} & functions.keys() - above:
        changed |= _changed_by(called, functions, above)
    return changed


def _root(node: ast.AST) -> str:
    """The name that an expression like `a.b["c"](d)` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def names_used(text: str) -> Iterator[str]:
    """The names from outside that statements use, with their attributes: `name`, `module.name`."""
    outside, tree = set(_globals(symtable.symtable(text, "", "exec"))), ast.parse(text)
    within = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    chains = [_chain(node) for node in ast.walk(tree) if id(node) not in within]
    yield from {".".join(chain) for chain in chains if chain and chain[0] in outside}


def _chain(node: ast.AST) -> list[str]:
    """`a.b.c` as its names; nothing for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    names = _chain(node.value) if isinstance(node, ast.Attribute) else []
    return [*names, node.attr] if names and isinstance(node, ast.Attribute) else []


def _globals(scope: symtable.SymbolTable) -> Iterator[str]:
    top = scope.get_type() == "module"
    yield from (s.get_name() for s in scope.get_symbols() if s.is_referenced() and (top or s.is_global() or s.is_imported()))
    for child in scope.get_children():
        yield from _globals(child)


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
