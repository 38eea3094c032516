"""What the statements at the top of a module's file define and change."""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs of a statement at the top of a file when the file is imported: all but the bodies of functions."""
    yield node
    inner = (
        [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
        if isinstance(node, FUNCTIONS)
        else ast.iter_child_nodes(node)
    )
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
    """Each statement at the top of a file that changes a name by a call or through another name for it, and that name.

    Of a class that is called, or extended, any method may run; of what was made by calling it, too.
    """
    bodies = {name: nodes[0] for name, nodes in defined.items() if isinstance(nodes[0], (*FUNCTIONS, ast.ClassDef))}
    others = _other_names(each for node in tree.body for each in _at_import(node))
    makers = {
        target.id: {_root(call.func) for call in ast.walk(node.value) if isinstance(call, ast.Call)} & bodies.keys()
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in tree.body:
        decorators = [d for each in _at_import(node) for d in getattr(each, "decorator_list", ())]
        calls = [each for each in _at_import(node) if isinstance(each, ast.Call)]
        given = [argument for call in calls for argument in _given(call)]
        # A class may be entered into a register by the class that it extends, or by its metaclass.
        bases = [base for each in _at_import(node) if isinstance(each, ast.ClassDef) for base in _bases(each)]
        named = {_root(each) for each in (*(call.func for call in calls), *decorators, *given, *bases)}
        items = {_root(each) for each in _at_import(node) if isinstance(each, ast.Attribute | ast.Subscript) and _stored(each)}
        changed = named | _originals(named | items, others)
        run = {body for name in changed for body in ({name} & bodies.keys() or makers.get(name, set()))}
        changed = {name for name in changed if not isinstance(bodies.get(name), FUNCTIONS)}
        for name in changed | {each for body in run for each in _changed_by(body, bodies)}:
            if name in defined and node not in defined[name]:
                yield node, name


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _bases(node: ast.ClassDef) -> list[ast.expr]:
    return [*node.bases, *(keyword.value for keyword in node.keywords)]


def _other_names(nodes: Iterable[ast.AST]) -> dict[str, set[str]]:
    """The names that each name may be another name for: what is assigned to it, looped over, or its default."""
    others: dict[str, set[str]] = {}
    for node in nodes:
        bindings: list[tuple[ast.AST, list[ast.AST]]] = []
        if isinstance(node, ast.Assign):
            bindings = [(target, [node.value]) for target in node.targets]
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
            bindings = [(node.target, [node.value])]
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            bindings = [(node.target, _parts(node.iter))]
        elif isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            with_default = [*zip(positional[len(positional) - len(node.defaults) :], node.defaults, strict=True)]
            with_default += [(arg, value) for arg, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value]
            bindings = [(ast.Name(arg.arg), [value]) for arg, value in with_default]
        for target, values in bindings:
            roots = {_root(value) for value in values if not isinstance(value, ast.Call)} - {""}
            for name in (each.id for each in ast.walk(target) if isinstance(each, ast.Name)):
                others.setdefault(name, set()).update(roots)
    return others


def _parts(looped: ast.expr) -> list[ast.AST]:
    """What an expression that is looped over may give: itself, what it lists, and what functions such as `zip` are given."""
    return [each for each in ast.walk(looped) if isinstance(each, ast.Name)]


def _originals(names: Collection[str], others: Mapping[str, Collection[str]]) -> set[str]:
    """What these names are other names for, directly or not."""
    originals: set[str] = set()
    pending = list(names)
    while pending:
        new = set(others.get(pending.pop(), ())) - originals
        originals |= new
        pending += new
    return originals


def _changed_by(name: str, bodies: Mapping[str, ast.AST], above: frozenset[str] = frozenset()) -> set[str]:
    """The names that a function, or any method of a class, assigns, of which it sets an item or an attribute, whose methods it
    calls, or that it gives to another."""
    body, above = bodies[name], above | {name}
    calls = [n for n in ast.walk(body) if isinstance(n, ast.Call)]
    changed = {_root(call.func) for call in calls if isinstance(call.func, ast.Attribute)}
    changed |= {_root(argument) for call in calls for argument in _given(call)}
    changed |= {_root(n) for n in ast.walk(body) if isinstance(n, ast.Attribute | ast.Subscript) and _stored(n)}
    changed |= {each for n in ast.walk(body) if isinstance(n, ast.Global) for each in n.names}
    changed |= _originals(changed, _other_names(ast.walk(body)))
    run = {_root(call.func) for call in calls} | {
        _root(base) for base in (_bases(body) if isinstance(body, ast.ClassDef) else ())
    }
    for called in run & bodies.keys() - above:
        changed |= _changed_by(called, bodies, above)
    return changed


def _root(node: ast.AST) -> str:
    """The name that an expression like `a.b["c"](d)` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
