"""Modules of a project that a test writes, to see what the version of its one table follows."""

import importlib
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from backfill_assets.tables.code_version import code_version
from backfill_assets.tables.source_text import parsed

MODULES = ("shop", "rates", "fast_rates")


def searched_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that begins the search path."""
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def version(folder: Path, **texts: str) -> str:
    """The version of `t` of the module `shop`; a text with a name like `shop__k` is of the module `k` of the package `shop`."""
    for name, text in texts.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        if "__" in name:
            path.parent.mkdir(exist_ok=True)
            (path.parent / "__init__.py").touch()
        path.write_text(dedent(text))
    importlib.invalidate_caches()
    parsed.cache_clear()
    return code_version("shop" if (folder / "shop.py").exists() else "shop.tables", "t")
