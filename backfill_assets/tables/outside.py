"""What a function that is followed may not use: it reads what no code version sees, or imports what cannot be followed."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

READERS = {
    "__import__",
    "bz2.open",
    "codecs.open",
    "gzip.open",
    "importlib.import_module",
    "io.open",
    "lzma.open",
    "open",
    "os.environ",
    "os.environb",
    "os.getenv",
    "os.getenvb",
    "os.open",
    "pkgutil.get_data",
}
METHODS = {"read_text", "read_bytes"}


def methods_that_read(text: str) -> Iterator[str]:
    """The methods by which statements read files, whatever they are methods of."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield node.attr
        # Only a call: `open` is a column of many tables of prices.
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "open":
            yield "open"


def readers_among(used: Iterable[str], imports: Mapping[str, Sequence[Sequence[str]]], defined: Iterable[str]) -> Iterator[str]:
    """Of the names that are used, those that stand for something that reads; `defined` are the module's own names."""
    own = set(defined)
    for name in used:
        first, *rest = name.split(".")
        for full in imports.get(first, () if first in own else ([first],)):
            yield from (reader for n in (1, 2) if (reader := ".".join([*full, *rest][:n])) in READERS)
            if full[-1] in METHODS:
                yield ".".join(full)
