"""Which modules a code version follows, and which statements change a name."""

import importlib
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from backfill_assets.tables.code_version.source import parsed
from backfill_assets.tables.code_version.version import code_version, definitions_used

MODULES = ("shop", "rates", "fast_rates", "prices")


def searched_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that begins the search path."""
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def version(folder: Path, **texts: str) -> str:
    """The version of `t` of the module `shop`; a text with a name like `shop__k` is of the module
    `k` of the package `shop`.
    """
    for name, text in texts.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        if "__" in name:
            path.parent.mkdir(exist_ok=True)
            (path.parent / "__init__.py").touch()
        path.write_text(dedent(text))
    importlib.invalidate_caches()
    parsed.cache_clear()
    return code_version("shop" if (folder / "shop.py").exists() else "shop.tables", "t")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    return searched_first(tmp_path, monkeypatch)


def test_a_module_beside_the_project_s_module_is_followed(folder):
    shop = "import rates\ndef t(x):\n    return rates.of(x)\n"
    before = version(folder, shop=shop, rates="def of(x):\n    return x * 2\n")
    assert version(folder, rates="def of(x):\n    return x * 3\n") != before


def test_a_module_beside_the_project_s_package_is_followed(folder):
    before = version(
        folder,
        shop__tables="from rates import of\ndef t(x):\n    return of(x)\n",
        rates="of = len\n",
    )
    assert version(folder, rates="of = max\n") != before


def test_a_folder_of_the_name_of_a_plain_module_holds_none_of_its_code(folder):
    (folder / "prices").mkdir()
    (folder / "prices" / "clean.py").write_text("other = 1\n")
    shop = "from prices import clean\ndef t(x):\n    return clean(x)\n"
    before = version(folder, shop=shop, prices="def clean(x):\n    return x * 2\n")
    assert version(folder, prices="def clean(x):\n    return x * 3\n") != before


def test_modules_of_installed_packages_are_other_projects(folder):
    shop = "import rates\ndef t(x):\n    return rates.of(x)\n"
    before = version(folder, shop=shop, rates="of = len\n")
    (folder / "rates-1.0.dist-info").mkdir()
    assert version(folder) != before
    assert list(definitions_used("shop", "t")) == ["shop:t"]


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        pytest.param(
            "WEEK = 7\nclass K:\n    WEEK = WEEK + 1\n",
            "WEEK = 7",
            "WEEK = 8",
            id="a name of a class read first",
        ),
        pytest.param(
            "K = {'a': 1, 'b': 2}\ndel K['a']\n", "del K['a']", "del K['b']", id="an item deleted"
        ),
        pytest.param("K = len\ndel K.a\n", "del K.a", "del K.b", id="an attribute deleted"),
        pytest.param(
            "K = [1]\nL = K\nL.append(2)\n",
            "append(2)",
            "append(3)",
            id="a method called by another name",
        ),
        pytest.param(
            "K = {}\nL = M = K\nM['a'] = 2\n", "= 2", "= 3", id="an item set by another name"
        ),
        pytest.param(
            "K = {}\nL = K\nM = L\ndel M['a']\n",
            "['a']",
            "['b']",
            id="an item deleted by the name of a name",
        ),
        pytest.param(
            "K = []\nL = K\nK = L\nL.append(2)\n",
            "append(2)",
            "append(3)",
            id="two names for each other",
        ),
        pytest.param(
            "class K: pass\nfor c in [K]: c.a = 2\n", "= 2", "= 3", id="an attribute set in a loop"
        ),
        pytest.param(
            "class K: pass\nfor n, c in zip([1], [K]): c.a = 2\n",
            "= 2",
            "= 3",
            id="in a loop over two lists",
        ),
        pytest.param(
            "class K: pass\ndef f(c=K): c.a = 2\nf()\n",
            "= 2",
            "= 3",
            id="set by the name of a parameter",
        ),
        pytest.param(
            "class K: pass\ndef f(*, c=K): c.a = 2\nf()\n",
            "= 2",
            "= 3",
            id="of one that is only named",
        ),
        pytest.param(
            "class K: pass\ndef f():\n    for c in (K,): c.a = 2\nf()\n",
            "= 2",
            "= 3",
            id="in a loop of a function",
        ),
        pytest.param(
            "class K: pass\ndef g(c): c.a = 2\ndef f(): g(K)\nf()\n",
            "= 2",
            "= 3",
            id="given on by a function",
        ),
        pytest.param(
            "class K: pass\ndef f(): setattr(K, 'a', 2)\nf()\n",
            "2)",
            "3)",
            id="setattr in a function",
        ),
        pytest.param(
            "K = {}\nclass T:\n    def go(self): K['a'] = 2\nT().go()\n",
            "= 2",
            "= 3",
            id="a method called",
        ),
        pytest.param(
            "K = {}\nclass T:\n    def go(self): K['a'] = 2\nT.go(0)\n",
            "= 2",
            "= 3",
            id="a method of a class called",
        ),
        pytest.param(
            "K = {}\nclass T:\n    def go(self, n): K['a'] = n\nX = T()\nX.go(2)\n",
            "go(2)",
            "go(3)",
            id="of a made object called",
        ),
        pytest.param(
            "K = {}\nclass T:\n    def go(self): K['a'] = 2\nclass U(T): pass\nU().go()\n",
            "= 2",
            "= 3",
            id="an inherited one",
        ),
        pytest.param(
            "K = []\nclass T:\n    def __call__(self, f): K.append(f)\nadd = T()\n@add\ndef f():\n "
            "   return 2\n",
            "2",
            "3",
            id="a function added to a registry by an object",
        ),
        pytest.param(
            "K = []\nclass T:\n    def __init_subclass__(cls): K.append(cls)\nclass U(T):\n    a"
            " = 2\n",
            "= 2",
            "= 3",
            id="a class added to a registry by the one that it extends",
        ),
        pytest.param(
            "K = []\nclass T:\n    def __init_subclass__(cls): K.append(cls)\nclass U(T):"
            " pass\nclass V(U):\n    a = 2\n",
            "= 2",
            "= 3",
            id="by the one that this one extends",
        ),
        pytest.param(
            "K = []\nclass T(type):\n    def __init__(cls, *_): K.append(cls)\nclass"
            " U(metaclass=T):\n    a = 2\n",
            "= 2",
            "= 3",
            id="a class added to a registry by its metaclass",
        ),
    ],
)
def test_a_statement_that_changes_a_name_counts(folder, text, old, new):
    shop = f"{text}def t(x):\n    return K\n"
    before = version(folder, shop=shop)
    assert version(folder, shop=shop.replace(old, new)) != before


def test_another_name_for_a_constant_leaves_its_version(folder):
    shop = "K = [1]\ndef t(x):\n    return K\n"
    assert version(folder, shop=shop) == version(folder, shop=f"{shop}L = K\n")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "try:\n    from .fast import f\nexcept ImportError:\n    from .slow import f\n",
            id="a function",
        ),
        pytest.param(
            "try:\n    from .fast import f\nexcept ImportError:\n    from .slow import f as f\n",
            id="renamed",
        ),
        pytest.param(
            "try:\n    from . import fast as slow\nexcept ImportError:\n    from . import slow\nf ="
            " slow.f\n",
            id="a module",
        ),
        pytest.param(
            "try:\n    from fast_rates import f\nexcept ImportError:\n    from .slow import f\n",
            id="one beside it",
        ),
    ],
)
def test_of_two_imports_the_module_that_is_there_counts(folder, text):
    tables = f"{text}def t(x):\n    return f(x)\n"
    before = version(folder, shop__tables=tables, shop__slow="def f(x):\n    return x * 2\n")
    assert version(folder, shop__slow="def f(x):\n    return x * 3\n") != before


def test_a_file_may_begin_with_a_byte_order_mark(folder):
    text = "def t(x):\n    return 2\n"
    assert version(folder, shop=f"\ufeff{text}") == version(folder, shop=text)


RAW = """
from backfill_assets import SliceDays, table
RULES = []
@table(
    "raw/lines", partition_by="day", columns="day DATE, a STRING",
    reads={"days": SliceDays()}, rules=RULES, measures={"n": "1"}
)
def raw(days):
    return days
