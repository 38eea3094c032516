"""The code of files as syntax trees. Each file is parsed once in a process."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file, parents first."""
    return tuple(ast.walk(tree_of(path)))
