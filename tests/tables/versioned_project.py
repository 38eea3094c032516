"""A project whose files a test edits, to see which edits its code version follows."""

import importlib
import itertools
from pathlib import Path

from backfill_assets.tables.code_version import code_version
from backfill_assets.tables.source_text import parsed

NUMBERS = itertools.count()
FEATURES = '''"""What models read."""
from pyspark.sql import functions as F
from backfill_assets import SliceDays, table
import {project}.words
from {project} import words
from {project}.deeper import rounded as whole
from .deeper import Kept
from .registry import LIMITS, STEPS, WITHIN, conditional, fallback
from . import whole as entire

WEEK = 7
OTHER = 8

def first():
    from .late import one as number
    return number()

def second():
    from .late import two as number
    return number()

def three():
    return 0

def hidden():
    from .late import three
    return three()

@table(
    "features/a", partition_by="day", columns="day DATE, n INT", reads={"rows": SliceDays(), "helper": SliceDays()},
    version="1", pool="spark",
)
def a(rows: int, helper=None) -> int:
    """A promise."""
    # A reason.
    return helper(F.lit(WEEK)) + whole(rows) + words.shout("a") + {project}.words.whisper("a") + Kept().value() + more()

def more():
    from .late import imported
    from .registry import LATER, Base, wrapped
    two = wrapped() + len(Base.known) + LATER() + first() + second() + hidden()
    return two + STEPS["x"](LIMITS.high) + conditional() + fallback() + WITHIN[0]([]) + imported() + vars(entire)["f"]()

def helper(rows):
    return OTHER
'''
DEEPER = """
STEPS = 3

def rounded(rows, steps=STEPS):
    kept: list = [inner(r) for r in rows]
    return kept

def inner(row: int):
    return row + STEPS

def unused(row):
    return row

class Kept:
    unit: int

    def value(self):
        return 1
"""
REGISTRY = """
import contextlib
import types

LIMITS, STEPS = types.SimpleNamespace(), {}
LIMITS.high = 1

def register(step):
    STEPS[step.__name__] = step
    return step

def by_item():
    return 10

STEPS["set"] = by_item

@register
def by_decorator():
    return 20

def by_call():
    return 30

register(by_call)

def by_loop():
    return 40

for _each in (by_loop,):
    STEPS.update(loop=_each)

if STEPS:
    def conditional():
        return 50

try:
    import nothing_of_that_name
except ImportError:
    def fallback():
        return 60

with contextlib.suppress(ValueError):
    WITHIN = [len]

def add(steps, step):
    steps["given"] = step

def given():
    return 90

add(STEPS, given)

def deeper(step):
    register(step)

def deep():
    return 92

deeper(deep)

class Base:
    known = []

    def __init_subclass__(cls):
        Base.known.append(cls)

class Extended(Base):
    def value(self):
        return 94

setattr(LIMITS, "low", 1)
LATER = None

def set_later():
    global LATER
    LATER = object

set_later()

def table(compute):
    return lambda: 96

@table
def wrapped():
    return 1
"""
WORDS = "def shout(text):\n    return text.upper()\n\ndef whisper(text):\n    return text.strip()\n"


class Project:
    """A package of three modules on disk, edited by replacing text."""

    def __init__(self, root: Path):
        self.name, self.root = f"project{next(NUMBERS)}", root
        numbers = {"imported": 70, "one": 71, "two": 0, "three": 73}
        late = "".join(f"def {name}():\n    return {n}\n" for name, n in numbers.items())
        whole = "def f():\n    return 80\n"
        modules = {"__init__": "", "features": FEATURES, "deeper": DEEPER, "words": WORDS, "registry": REGISTRY}
        for module, text in (modules | {"late": late, "whole": whole}).items():
            path = root / self.name / f"{module}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("{project}", self.name))
        importlib.invalidate_caches()

    def version(self) -> str:
        parsed.cache_clear()
        return code_version(f"{self.name}.features", "a")

    def edit(self, module: str, old: str, new: str) -> str:
        path = self.root / self.name / f"{module}.py"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        return self.version()
