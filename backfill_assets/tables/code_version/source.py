"""The source text of a module by top-level name, without comments, docstrings and layout.

Nothing is imported. The text of a name is every top-level statement of its file that defines it, or
that may change it during the import. The arguments of `@table` are not part of the text of its
function: `NAME@` has all arguments, and `NAME@columns` has one.
"""

import ast
import operator
import re
import symtable
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from backfill_assets.grouping import grouped
from backfill_assets.tables.code_version.modules import MAIN, PACKAGE, file_of

TopLevelName = tuple[str, str]  # a module, and a name at the top of it
# The full names of what a module imports, in parts, by the name that it gives them.
Imports = Mapping[str, Sequence[list[str]]]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NUMBERS = (bool, int, float, complex, Decimal, date, datetime, time, timedelta)
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_LARGEST_POWER = 64  # a larger number may take for ever
VALUE = "*"  # suffix of a name that is used as a value, not called

# Functions that read data outside a code version, or import modules that cannot be followed.
READERS = {
    "__import__",
    "bz2.open",
    "codecs.open",
    "delta.DeltaTable",
    "delta.tables.DeltaTable",
    "deltalake.DeltaTable",
    "gzip.open",
    "importlib.import_module",
    "importlib.resources.open_binary",
    "importlib.resources.open_text",
    "io.open",
    "lzma.open",
    "numpy.fromfile",
    "numpy.genfromtxt",
    "numpy.load",
    "numpy.loadtxt",
    "open",
    "os.environ",
    "os.environb",
    "os.getenv",
    "os.getenvb",
    "os.open",
    "pkgutil.get_data",
    "pyarrow.dataset.dataset",
    "sqlite3.connect",
    "urllib.request.urlopen",
}
# The functions with which these packages read files, in any of their modules.
READERS_OF_PACKAGES = re.compile(
    r"(pandas|polars|pyarrow|dask|geopandas|pyspark\.pandas)\.(\w+\.)*(read|scan|open)_\w+"
    r"|duckdb\.(connect|execute|from_\w+|query\w*|read_\w+|sql)"
)
READING_METHODS = {"read_text", "read_bytes"}
SESSION_READERS = {"catalog", "read", "readStream", "sql", "table"}
SPARK_READERS = {
    "csv", "format", "jdbc", "json", "load", "option", "options", "orc", "parquet", "schema",
    "table", "text", "xml",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Statement:
    """A part of a file, with cached results: each costs a walk through the part."""

    node: ast.AST

    @cached_property
    def source(self) -> str:
        return ast.unparse(self.node)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.node))

    @cached_property
    def symbols(self) -> symtable.SymbolTable:
        return symtable.symtable(self.source, "", "exec")


@dataclass(frozen=True)
class Definition:
    """A top-level name of a module.

    text             the value of a constant that is written out, or the source text
    used             the names from outside that it uses
    reading_methods  the methods by which it reads files, on any object
    """

    text: str
    used: frozenset[str]
    reading_methods: frozenset[str]

    @classmethod
    def of(cls, statements: Sequence[Statement], own_names: Collection[str]) -> "Definition":
        """`own_names` are all names that the module binds."""
        literal = _literal([statement.node for statement in statements])
        return cls(
            literal or "\n".join(statement.source for statement in statements),
            frozenset(name for part in statements for name in _names_used(part, own_names)),
            frozenset(name for part in statements for name in _methods_that_read(part.nodes)),
        )


@dataclass(frozen=True)
class ModuleSource:
    """The definitions of a module by top-level name, and the full names of what it imports."""

    definitions: Mapping[str, Definition]
    imports: Imports


def source_of(module: str) -> ModuleSource:
    """Read a module's file. Raises ValueError if it has none."""
    path = file_of(module)
    if not path and module == MAIN:
        raise ValueError(
            "a table that is declared in a notebook or at a prompt has no file to read its code"
            " from; write it in a module, or give it a version by hand: version=..."
        )
    if not path:
        raise ValueError(
            f"the source of {module} cannot be read; give its tables a version by hand: version=..."
        )
    return parsed(module, path)