"""
COLUMNS = ("a STRING", "a INT")
MEASURES = ('"n": "1"', '"n": "2"')
OWN_RULES = ("RULES = []", "RULES = [len]")


@pytest.mark.parametrize(
    ("returned", "changed", "counts"),
    [
        pytest.param("raw.columns", COLUMNS, True, id="the columns, where they are used"),
        pytest.param("raw.measures['n']", MEASURES, True, id="a measure, where it is used"),
        pytest.param("len(raw.rules)", OWN_RULES, True, id="what an argument uses"),
        pytest.param(
            "str(raw)", COLUMNS, True, id="everything, where the table is used as a value"
        ),
        pytest.param("raw.columns", MEASURES, False, id="not an argument that is not used"),
        pytest.param("raw(x)", COLUMNS, False, id="nothing, where the table is called"),
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the same file", "in another module"])
def test_what_is_declared_of_another_table_counts_where_it_is_used(
    folder, returned, changed, counts, elsewhere
):
    def of(raw: str) -> str:
        t = f"def t(x):\n    return {returned}\n"
        return (
            version(folder, shop=f"from rates import raw\n{t}", rates=raw)
            if elsewhere
            else version(folder, shop=raw + t)
        )

    before = of(RAW)
    assert (of(RAW.replace(*changed)) != before) == counts


@pytest.mark.parametrize(
    ("above", "returned"),
    [
        pytest.param("", "open('q.sql').read()", id="a file opened"),
        pytest.param("from pathlib import Path\n", "Path('q').read_text()", id="a text file"),
        pytest.param("from pathlib import Path\n", "Path('q').read_bytes()", id="a file of bytes"),
        pytest.param("from pathlib import Path\n", "Path('q').open().read()", id="a path opened"),
        pytest.param("from gzip import open as unzip\n", "unzip('q')", id="a packed file"),
        pytest.param("import os\n", "os.environ['K']", id="an environment variable"),
        pytest.param(
            "from os import getenv as of\n", "of('K')", id="an environment variable by another name"
        ),
        pytest.param("import importlib as i\n", "i.import_module('k').K", id="a computed import"),
        pytest.param("", "__import__('k').K", id="an import by a function"),
        pytest.param("import os\nK = os.environ['K']\n", "K", id="a text from the environment"),
        pytest.param(
            "import os\ndef k():\n    return os.getenv('K')\n", "k()", id="a function called"
        ),
        pytest.param("with open('q') as f:\n    K = f.read()\n", "K", id="a text read at import"),
        pytest.param(
            "K = []\nfor n in open('q'):\n    K.append(n)\n", "K", id="a list filled from a file"
        ),
        pytest.param("import pandas as pd\nK = pd.read_csv('q')\n", "K", id="a file by pandas"),
        pytest.param(
            "from pandas import read_parquet\n", "read_parquet('q')", id="by a name of pandas"
        ),
        pytest.param("import pyarrow.parquet as pq\n", "pq.read_table('q')", id="by Arrow"),
        pytest.param("import polars\n", "polars.scan_csv('q')", id="by polars"),
        pytest.param("import numpy as np\n", "np.load('q')", id="by numpy"),
        pytest.param("import duckdb\n", "duckdb.read_csv('q')", id="by DuckDB"),
        pytest.param("import duckdb\n", "duckdb.sql('FROM q')", id="by a query of DuckDB"),
        pytest.param(
            "from delta.tables import DeltaTable\n",
            "DeltaTable.forPath(x, 'q')",
            id="another Delta table",
        ),
        pytest.param(
            "from deltalake import DeltaTable\n", "DeltaTable('q')", id="one without Spark"
        ),
        pytest.param("", "x.sparkSession.read.csv('q')", id="a file by Spark"),
        pytest.param("", "x.sparkSession.table('q')", id="a table of Spark's catalog"),
        pytest.param(
            "def k(spark):\n    return spark.read.load('q')\n",
            "k(x)",
            id="by a session that is given",
        ),
    ],
)
def test_code_that_reads_what_is_not_in_the_version_is_refused(folder, above, returned, golden):
    with golden.raises(ValueError):
        version(folder, shop=f"{above}def t(x):\n    return {returned}\n")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "import os\ndef other():\n    return os.environ\ndef t(x):\n    return x\n",
            id="in a function not used",
        ),
        pytest.param(
            "def open(x):\n    return x\ndef t(x):\n    return open(x)\n",
            id="a function of its own called open",
        ),
        pytest.param("def t(prices):\n    return prices.open + 1\n", id="a column called open"),
        pytest.param("def t(open):\n    return open(1)\n", id="an argument called open"),
        pytest.param(
            "import os\ndef t(x):\n    return os.path.join(x)\n", id="something else of os"
        ),
        pytest.param(
            "from json import loads\ndef t(x):\n    return loads(x)\n", id="another package"
        ),
        pytest.param(
            "import pandas as pd\ndef t(x):\n    return pd.DataFrame(x)\n",
            id="something else of pandas",
        ),
        pytest.param(
            "def t(x):\n    return x.sparkSession.createDataFrame(x.read.cast('int'))\n",
            id="a column called read",
        ),
    ],
)
def test_code_that_reads_nothing_is_not_refused(folder, text):
    assert version(folder, shop=text)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param("N = int(os.environ['N'])", id="directly"),
        pytest.param("def n():\n    return os.environ['N']\nN = int(n())", id="by a function"),
    ],
)
def test_a_number_from_the_environment_counts_by_its_value(folder, monkeypatch, read):
    shop = f"import os\n{read}\nK = (N, 1)\ndef t(x):\n    return K\n"
    versions = set()
    for value in ("1", "2"):
        monkeypatch.setenv("N", value)
        (folder / "shop.py").write_text(shop)
        importlib.invalidate_caches()
        importlib.reload(importlib.import_module("shop"))
        versions.add(version(folder))
    assert len(versions) == 2


def test_a_source_may_read(folder):
    version(
        folder,
        shop=(
            "def t(x):\n    return x\nclass Files:\n    def read(self):\n        return open('q')\n"
        ),
    )
    assert code_version("shop", "Files", may_read=True)


@pytest.mark.parametrize(
    "compiled", [False, True], ids=["no module of that name", "a compiled one"]
)
def test_an_import_that_cannot_be_followed_is_refused(folder, compiled, golden):
    text = (
        "try:\n    from .fast import f\nexcept ImportError:\n    from .slow import f\n"
        if compiled
        else "from .fast import f\n"
    )
    (folder / "shop").mkdir()
    if compiled:
        (folder / "shop" / "fast.abi3.so").touch()
    with golden.raises(ValueError):
        version(folder, shop__tables=f"{text}def t(x):\n    return f(x)\n", shop__slow="f = len\n")


TABLES = """
    import dagster
    import backfill_assets
    from backfill_assets import table
    STORES = ["north"]
    @table("staging/orders")
    def t(lines):
        return lines.where(lines.store.isin(STORES))
    @table("features/sales", reads={"t": t})
    def sales(t):
        return t.groupBy("store").count()
    defs = dagster.Definitions.merge(backfill_assets.definitions(tables=[t, sales], last_day=1))
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [("last_day=1", "last_day=2"), ("[t, sales]", "[t]"), ("count()", "sum()")],
)
def test_a_table_is_not_changed_by_what_comes_after_it(folder, old, new):
    before = version(folder, shop=TABLES)
    assert version(folder, shop=TABLES.replace(old, new)) == before


def test_a_value_that_another_function_may_change_is_followed(folder):
    shop = TABLES + "    def add(name): STORES.append(name)\n    add('south')\n"
    before = version(folder, shop=shop)
    assert version(folder, shop=shop.replace("south", "east")) != before
