"""The name that was probably meant where another one was typed."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """The one of `known` that is most like `name`; "" if none is."""
    return next(iter(get_close_matches(name, sorted(known), n=1)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question, as a sentence that follows another; "" if no name is like this one."""
    meant = nearest(name, known)
    return f" Did you mean {meant}?" if meant else ""