# By the path too, because modules of two projects may have the same name.
@lru_cache(maxsize=256)
def parsed(module: str, path: str) -> ModuleSource:
    """Read what a module's file defines and imports."""
    tree = ast.parse(Path(path).read_bytes())
    package = path.endswith("/__init__.py")
    imports = grouped(_imported_names(tree, module, package=package))
    stripped = _Stripped(imports)
    stripped.visit(tree)
    statements = _statements_by_name(tree, imports)
    own_names = {*statements, *imports}
    parts = {**statements, **_declarations(stripped.declared)}
    definitions = {name: Definition.of(nodes, own_names) for name, nodes in parts.items()}
    return ModuleSource(definitions, imports)


def declaration_of(name: str, argument: str = "") -> str:
    return f"{name}@{argument}"


def _declarations(declared: Mapping[str, Sequence[ast.expr]]) -> dict[str, list[Statement]]:
    """The arguments of `@table` for each function: all of them, and each by its name."""
    arguments: dict[str, list[Statement]] = {}
    for name, decorators in declared.items():
        arguments[declaration_of(name)] = [Statement(decorator) for decorator in decorators]
        calls = [decorator for decorator in decorators if isinstance(decorator, ast.Call)]
        for keyword in (keyword for call in calls for keyword in call.keywords):
            argument = declaration_of(name, keyword.arg or "")
            arguments.setdefault(argument, []).append(Statement(keyword.value))
    return arguments


def _literal(nodes: Sequence[ast.AST]) -> str:
    """The value of a literal constant: the same before its module is loaded."""
    node = nodes[0]
    if len(nodes) > 1 or not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return ""
    try:
        return plain(_computed(node.value))
    except (ValueError, TypeError, ArithmeticError):
        return ""


def _computed(node: ast.AST) -> Any:
    """The value of a literal, or of arithmetic with numbers.

    Raises ValueError for other expressions.
    """
    if not isinstance(node, ast.BinOp) or type(node.op) not in _ARITHMETIC:
        return ast.literal_eval(node)
    left = _computed(node.left)
    right = _computed(node.right)
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise ValueError
    if isinstance(node.op, ast.Pow) and abs(right) > _LARGEST_POWER:
        raise ValueError
    return _ARITHMETIC[type(node.op)](left, right)


def plain(value: Any) -> str:
    """Plain data as text, the same in every process; "" for other values."""
    # Only these types themselves: derived types (an Enum, a NamedTuple) have their own code.
    kind = type(value)
    if kind in (*NUMBERS, str, bytes):
        return repr(value)
    if kind is re.Pattern:
        return f"re.compile({value.pattern!r}, {value.flags})"
    if kind is dict:
        pairs = [(plain(key), plain(item)) for key, item in value.items()]
        text = ", ".join(f"{key}: {item}" for key, item in pairs)
        return "" if any("" in pair for pair in pairs) else f"{{{text}}}"
    if kind in (list, tuple, set, frozenset):
        items = [plain(item) for item in value]
        ordered = sorted(items) if kind in (set, frozenset) else items
        return "" if "" in items else f"{kind.__name__}({', '.join(ordered)})"
    return ""


# Names that top-level statements of a file define, and names that they may change.


def _statements_by_name(tree: ast.Module, imports: Imports) -> dict[str, list[Statement]]:
    """The statements that define each name, then the statements that may change it.

    A statement that calls something, or sets an item or an attribute, during the import may change
    its arguments, and all names that these use, directly or not: a decorator can add a function to
    a registry, and so can a base class. A function that is only called does not change. Neither do
    arguments of `definitions(...)` and of Dagster's functions.
    """
    body = [Statement(node) for node in tree.body]
    statements = grouped((name, part) for part in body for name in _bound(part.node))
    functions = {name for name, parts in statements.items() if isinstance(parts[0].node, FUNCTIONS)}
    uses: dict[str, set[str]] = {}
    changes: dict[str, set[str]] = {}
    for name, parts in statements.items():
        nodes = [node for part in parts for node in part.nodes]
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        known = set().union(*map(_not_local, parts)) & statements.keys()
        uses[name] = _names(nodes) & known
        changes[name] = _names(node for node in nodes if id(node) not in called) & known
    for part in body:
        given = _names(_running(part.node, imports)) & statements.keys()
        changed = (given - functions).union(*(changes[name] for name in _closure(given, uses)))
        for name in changed:
            if part not in statements[name]:
                statements[name].append(part)
    return statements


