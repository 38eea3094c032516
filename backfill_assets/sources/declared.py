"""What a source is declared with, held against the types of its fields: a mistake is named where it is made."""

from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError


def refuse_mistyped(declared: Any) -> None:
    """ValueError for a field of a dataclass whose value is of another type than it is annotated with."""
    hints = get_type_hints(type(declared), include_extras=True)
    for each in fields(declared):
        value, hint = getattr(declared, each.name), hints[each.name]
        try:
            if isinstance(hint, type) and hint not in (float, int, Any):
                wrong = "" if isinstance(value, hint) else f"it is not a {_spelt(hint)}"
            else:
                _adapter(hint).validate_python(value, strict=True)
                wrong = ""
        except ValidationError as error:
            wrong = _why(error)
        if wrong:
            about = f"{type(declared).__name__}({getattr(declared, 'name', '')!r})"
            raise ValueError(f"{about}: {each.name}={value!r} is not valid: {wrong}")


def refuse_no_folder(about: str, name: str) -> None:
    """ValueError for what is no name of a folder of the landing area, nor of one below it."""
    if not name.strip() or {"", ".", ".."} & {*name.split("/")} or name.startswith(("_", ".")):
        raise ValueError(f"{about}({name!r}): the name of a folder below the landing area, as 'orders', is needed")


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))


def _why(error: ValidationError) -> str:
    """What should be there instead; of a value that may be several things, any of them."""
    said = dict.fromkeys(each["msg"][0].lower() + each["msg"][1:] for each in error.errors())
    return " or ".join(said).replace("input should be", "it should be")


def _spelt(kind: type) -> str:
    return {str: "text", bool: "True or False"}.get(kind, kind.__name__)
