"""The version of a table's rules: what they promise and how they judge."""

import hashlib
from collections.abc import Sequence
from types import FunctionType

from backfill_assets.quality import rules as built_in
from backfill_assets.quality.rule import Rule
from backfill_assets.tables.code_version import BY_HAND
from backfill_assets.tables.judged_by import JudgedBy, module_of, source_text


def rules_version(rules: Sequence[Rule]) -> str:
    """A hash of the rules, twelve hexadecimal digits."""
    return hashlib.sha256("\n".join(map(signature, rules)).encode()).hexdigest()[:12]


def signature(rule: Rule) -> str:
    """What a rule promises and how it judges, as text: another text, another rule."""
    # The code as well: of a rule written by hand, the promise may stay while it judges differently.
    values = [*_values(rule).values(), *filter(None, [source_text(rule.judge)])]
    looks_at = (list(rule.columns), list(rule.measures), list(rule.tables))
    text = repr((rule.name, rule.promise, rule.severity, rule.offending, rule.counts_keys, looks_at, values))
    others = judged_by(rule).texts
    return f"{text}{sorted(others.items())}" if others else text


def refuse_unseen(rules: Sequence[Rule]) -> None:
    """ValueError for a rule that decides by what has no text that is the same in every process."""
    for rule in rules:
        unseen = judged_by(rule).unseen
        if unseen:
            raise ValueError(
                f"whether the rule {rule.name} has changed cannot be seen: {unseen[0]}; judge by numbers, texts, lists, sets "
                f"and dicts of them and by functions, or {BY_HAND}"
            )


def judged_by(rule: Rule) -> JudgedBy:
    """What a rule decides by besides what it declares, its judge's source and the plain values that this was made with."""
    judge = rule.judge
    if not isinstance(judge, FunctionType):
        other = JudgedBy(module_of(judge))
        other.add("judge", judge)
        return other
    by = JudgedBy(judge.__globals__.get("__name__", ""))
    # The promises of these say what they judge by.
    if judge.__module__ != built_in.__name__:
        if hasattr(judge, "__wrapped__"):
            by.texts["judge"] = source_text(judge.__code__)
        by.add_function("judge", judge)
        for name in _values(rule):
            by.texts.pop(f"judge.{name}", None)
    return by


def _values(rule: Rule) -> dict[str, object]:
    """The texts, numbers and lists that a judge was made with, by name."""
    cells: dict[str, object] = {}
    if isinstance(rule.judge, FunctionType):
        for name, cell in zip(rule.judge.__code__.co_freevars, rule.judge.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            # Only these: within a list, `repr` writes a set in another order in every process.
            items = value if isinstance(value, tuple | list) else (value,)
            if all(isinstance(item, str | int | float) for item in items):
                cells[name] = value
    return cells
