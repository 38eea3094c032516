"""The page of formats, as data: the places of documents and the fields of each structure."""

import dataclasses
import importlib
import re
import types
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import PlainSerializer

PACKAGE = Path(__file__).resolve().parents[2] / "backfill_assets"
PAGE = PACKAGE / "decisions" / "formats.md"
_STRUCTURE = re.compile(r"^### (\w[\w ]*)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"`([^`]+)`")
# It is made again from the rows, and no version reads that of another.
DERIVED = {"TableDiff"}
_WORDS = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    datetime: "time",
    date: "day",
    Any: "any",
    type(None): "null",
}


def rows_of(text: str) -> list[list[str]]:
    """The cells of each row of the first table in a text, without its header."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@dataclass(frozen=True)
class Structure:
    """A structure of the page: the type of each field, and the class in the code, if it has one."""

    name: str
    fields: Mapping[str, str]
    of: type | None

    @property
    def in_code(self) -> dict[str, str]:
        """The type of each field of the class, in the words of the page."""
        assert self.of
        hints = get_type_hints(self.of, include_extras=True)
        names = getattr(self.of, "_fields", None) or [f.name for f in dataclasses.fields(self.of)]
        return {name: word_of(hints[name]) for name in names}


@dataclass(frozen=True)
class Kind:
    """A kind of document: the pattern of its place, and the word for its contents."""

    name: str
    place: str
    contents: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        parts = re.split(r"(<\w[^>]*>|\*\*)", self.place)
        return re.compile("".join(map(_pattern, parts)))


def _pattern(part: str) -> str:
    """A part of a place as a regular expression. Names of users do not begin with an underscore."""
    if part == "**":
        return ".+"
    if part == "<number>":
        return r"\d{9}"
    return "[^_/][^/]*" if part.startswith("<") else re.escape(part)


@dataclass(frozen=True)
class Page:
    text: str

    @cached_property
    def structures(self) -> dict[str, Structure]:
        found = {}
        for name, text in _STRUCTURE.findall(self.text):
            placed = re.search(rf"`({name})` in `([\w/]+\.py)`", text)
            fields = {row[0].strip("`"): row[1] for row in rows_of(text)}
            found[name] = Structure(name, fields, placed and class_at(*placed.groups()))
        return found

    @cached_property
    def kinds(self) -> list[Kind]:
        """Every place of every kind, in the order of the page."""
        section = self.text.partition("\n## Documents\n")[2].partition("\n## ")[0]
        return [
            Kind(row[0], place, row[2])
            for row in rows_of(section)
            for place in _PLACE.findall(row[1])
        ]

    def kind_of(self, path: str) -> Kind | None:
        """The kind of the file at a path below the lake's root."""
        return next((kind for kind in self.kinds if kind.pattern.fullmatch(path)), None)


def class_at(name: str, path: str) -> type:
    module = path.removesuffix(".py").replace("/", ".")
    found: type = getattr(importlib.import_module(f"backfill_assets.{module}"), name)
    return found


def word_of(kind: Any) -> str:
    """A type of the code in the words of the page."""
    if kind in _WORDS:
        return _WORDS[kind]
    origin = get_origin(kind)
    args = get_args(kind)
    if origin is Annotated:
        stored = next((each for each in args if isinstance(each, PlainSerializer)), None)
        return word_of(get_type_hints(stored.func)["return"] if stored else args[0])
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return "text"
    if origin in (Union, types.UnionType):
        return " or ".join(map(word_of, args))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"map of {_nested(args[1])}"
    if origin is tuple and Ellipsis not in args:
        return f"[{', '.join(map(word_of, args))}]"
    if isinstance(origin, type) and issubclass(origin, Collection | Sequence):
        return f"list of {_nested(args[0])}"
    return str(kind.__name__)


def _nested(kind: Any) -> str:
    word = word_of(kind)
    return f"({word})" if " or " in word else word


def faults(page: Page, word: str, value: Any, *, complete: bool, at: str = "") -> list[str]:
    """What a JSON value has that its type on the page does not allow. With `complete`, also the
    fields that it lacks.
    """
    if word.startswith("("):
        return faults(page, word[1:-1], value, complete=complete, at=at)
    options = re.split(r" or (?!.*\))", word)
    if len(options) > 1:
        found = [faults(page, each, value, complete=complete, at=at) for each in options]
        return min(found, key=len)
    nested, _, of = word.partition(" of ")
    if nested == "map":
        entries = value.items() if isinstance(value, dict) else [("", None)]
        return _all(page, [(of, each, f"{at}.{key}") for key, each in entries], complete)
    if nested == "list":
        items = value if isinstance(value, list) else [None]
        return _all(page, [(of, each, f"{at}[]") for each in items], complete)
    if word.startswith("["):
        words = word[1:-1].split(", ")
        if not isinstance(value, list) or len(value) != len(words):
            return [f"{at} is not {word}"]
        return _all(page, [(w, v, f"{at}[]") for w, v in zip(words, value, strict=True)], complete)
    if word in page.structures:
        return _of_structure(page, page.structures[word], value, complete, at)
    return [] if _is_of(word, value) else [f"{at} is not {word}: {value!r}"]


def _of_structure(
    page: Page, structure: Structure, value: Any, complete: bool, at: str
) -> list[str]:
    fields = structure.fields
    if isinstance(value, list):  # a tuple has no names
        value = dict(zip(fields, value, strict=False))
    if not isinstance(value, dict):
        return [f"{at} is not {structure.name}"]
    unknown = [f"{at}.{name} is not on the page" for name in value if name not in fields]
    lacking = [f"{at}.{name} is missing" for name in fields if name not in value]
    known = [(fields[name], each, f"{at}.{name}") for name, each in value.items() if name in fields]
    return [*unknown, *(lacking if complete else ()), *_all(page, known, complete)]


def _all(page: Page, parts: Sequence[tuple[str, Any, str]], complete: bool) -> list[str]:
    return [
        fault
        for word, value, at in parts
        for fault in faults(page, word, value, complete=complete, at=at)
    ]


def _is_of(word: str, value: Any) -> bool:
    match word:
        case "any":
            return True
        case "null":
            return value is None
        case "text":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "time" | "day":
            kind = datetime if word == "time" else date
            with suppress(ValueError):
                return isinstance(value, str) and bool(kind.fromisoformat(value))
    return word in DERIVED
