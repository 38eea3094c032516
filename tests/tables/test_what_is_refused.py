"""Code that a version cannot follow is refused: it reads files or the environment, or imports what
is not there.
"""

import importlib
from pathlib import Path

import pytest

from backfill_assets.tables.code_version.version import code_version
from tests.worlds.projects import searched_first, version


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    return searched_first(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("above", "returned", "reader"),
    [
        pytest.param("", "open('q.sql').read()", "open", id="a file opened"),
        pytest.param(
            "from pathlib import Path\n", "Path('q').read_text()", "read_text", id="a text file"
        ),
        pytest.param(
            "from pathlib import Path\n",
            "Path('q').read_bytes()",
            "read_bytes",
            id="a file of bytes",
        ),
        pytest.param(
            "from pathlib import Path\n", "Path('q').open().read()", "open", id="a path opened"
        ),
        pytest.param(
            "from gzip import open as unzip\n", "unzip('q')", "gzip.open", id="a packed file"
        ),
        pytest.param("import os\n", "os.environ['K']", "os.environ", id="an environment variable"),
        pytest.param(
            "from os import getenv as of\n",
            "of('K')",
            "os.getenv",
            id="an environment variable by another name",
        ),
        pytest.param(
            "import importlib as i\n",
            "i.import_module('k').K",
            "importlib.import_module",
            id="a computed import",
        ),
        pytest.param("", "__import__('k').K", "__import__", id="an import by a function"),
        pytest.param(
            "import os\nK = os.environ['K']\n",
            "K",
            "shop:K uses os.environ",
            id="a text from the environment",
        ),
        pytest.param(
            "import os\ndef k():\n    return os.getenv('K')\n",
            "k()",
            "shop:k uses os.getenv",
            id="a function called",
        ),
        pytest.param(
            "with open('q') as f:\n    K = f.read()\n",
            "K",
            "shop:K uses open",
            id="a text read at import",
        ),
        pytest.param(
            "K = []\nfor n in open('q'):\n    K.append(n)\n",
            "K",
            "shop:K uses open",
            id="a list filled from a file",
        ),
        pytest.param(
            "import pandas as pd\nK = pd.read_csv('q')\n",
            "K",
            "shop:K uses pandas.read_csv",
            id="a file by pandas",
        ),
        pytest.param(
            "from pandas import read_parquet\n",
            "read_parquet('q')",
            "pandas.read_parquet",
            id="by a name of pandas",
        ),
        pytest.param(
            "import pyarrow.parquet as pq\n",
            "pq.read_table('q')",
            "pyarrow.parquet.read_table",
            id="by Arrow",
        ),
        pytest.param("import polars\n", "polars.scan_csv('q')", "polars.scan_csv", id="by polars"),
        pytest.param("import numpy as np\n", "np.load('q')", "numpy.load", id="by numpy"),
        pytest.param("import duckdb\n", "duckdb.read_csv('q')", "duckdb.read_csv", id="by DuckDB"),
        pytest.param(
            "import duckdb\n", "duckdb.sql('FROM q')", "duckdb.sql", id="by a query of DuckDB"
        ),
        pytest.param(
            "from delta.tables import DeltaTable\n",
            "DeltaTable.forPath(x, 'q')",
            "DeltaTable",
            id="another Delta table",
        ),
        pytest.param(
            "from deltalake import DeltaTable\n",
            "DeltaTable('q')",
            "deltalake.DeltaTable",
            id="one without Spark",
        ),
        pytest.param("", "x.sparkSession.read.csv('q')", "read.csv", id="a file by Spark"),
        pytest.param(
            "", "x.sparkSession.table('q')", "sparkSession.table", id="a table of Spark's catalog"
        ),
        pytest.param(
            "def k(spark):\n    return spark.read.load('q')\n",
            "k(x)",
            "read.load",
            id="by a session that is given",
        ),
    ],
)
def test_code_that_reads_what_is_not_in_the_version_is_refused(folder, above, returned, reader):
    with pytest.raises(
        ValueError, match=rf"{reader}, and what that returns .* version by hand: version="
    ):
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


def test_a_number_from_the_environment_counts_by_its_value(folder, monkeypatch):
    shop = "import os\nN = int(os.environ['N'])\nK = (N, 1)\ndef t(x):\n    return K\n"
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
def test_an_import_that_cannot_be_followed_is_refused(folder, compiled):
    text = (
        "try:\n    from .fast import f\nexcept ImportError:\n    from .slow import f\n"
        if compiled
        else "from .fast import f\n"
    )
    (folder / "shop").mkdir()
    if compiled:
        (folder / "shop" / "fast.abi3.so").touch()
    with pytest.raises(ValueError, match=r"uses fast, which is not defined .*version by hand"):
        version(folder, shop__tables=f"{text}def t(x):\n    return f(x)\n", shop__slow="f = len\n")
