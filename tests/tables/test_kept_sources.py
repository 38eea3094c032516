"""What was found in a file is kept beside what Python compiles of it, and is right or not used."""

import importlib.util
import marshal
import os
import pkgutil
import sys
from pathlib import Path

import pytest

import backfill_assets
from backfill_assets.tables.code_version.modules import file_of
from backfill_assets.tables.code_version.source import parsed, source_of
from backfill_assets.tables.code_version.version import code_version

MODULE = "kept_shop"
TEXT = "def total(rows):\n    return rows + 1\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of one function, in a folder where Python may keep what it compiles."""
    monkeypatch.syspath_prepend(tmp_path)
    # Python's own switches, whatever the environment of the tests says.
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    path = tmp_path / f"{MODULE}.py"
    path.write_text(TEXT)
    return path


def version() -> str:
    """The version as a new process finds it."""
    parsed.cache_clear()
    return code_version(MODULE, "total")


def kept_of(path: Path) -> Path:
    (kept,) = (path.parent / "__pycache__").iterdir()
    return kept


def test_it_is_written_once_and_read_again(shop):
    first = version()
    written = kept_of(shop).stat().st_mtime_ns
    assert version() == first
    assert kept_of(shop).stat().st_mtime_ns == written


def test_a_file_of_the_same_size_and_time_is_read_by_its_contents(shop):
    first = version()
    times = shop.stat()
    shop.write_text(TEXT.replace("1", "2"))
    os.utime(shop, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert version() != first
    shop.write_text(TEXT)
    assert version() == first


@pytest.mark.parametrize(
    "damage",
    [b"", b"\x00", bytes(32) + marshal.dumps(({}, {})), b"not marshal"],
    ids=["empty", "cut short", "of another file", "other bytes"],
)
def test_what_is_damaged_is_found_anew_and_kept_again(shop, damage):
    first = version()
    whole = kept_of(shop).read_bytes()
    kept_of(shop).write_bytes(damage)
    assert version() == first
    assert kept_of(shop).read_bytes() == whole


def test_a_changed_byte_in_what_is_kept_changes_no_version(shop):
    first = version()
    whole = kept_of(shop).read_bytes()
    place = whole.index(b"rows + 1")
    kept_of(shop).write_bytes(whole[:place] + b"rows + 2" + whole[place + 8 :])
    assert version() == first
    assert kept_of(shop).read_bytes() == whole


def test_the_package_of_a_relative_import_is_not_taken_from_a_file_of_another_name(shop):
    """The same bytes at another place stand for other names."""
    text = "from .words import f\n\ndef total(rows):\n    return f(rows)\n"
    found = []
    for package in ("kept_one", "kept_two"):
        folder = shop.parent / package
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "words.py").write_text("def f(rows):\n    return rows\n")
        (folder / "totals.py").write_text(text)
        found.append(source_of(f"{package}.totals").imports["f"])
    assert found == [[["kept_one", "words", "f"]], [["kept_two", "words", "f"]]]


def test_nothing_is_written_where_python_may_not_keep_what_it_compiles(shop, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    version()
    assert not (shop.parent / "__pycache__").exists()


def test_a_folder_that_cannot_be_written_changes_nothing(shop):
    (shop.parent / "__pycache__").write_text("a file")
    assert version() == version()


def test_of_every_module_of_this_package_the_same_is_read_as_was_found(tmp_path, monkeypatch):
    names = [
        module.name
        for module in pkgutil.walk_packages(backfill_assets.__path__, "backfill_assets.")
        if not module.ispkg
    ][::5]
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    found = []
    for _ in range(2):
        parsed.cache_clear()
        found.append({name: source_of(name) for name in names})
    kept = [importlib.util.cache_from_source(file_of(name), optimization="names") for name in names]
    assert all(map(os.path.isfile, kept))
    assert found[0] == found[1]
