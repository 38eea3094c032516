"""Table functions in wrappers: what their version follows, and which are refused."""

import importlib
import sys
from pathlib import Path

import pytest

from backfill_assets.tables.code_version.source import parsed

ABOVE = """
import functools
from backfill_assets import SliceDays, table

def times(by):
    def decorate(function):
        @functools.wraps(function)
        def inner(days):
            return function(days) * by
        return inner
    return decorate

def plain(days):
    return days

declared = table(
    "raw/a", partition_by="day", columns="day DATE, n INT", reads={"days": SliceDays()}
)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def loaded(folder: Path, text: str, monkeypatch):
    """The table `a` of a module with this text below what stands `ABOVE`."""
    monkeypatch.delitem(sys.modules, "wrapping", raising=False)
    (folder / "wrapping.py").write_text(ABOVE + text)
    importlib.invalidate_caches()
    parsed.cache_clear()
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        return importlib.import_module("wrapping").a
    finally:
        sys.dont_write_bytecode = before


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a = declared(times(1)(plain))\n", id="a function"),
        pytest.param(
            "@times(2)\ndef twice(days):\n    return days\na = declared(times(1)(twice))\n",
            id="one that is decorated",
        ),
        pytest.param("a = declared(functools.lru_cache(plain))\n", id="by another package"),
    ],
)
def test_a_function_wrapped_by_hand_is_refused(folder, monkeypatch, text, golden):
    with golden.raises(ValueError):
        loaded(folder, text, monkeypatch)


def test_a_callable_without_a_name_is_refused(folder, monkeypatch, golden):
    with golden.raises(ValueError):
        loaded(folder, "a = declared(functools.partial(plain))\n", monkeypatch)


def test_a_decorator_below_the_declaration_counts_with_what_it_is_given(folder, monkeypatch):
    text = "@declared\n@times(1)\ndef a(days):\n    return days\n"
    before = loaded(folder, text, monkeypatch).version
    assert loaded(folder, text.replace("times(1)", "times(2)"), monkeypatch).version != before


def test_functions_declared_by_hand_and_reloaded_modules_are_followed(folder, monkeypatch):
    assert loaded(folder, "a = declared(plain)\n", monkeypatch).version
    made = loaded(folder, "@declared\ndef a(days):\n    return days\n", monkeypatch)
    assert importlib.reload(sys.modules["wrapping"]).a.version == made.version