def _closure(names: Iterable[str], uses: Mapping[str, set[str]]) -> set[str]:
    """These names, and all names that they use, directly or not."""
    reached = set[str]()
    pending = set(names)
    while pending:
        reached |= pending
        pending = set[str]().union(*(uses[name] for name in pending)) - reached
    return reached


def _bound(node: ast.AST) -> set[str]:
    """The names that a statement defines, and names whose items or attributes it sets."""
    parts = [node] if isinstance(node, ast.ClassDef) else _at_import(node)
    return {_bound_name(part) for part in parts} - {""}


def _bound_name(node: ast.AST) -> str:
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.ExceptHandler)):
        return node.name or ""
    return _root(node) if _is_stored(node) else ""


def _running(node: ast.AST, imports: Imports) -> Iterator[ast.AST]:
    """The parts of a statement that may change something during the import."""
    for part in _at_import(node):
        if isinstance(part, ast.Call) and _only_collects(part, imports):
            continue
        if isinstance(part, ast.Call) or (_is_stored(part) and not isinstance(part, ast.Name)):
            yield from ast.walk(part)
        for decorator in getattr(part, "decorator_list", ()):
            yield from ast.walk(decorator)
        if isinstance(part, ast.ClassDef):
            for base in (*part.bases, *part.keywords):
                yield from ast.walk(base)


def _only_collects(call: ast.Call, imports: Imports) -> bool:
    """True for `definitions` of this package and for Dagster's functions: these change nothing."""
    return any(
        full == [PACKAGE, "definitions"] or full[0] == "dagster"
        for full in _imported(call.func, imports)
    )


def _not_local(statement: Statement) -> set[str]:
    """The names in a statement, without those that are only local to its functions."""
    names: set[str] = set()
    scopes = [statement.symbols]
    while scopes:
        scope = scopes.pop()
        has_locals = scope.get_type() == "function"
        names |= {
            symbol.get_name()
            for symbol in scope.get_symbols()
            if not has_locals or symbol.is_global()
        }
        scopes += scope.get_children()
    return names


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement that run during the import: all except bodies of functions."""
    yield node
    inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, FUNCTIONS):
        defaults = [default for default in node.args.kw_defaults if default]
        inner = [*node.decorator_list, *node.args.defaults, *defaults]
    for child in inner:
        yield from _at_import(child)


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Global):
            names.update(node.names)
    return names


def _is_stored(node: ast.AST) -> bool:
    """True if a name is assigned, or an item or an attribute is set or deleted."""
    context = getattr(node, "ctx", None)
    is_deleted = isinstance(context, ast.Del) and not isinstance(node, ast.Name)
    return isinstance(context, ast.Store) or is_deleted


def _root(node: ast.AST) -> str:
    """The name that an expression like `a.b["c"](d)` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


# Names that statements use and import.


class _Stripped(ast.NodeTransformer):
    """Drops docstrings, and `@table(...)`, which only declares a function; `declared` has it.

    Annotations count, because other code reads them at run time (dataclasses, pandas functions).
    Annotations of a table's own function, and of variables in a function, do not count: no code
    reads them.
    """

    def __init__(self, imports: Imports) -> None:
        self.imports = imports
        self.in_function = False
        self.declared: dict[str, list[ast.expr]] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        declaring = [decorator for decorator in node.decorator_list if self._declares(decorator)]
        if declaring:
            self.declared.setdefault(node.name, []).extend(declaring)
            node.decorator_list = [d for d in node.decorator_list if d not in declaring]
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        return self._without_docstring(node, in_function=True)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._without_docstring(node, in_function=False)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if self.in_function:
            node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def _declares(self, decorator: ast.expr) -> bool:
        """True if a decorator is this package's `table`."""
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        names = _imported(called, self.imports)
        return any(full[0] == PACKAGE and full[-1] == "table" for full in names)

    def _without_docstring(
        self, node: ast.FunctionDef | ast.ClassDef, *, in_function: bool
    ) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        outer = self.in_function
        self.in_function = in_function
        stripped = self.generic_visit(node)
        self.in_function = outer
        return stripped


