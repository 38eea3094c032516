"""What the statements at the top of a module's file define and change."""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs of a statement at the top of a file when the file is imported: all but the bodies of functions."""
    yield node
    inner = [*node.decorator_list, *node.args.defaults] if isinstance(node, FUNCTIONS) else ast.iter_child_nodes(node)
    for child in inner:
        yield from _at_import(child)


def bound(node: ast.stmt) -> set[str]:
    """The names that a statement at the top of a file defines, or of which it sets or deletes an item or an attribute."""
    if isinstance(node, ast.ClassDef):
        return {node.name}
    names = {each.name for each in _at_import(node) if isinstance(each, (*FUNCTIONS, ast.ClassDef))}
    names |= {each.name for each in _at_import(node) if isinstance(each, ast.ExceptHandler) and each.name}
    return names | {root for each in _at_import(node) if _stored(each) and (root := _root(each))}


def _stored(node: ast.AST) -> bool:
    """Whether a name is assigned, or an item or an attribute is set or deleted."""
    context = getattr(node, "ctx", None)
    return isinstance(context, ast.Store) or (isinstance(context, ast.Del) and not isinstance(node, ast.Name))


def changes(tree: ast.Module, defined: Mapping[str, Sequence[ast.stmt]]) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement at the top of a file that changes a name by a call or through another name for it, and that name."""
    aliases = {
        target.id: node.value.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    functions = {name: nodes[0] for name, nodes in defined.items() if isinstance(nodes[0], FUNCTIONS)}
    for node in tree.body:
        decorators = [d for each in _at_import(node) for d in getattr(each, "decorator_list", ())]
        calls = [each for each in _at_import(node) if isinstance(each, ast.Call)]
        given = [argument for call in calls for argument in (*call.args, *(keyword.value for keyword in call.keywords))]
        # A class may be entered into a register by the class that it extends.
        bases = [base for each in _at_import(node) if isinstance(each, ast.ClassDef) for base in each.bases]
        named = {_root(each) for each in (*(call.func for call in calls), *decorators, *given, *bases)}
        items = {_root(each) for each in _at_import(node) if isinstance(each, ast.Attribute | ast.Subscript) and _stored(each)}
        for name in named | _originals(named | items, aliases):
            if name in functions:
                yield from ((node, changed) for changed in _changed_by(name, functions) if changed in defined)
            elif name in defined and node not in defined[name]:
                yield node, name


def _originals(names: Collection[str], aliases: Mapping[str, str]) -> set[str]:
    """What these names are other names for, directly or not."""
    originals: set[str] = set()
    pending = list(names)
    while pending:
        original = aliases.get(pending.pop(), "")
        if original and original not in originals:
            originals.add(original)
            pending.append(original)
    return originals


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
