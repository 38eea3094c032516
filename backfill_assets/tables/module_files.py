"""Where modules lie, found without importing anything, and which of them are one project.

A project is every module in the folder that its top-level module or package lies in. In a folder of installed packages, it is
that module or package alone.
"""

import importlib.util
import os
import sysconfig
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

PACKAGE = __name__.partition(".")[0]
STANDARD_LIBRARY = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}


def file_of(module: str) -> Path | None:
    """The source file of a module."""
    package, *within = module.split(".")
    spec = _spec_of(package)
    if spec is None:
        return None
    if not spec.submodule_search_locations:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") and not within else None
    # As text: each import of this package asks for thousands.
    path = "/".join((spec.submodule_search_locations[0], *within))
    return next((Path(file) for file in (f"{path}.py", f"{path}/__init__.py") if os.path.isfile(file)), None)  # noqa: PTH113


def in_project(module: str, other: str) -> bool:
    """Whether `other` is of the same project as `module`."""
    top, other_top = module.partition(".")[0], other.partition(".")[0]
    if top == other_top:
        return True
    folder = _folder_of(top)
    # A checkout of this package beside a project is as little of that project as an installed one.
    return folder is not None and other_top != PACKAGE and folder == _folder_of(other_top) and not _of_installed(folder)


def is_there(module: str, name: str) -> bool:
    """Whether the package `module` holds a module `name`, compiled or not."""
    file = file_of(module)
    if file is None or file.name != "__init__.py":
        return False
    return PathFinder.find_spec(f"{module}.{name}", [str(file.parent)]) is not None


def _spec_of(package: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None


def _folder_of(package: str) -> Path | None:
    """The folder that a top-level module or package lies in."""
    spec = _spec_of(package)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0]).parent
    return Path(spec.origin).parent if spec.origin and spec.origin.endswith(".py") else None


def _of_installed(folder: Path) -> bool:
    installed = folder.name in ("site-packages", "dist-packages") or any(folder.glob("*.dist-info"))
    return installed or folder in STANDARD_LIBRARY
