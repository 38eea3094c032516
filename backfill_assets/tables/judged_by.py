"""What a rule's judge decides by besides its own source: the values that it was made with, and what it uses of its project.

Values count as constants of a table's code do, functions by their source, objects by their class and its attributes.
"""

import functools
import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from backfill_assets.quality.rule import Rule
from backfill_assets.tables.bytecode import methods_in, names_in
from backfill_assets.tables.code_version import WHOLE_MODULE, definitions_of, definitions_used
from backfill_assets.tables.module_files import in_project
from backfill_assets.tables.outside import readers_among
from backfill_assets.tables.source_text import plain, source_of

# What `plain` does not write, and `repr` writes the same in every process.
BY_REPR = (type(None), range)


def source_text(code: Any) -> str:
    """The source of a function or its code; an empty text for what has none, such as a callable object."""
    with suppress(OSError, TypeError):
        return inspect.getsource(code)
    return ""


def module_of(function: object) -> str:
    """The module in which a function, or what stands in its place, is defined."""
    inner = getattr(function, "func", None) or getattr(function, "__wrapped__", None)
    return module_of(inner) if inner else getattr(function, "__module__", None) or type(function).__module__


@dataclass
class JudgedBy:
    """`texts` by where each was found, and `unseen`: what has no text that is the same in every process, and why."""

    project: str
    texts: dict[str, str] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    # By the object's id. The object is kept, for another might get its id.
    visited: dict[int, tuple[str, Any]] = field(default_factory=dict)

    def add(self, where: str, value: Any) -> None:
        """Add a value, and what it is made of."""
        text = repr(value) if type(value) in BY_REPR else plain(value)
        if text:
            self.texts[where] = text
            return
        if id(value) in self.visited:
            self.texts[where] = f"as {self.visited[id(value)][0]}"
            return
        self.visited[id(value)] = (where, value)
        if isinstance(value, Rule):
            self.add_parts(where, vars(value))
        elif isinstance(value, FunctionType):
            self.texts[where] = source_text(value.__code__)
            self.add_function(where, value)
        elif isinstance(value, functools.partial):
            self.add_parts(where, {"function": value.func, "arguments": value.args, "named": value.keywords})
        elif isinstance(value, MethodType):
            self.add_parts(where, {"function": value.__func__, "of": value.__self__})
        elif hasattr(value, "__wrapped__"):
            self.add(where, value.__wrapped__)
        elif isinstance(value, type | ModuleType | BuiltinFunctionType):
            self.add_named(where, value)
        elif type(value) in (list, tuple):
            self.add_parts(where, dict(enumerate(value)))
        elif type(value) is dict and all(map(plain, value)):
            self.add_parts(where, value)
        else:
            self.add_object(where, value)

    def add_parts(self, where: str, parts: Mapping[Any, Any]) -> None:
        self.texts[where] = f"{len(parts)} parts"
        for name, part in parts.items():
            self.add(f"{where}.{name}", part)

    def add_function(self, where: str, function: FunctionType) -> None:
        """What a function decides by besides its source."""
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # a cell that is not filled yet
                self.add(f"{where}.{name}", cell.cell_contents)
        if function.__defaults__ or function.__kwdefaults__:
            self.add(f"{where}.defaults", (function.__defaults__, function.__kwdefaults__))
        module = function.__globals__.get("__name__", "")
        if in_project(self.project, module):
            self.add_names(where, module, function.__code__)

    def add_names(self, where: str, module: str, code: CodeType) -> None:
        try:
            source = source_of(module)
            names = sorted(set(names_in(code, source.imports)))
            for reader in sorted({*readers_among(names, source.imports, source.texts), *methods_in(code)}):
                self.unseen.append(f"{where} uses {reader}, and what that returns is not known beforehand")
            for name in names:
                for origin, used in definitions_of(self.project, module, name, where):
                    self.texts |= definitions_used(origin, used)
        except ValueError as error:
            self.unseen.append(str(error))

    def add_named(self, where: str, value: Any) -> None:
        """A class or a module by its code if it is of the project, else by its name, as built-in functions."""
        is_module = isinstance(value, ModuleType)
        module = value.__name__ if is_module else value.__module__ or ""
        name = WHOLE_MODULE if is_module else value.__qualname__
        self.texts[where] = f"{module}:{name}"
        if in_project(self.project, module):
            try:
                self.texts |= definitions_used(module, name.partition(".")[0])
            except ValueError as error:
                self.unseen.append(str(error))

    def add_object(self, where: str, value: Any) -> None:
        kind = type(value)
        if isinstance(value, Enum):
            self.texts[f"{where}.member"] = value.name
            self.add_named(where, kind)
        elif in_project(self.project, kind.__module__) and hasattr(value, "__dict__"):
            self.add_named(where, kind)
            self.add_parts(f"{where}.attributes", vars(value))
        else:
            self.unseen.append(f"{where} is {value!r}, which is no plain data")