def _names_used(statement: Statement, own_names: Collection[str]) -> Iterator[str]:
    """The outside names that a statement uses, with attributes: `name`, `module.name`.

    A name that is used as a value, not called, ends with `.*`. `own_names` are the names that the
    module defines or imports.
    """
    outside = set(_globals(statement.symbols, own_names))
    within = {id(node.value) for node in statement.nodes if isinstance(node, ast.Attribute)}
    called = {id(node.func) for node in statement.nodes if isinstance(node, ast.Call)}
    for node in statement.nodes:
        chain = [] if id(node) in within else _chain(node)
        if chain and chain[0] in outside:
            yield ".".join(chain if id(node) in called else [*chain, VALUE])


def _imported(node: ast.AST, imports: Imports) -> list[list[str]]:
    """The full names for which `a.b.c` may stand."""
    first, *rest = _chain(node) or [""]
    return [[*full, *rest] for full in imports.get(first, ())]


def _chain(node: ast.AST) -> list[str]:
    """`a.b.c` as its names; empty for other expressions."""
    if isinstance(node, ast.Attribute) and (chain := _chain(node.value)):
        return [*chain, node.attr]
    return [node.id] if isinstance(node, ast.Name) else []


def _globals(scope: symtable.SymbolTable, own_names: Collection[str]) -> Iterator[str]:
    is_top = scope.get_type() == "module"
    for symbol in scope.get_symbols():
        # `WEEK = WEEK + 1` in a class reads the module's WEEK.
        read_first = scope.get_type() == "class" and symbol.get_name() in own_names
        from_outside = is_top or read_first or symbol.is_global() or symbol.is_imported()
        if symbol.is_referenced() and from_outside:
            yield symbol.get_name()
    for child in scope.get_children():
        yield from _globals(child, own_names)


def _imported_names(
    tree: ast.Module, module: str, *, package: bool
) -> Iterator[tuple[str, list[str]]]:
    """Each imported name, with the full dotted name for which it stands."""
    names = module.split(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                full = alias.name.split(".")
                yield (alias.asname, full) if alias.asname else (full[0], full[:1])
        elif isinstance(node, ast.ImportFrom):
            parent = names[: len(names) - node.level + package] if node.level else []
            origin = [*parent, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                yield alias.asname or alias.name, [*origin, alias.name]


# Reading data that is not part of a code version.


def _methods_that_read(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The methods by which statements read files, on any object."""
    for node in nodes:
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Attribute) and node.attr in READING_METHODS:
            yield node.attr
        # Only a call, because `open` is a column in many tables of prices.
        elif isinstance(called, ast.Attribute) and called.attr == "open":
            yield "open"
        elif isinstance(node, ast.Attribute) and (reader := _spark_reader(node)):
            yield reader


def _spark_reader(node: ast.Attribute) -> str:
    """A read of a Spark session, such as `spark.read.csv`; "" for other attributes."""
    owner = getattr(node.value, "attr", getattr(node.value, "id", ""))
    is_method = isinstance(node.value, ast.Attribute)
    by_reader = is_method and owner in ("read", "readStream") and node.attr in SPARK_READERS
    by_session = owner in ("spark", "sparkSession") and node.attr in SESSION_READERS
    return f"{owner}.{node.attr}" if by_reader or by_session else ""


def readers_among(used: Iterable[str], source: ModuleSource) -> Iterator[str]:
    """The names among those `used` in a module that stand for functions that read data."""
    for name in used:
        first, *rest = name.split(".")
        for full in source.imports.get(first, () if first in source.definitions else ([first],)):
            names = [*full, *rest]
            yield from filter(_reads, (".".join(names[: n + 1]) for n in range(len(names))))
            if full[-1] in READING_METHODS:
                yield ".".join(full)


def _reads(name: str) -> bool:
    return name in READERS or READERS_OF_PACKAGES.fullmatch(name) is not None
