"""What a function that is followed may not use: it reads what no code version sees, or imports what cannot be followed."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
# The functions by which these packages read files, with whatever module of theirs they stand in.
OF_PACKAGES = re.compile(
    r"(pandas|polars|pyarrow|dask|geopandas|pyspark\.pandas)\.(\w+\.)*(read|scan|open)_\w+"
    r"|duckdb\.(connect|execute|from_\w+|query\w*|read_\w+|sql)"
)
METHODS = {"read_text", "read_bytes"}
# A session's own, and those of what its `read` returns.
OF_SESSION = {"catalog", "read", "readStream", "sql", "table"}
OF_SPARK_READER = {
    "csv", "format", "jdbc", "json", "load", "option", "options", "orc", "parquet", "schema", "table", "text", "xml",
}  # fmt: skip


def methods_that_read(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The methods by which statements read files, whatever they are methods of."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield node.attr
        # Only a call: `open` is a column of many tables of prices.
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "open":
            yield "open"
        elif isinstance(node, ast.Attribute) and (way := _by_spark(node)):
            yield way


def _by_spark(node: ast.Attribute) -> str:
    """How an attribute is of a Spark session that reads: `rows.sparkSession.table`, `spark.read.csv`; "" if it is not."""
    of = getattr(node.value, "attr", getattr(node.value, "id", ""))
    by_reader = isinstance(node.value, ast.Attribute) and of in ("read", "readStream") and node.attr in OF_SPARK_READER
    return f"{of}.{node.attr}" if by_reader or (of in ("spark", "sparkSession") and node.attr in OF_SESSION) else ""


def readers_among(used: Iterable[str], imports: Mapping[str, Sequence[Sequence[str]]], defined: Iterable[str]) -> Iterator[str]:
    """Of the names that are used, those that stand for something that reads; `defined` are the module's own names."""
    own = set(defined)
    for name in used:
        first, *rest = name.split(".")
        for full in imports.get(first, () if first in own else ([first],)):
            names = [*full, *rest]
            yield from (reader for n in range(1, len(names) + 1) if _reads(reader := ".".join(names[:n])))
            if full[-1] in METHODS:
                yield ".".join(full)


def _reads(name: str) -> bool:
    return name in READERS or OF_PACKAGES.fullmatch(name) is not None
