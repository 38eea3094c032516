"""The version of a table's rules: their promises, and the code and values of their judges.

Values in a judge's closure count like constants in a table's code. Functions count by their source,
objects by their class and its attributes.
"""

import ast
import dis
import functools
import inspect
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from backfill_assets.digest import digest
from backfill_assets.quality import rules as built_in
from backfill_assets.quality.rule import Rule
from backfill_assets.tables.code_version.modules import in_project, look_again
from backfill_assets.tables.code_version.source import (
    READING_METHODS,
    plain,
    readers_among,
    source_of,
)
from backfill_assets.tables.code_version.version import (
    BY_HAND,
    LENGTH,
    WHOLE_MODULE,
    definitions_behind,
    definitions_used,
)

# Types that `plain` does not write, but that `repr` writes the same in every process.
BY_REPR = (type(None), range)

GLOBAL_NAMES = {"LOAD_GLOBAL", "LOAD_NAME"}
LOCAL_NAMES = {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF"}
ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}


def rules_version(rules: Sequence[Rule]) -> str:
    """A hash of the rules, twelve hexadecimal digits."""
    return digest(*map(signature, rules), length=LENGTH)


def signature(rule: Rule) -> str:
    """A rule's promise, and the code and values of its judge, as text."""
    # The code too, because the judge of a custom rule may change while its promise stays.
    values = [*_values(rule).values(), *filter(None, [source_text(rule.judge)])]
    measures = [*rule.measures, *rule.own_measures]
    looks_at = (list(rule.columns), measures, list(rule.tables))
    declared = (rule.name, rule.promise, rule.severity, rule.offending, rule.counts_keys)
    text = repr((*declared, looks_at, values))
    others = _judged_by(rule).texts
    return f"{text}{sorted(others.items())}" if others else text


def refuse_unseen(rules: Sequence[Rule]) -> None:
    """Refuse rules with undetectable changes, because they use values without a stable text.

    Raises ValueError.
    """
    for rule in rules:
        unseen = _judged_by(rule).unseen
        if unseen:
            raise ValueError(
                f"whether the rule {rule.name} has changed cannot be seen: {unseen[0]}; judge by"
                f" numbers, texts, lists, sets and dicts of them and by functions, or {BY_HAND}"
            )


def _judged_by(rule: Rule) -> "JudgedBy":
    """Everything that a rule's judge uses, except its source and its plain values."""
    look_again()
    judge = rule.judge
    if not isinstance(judge, FunctionType):
        other = JudgedBy(module_of(judge))
        other.add("judge", judge)
        return other
    by = JudgedBy(judge.__globals__.get("__name__", ""))
    # The promises of built-in rules describe the judge.
    if judge.__module__ != built_in.__name__:
        if hasattr(judge, "__wrapped__"):
            by.texts["judge"] = source_text(judge.__code__)
        by.add_function("judge", judge)
        for name in _values(rule):
            by.texts.pop(f"judge.{name}", None)
    return by


def _values(rule: Rule) -> dict[str, object]:
    """The texts, numbers and lists in a judge's closure, by name."""
    values = _enclosed(rule.judge) if isinstance(rule.judge, FunctionType) else {}
    plain_values = {}
    for name, value in values.items():
        # Only these types: within a list, `repr` writes a set in another order in every process.
        items = value if isinstance(value, tuple | list) else (value,)
        if all(isinstance(item, str | int | float) for item in items):
            plain_values[name] = value
    return plain_values


def _enclosed(function: FunctionType) -> dict[str, Any]:
    """The values of outer functions that a function uses, by name."""
    values = {}
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        with suppress(ValueError):  # a cell without a value yet
            values[name] = cell.cell_contents
    return values


def source_text(code: Any) -> str:
    """The source of a function or its code, without comments and layout.

    It is "" for objects without source, such as a callable object. Lines that are not whole
    statements, such as a lambda among arguments, count as they are written.
    """
    found = inspect.unwrap(code) if isinstance(code, FunctionType) else code
    found = found.__code__ if isinstance(found, FunctionType) else found
    if isinstance(found, CodeType):
        # The rules that one function made share its code. Equal code may stand in two files.
        return _source_of_code(found, found.co_filename)
    return _source_text(found)


@functools.cache
def _source_of_code(code: CodeType, _file: str) -> str:
    return _source_text(code)


def _source_text(code: Any) -> str:
    try:
        text = inspect.getsource(code)
    except (OSError, TypeError):
        return ""
    try:
        return ast.unparse(ast.parse(textwrap.dedent(text)))
    except SyntaxError:
        return text


def module_of(function: object) -> str:
    """The module that defines a function, or the function inside a partial or a wrapper."""
    inner = getattr(function, "func", None) or getattr(function, "__wrapped__", None)
    if inner:
        return module_of(inner)
    return getattr(function, "__module__", None) or type(function).__module__


@dataclass
class JudgedBy:
    """The code and values that a judge uses, as `texts` by the place of each.

    `unseen` has one message for each value without a text that is the same in every process.
    """

    project: str
    texts: dict[str, str] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    # By the object's id. The object is stored too, because another object might get its id.
    visited: dict[int, tuple[str, Any]] = field(default_factory=dict)

    def add(self, where: str, value: Any) -> None:
        """Add a value and its parts."""
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
            parts = {"function": value.func, "arguments": value.args, "named": value.keywords}
            self.add_parts(where, parts)
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
        """Add everything that a function uses, except its source."""
        for name, value in _enclosed(function).items():
            self.add(f"{where}.{name}", value)
        if function.__defaults__ or function.__kwdefaults__:
            self.add(f"{where}.defaults", (function.__defaults__, function.__kwdefaults__))
        module = function.__globals__.get("__name__", "")
        if in_project(self.project, module):
            self.add_names(where, module, function.__code__)

    def add_names(self, where: str, module: str, code: CodeType) -> None:
        try:
            source = source_of(module)
            names = sorted(set(_names_in(code, source.imports)))
            for reader in sorted({*readers_among(names, source), *_methods_in(code)}):
                self.unseen.append(f"{where} uses {reader}, and its result is not known beforehand")
            for name in names:
                for origin, used in definitions_behind(self.project, module, name, where):
                    self.texts |= definitions_used(origin, used)
        except ValueError as error:
            self.unseen.append(str(error))

    def add_named(self, where: str, value: Any) -> None:
        """Add a class or a module: by its code if it is in the project, by its name otherwise."""
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
            self.unseen.append(f"{where} is {value!r}, which is not plain data")


# A lambda has no statement of its own, so its names are read from its compiled code.


def _names_in(code: CodeType, imported: Collection[str]) -> Iterator[str]:
    """The names from outside, with their attributes: `name`, `module.name`.

    `imported` are all names that the file imports.
    """
    chain: list[str] = []
    instructions = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    imports = any(step.opname == "IMPORT_NAME" for step in instructions)
    for step in instructions:
        if chain and step.opname in ATTRIBUTES:
            chain.append(step.argval)
            continue
        if chain:
            yield ".".join(chain)
        is_import = imports and step.opname in LOCAL_NAMES and step.argval in imported
        chain = [step.argval] if step.opname in GLOBAL_NAMES or is_import else []
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names_in(inner, imported)


def _methods_in(code: CodeType) -> set[str]:
    """The methods by which the code reads files, on any object."""
    inner = [_methods_in(part) for part in code.co_consts if isinstance(part, CodeType)]
    return set(READING_METHODS & set(code.co_names)).union(*inner)
