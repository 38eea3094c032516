"""Where modules are. They are found without importing anything.

A project is every module in the folder of its top-level module or package; in a folder of installed
packages, that one alone.
"""

import importlib.util
import os
import sys
import sysconfig
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

PACKAGE = __name__.partition(".")[0]
MAIN = "__main__"
STANDARD_LIBRARY = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}


@cache
def file_of(module: str) -> str:
    """The path of a module's source file; "" if it has none. Cached until `look_again`."""
    package, *within = module.split(".")
    location = _location(package)
    path = "/".join((location.path, *within))
    # A plain module has no modules in it, even if a folder of its name is there.
    is_possible = location.path and (location.is_package or not within)
    files = (f"{path}/__init__.py", f"{path}.py") if is_possible else ()
    return next((file for file in files if os.path.isfile(file)), "")  # noqa: PTH113


def look_again() -> None:
    """Forget where modules were. Files may have come or gone."""
    file_of.cache_clear()
    _location.cache_clear()


def in_project(module: str, other: str) -> bool:
    """True if `other` is of the same project as `module`."""
    top = module.partition(".")[0]
    other_top = other.partition(".")[0]
    if top == other_top:
        return True
    # A checkout of this package in the same folder is not part of the project, as an installed one.
    if other_top == PACKAGE:
        return False
    folder = _folder_of(top)
    return folder != "" and folder == _folder_of(other_top) and not _is_installed(folder)


def is_there(module: str, name: str) -> bool:
    """True if the package `module` holds a module `name`, compiled or not."""
    folder = file_of(module).removesuffix("/__init__.py")
    return PathFinder.find_spec(f"{module}.{name}", [folder]) is not None


def _folder_of(package: str) -> str:
    return _location(package).path.rpartition("/")[0]


class _Location(NamedTuple):
    """The path of a top-level package or module, without `.py`; "" if it has no source."""

    path: str
    is_package: bool = False


@cache
def _location(package: str) -> _Location:
    if package == MAIN:  # `python shop.py` runs a file that no one imports
        script = getattr(sys.modules[MAIN], "__file__", None) or ""
        return _Location(script.removesuffix(".py") if script.endswith(".py") else "")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return _Location("")
    if spec and spec.submodule_search_locations:
        return _Location(spec.submodule_search_locations[0], is_package=True)
    path, _, suffix = ((spec and spec.origin) or "").rpartition(".")
    return _Location(path if suffix == "py" else "")


def _is_installed(folder: str) -> bool:
    path = Path(folder)
    return (
        path.name in ("site-packages", "dist-packages")
        or folder in STANDARD_LIBRARY
        or any(path.glob("*.dist-info"))
    )
