"""Print how many tokens of code the package and the tests have.

Comments, docstrings, layout, commas and parentheses are not counted, so formatting changes nothing.
`python .github/code_size.py [REVISION]` counts a revision of git, or else the files as they are.
"""

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

NOT_COUNTED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def tokens_of(source: str) -> int:
    """The tokens of code in the text of one Python file."""
    docstrings = {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node) is not None
    }
    return sum(
        token.type not in NOT_COUNTED
        and token.string not in {",", "(", ")"}
        and token.start not in docstrings
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
    )


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def size_of(folder: str, revision: str = "") -> int:
    """The tokens of all tracked Python files below a folder."""
    names = git("ls-tree", "-r", "--name-only", revision or "HEAD", folder).split()
    modules = [name for name in names if name.endswith(".py")]
    if revision:
        return sum(tokens_of(git("show", f"{revision}:{name}")) for name in modules)
    return sum(tokens_of(Path(name).read_text(encoding="utf-8")) for name in modules)


if __name__ == "__main__":
    revision = sys.argv[1] if len(sys.argv) > 1 else ""
    for folder in ("backfill_assets", "tests"):
        print(f"{folder}: {size_of(folder, revision):,} tokens")
