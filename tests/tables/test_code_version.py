"""A table's code version follows what its function is made of, and nothing else."""

import importlib
import itertools
import re
import subprocess
import sys
from collections import defaultdict
from datetime import date
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import pytest

from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.tables.code_version.source import parsed, plain
from backfill_assets.tables.code_version.version import code_version, definitions_used
from backfill_assets.tables.declaration import SliceDays, table

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
    "features/a", partition_by="day", columns="day DATE, n INT",
    reads={"rows": SliceDays(), "helper": SliceDays()},
    version="1", pool="spark",
)
def a(rows: int, helper=None) -> int:
    """A promise."""
    # A reason.
    loud = helper(F.lit(WEEK)) + whole(rows) + words.shout("a")
    return loud + {project}.words.whisper("a") + Kept().value() + more()

def more():
    from .late import imported
    from .registry import LATER, Base, wrapped
    two = wrapped() + len(Base.known) + LATER() + first() + second() + hidden()
    found = two + STEPS["x"](LIMITS.high) + conditional() + fallback()
    return found + WITHIN[0]([]) + imported() + vars(entire)["f"]()

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


class EditedProject:
    """A package of three modules on disk, edited by replacing text."""

    def __init__(self, root: Path):
        self.name = f"project{next(NUMBERS)}"
        self.root = root
        numbers = {"imported": 70, "one": 71, "two": 0, "three": 73}
        late = "".join(f"def {name}():\n    return {n}\n" for name, n in numbers.items())
        whole = "def f():\n    return 80\n"
        modules = {
            "__init__": "",
            "features": FEATURES,
            "deeper": DEEPER,
            "words": WORDS,
            "registry": REGISTRY,
        }
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


class Colour(IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int


@pytest.fixture
def project(tmp_path, monkeypatch) -> EditedProject:
    monkeypatch.syspath_prepend(str(tmp_path))
    return EditedProject(tmp_path)


CHANGES = {
    "its own body": ("features", 'shout("a")', 'shout("b")'),
    "a constant it uses": ("features", "WEEK = 7", "WEEK = 8"),
    "a function it calls in another module": ("deeper", "for r in rows", "for r in rows if r"),
    "a function that one calls": ("deeper", "row + STEPS", "row - STEPS"),
    "a constant of that one": ("deeper", "STEPS = 3", "STEPS = 4"),
    "a default value": ("deeper", "steps=STEPS", "steps=0"),
    "a function called by its module's name": ("words", "upper", "lower"),
    "a function called by its module's full name": ("words", "strip", "lstrip"),
    "a method of a class it makes": ("deeper", "return 1", "return 2"),
    "the type of a field of that class": ("deeper", "unit: int", "unit: str"),
    "an annotation of a function it calls": ("deeper", "inner(row: int)", "inner(row: float)"),
    "an attribute set later": ("registry", "LIMITS.high = 1", "LIMITS.high = 2"),
    "an item set later": ("registry", '"set"] = by_item', '"set"] = by_call'),
    "a function in a registry": ("registry", "return 10", "return 11"),
    "a function that a decorator adds to a registry": ("registry", "return 20", "return 21"),
    "a function that a call adds to a registry": ("registry", "return 30", "return 31"),
    "a function that a loop adds to a registry": ("registry", "return 40", "return 41"),
    "a function under an if": ("registry", "return 50", "return 51"),
    "a function under a try": ("registry", "return 60", "return 61"),
    "a constant under a with": ("registry", "WITHIN = [len]", "WITHIN = [max]"),
    "a function imported inside it": ("late", "return 70", "return 71"),
    "a module passed as a value": ("whole", "return 80", "return 81"),
    "what one function imports under a name that another imports too": (
        "late",
        "return 71",
        "return 72",
    ),
    "what is imported over a function of the file": ("late", "return 73", "return 74"),
    "a function given to one that adds it to a registry": ("registry", "return 90", "return 91"),
    "a function added to a registry two calls deep": ("registry", "return 92", "return 93"),
    "a class that registers itself": ("registry", "return 94", "return 95"),
    "an attribute set by setattr": ("registry", '"low", 1', '"low", 2'),
    "a global that a function sets": ("registry", "LATER = object", "LATER = type"),
    "a decorator of the project's own that is called table": (
        "registry",
        "lambda: 96",
        "lambda: 97",
    ),
}
NO_CHANGES = {
    "a comment": ("features", "A reason.", "Another."),
    "its docstring": ("features", "A promise.", "Another promise."),
    "the docstring of its module": ("features", "What models read.", "More."),
    "an annotation": ("features", "rows: int", "rows: float"),
    "the annotation of a variable": ("deeper", "kept: list =", "kept: set ="),
    "layout": (
        "features",
        "helper(F.lit(WEEK)) + whole(rows)",
        "helper(F.lit(WEEK))+whole( rows )",
    ),
    "what @table promises of it": ("features", 'pool="spark"', 'pool="external"'),
    "the columns whose values are hidden": (
        "features",
        'pool="spark"',
        'pool="spark", mask=["n"]',
    ),
    "a function nobody calls": (
        "deeper",
        "def unused(row):\n    return row",
        "def unused(row):\n    return None",
    ),
    "a function that a parameter hides": ("features", "return OTHER", "return WEEK"),
    "a constant nobody uses": ("features", "OTHER = 8", "OTHER = 9"),
}


@pytest.mark.parametrize(("module", "old", "new"), CHANGES.values(), ids=CHANGES)
def test_an_edit_changes_the_version(project, module, old, new):
    before = project.version()
    assert project.edit(module, old, new) != before


@pytest.mark.parametrize(("module", "old", "new"), NO_CHANGES.values(), ids=NO_CHANGES)
def test_an_edit_leaves_the_version(project, module, old, new):
    before = project.version()
    assert project.edit(module, old, new) == before


def test_an_edit_undone_brings_the_version_back(project):
    before = project.version()
    project.edit("words", "upper", "lower")
    assert project.edit("words", "lower", "upper") == before


def test_a_name_that_is_not_at_the_top_of_its_file_needs_a_version_by_hand(project, golden):
    with golden.raises(ValueError, PROJECT=project.name):
        code_version(f"{project.name}.features", "nowhere")
    with golden.raises(ValueError, "no module"):
        code_version("nowhere.at_all", "a")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("return OTHER", "return ELSEWHERE", id="a name that is defined nowhere"),
        pytest.param(
            "from .registry import LIMITS, STEPS,",
            "from .registry import *\nfrom .registry import LIMITS,",
            id="import *",
        ),
    ],
)
def test_a_name_that_cannot_be_followed_needs_a_version_by_hand(project, old, new, golden):
    project.edit("features", "a(rows: int, helper=None)", "a(rows: int, other=None)")
    with golden.raises(ValueError, PROJECT=project.name):
        project.edit("features", old, new)


@pytest.mark.parametrize(
    ("written", "same", "other"),
    [("7", "1 + 2 * 3", "8"), ("7", "7 ", "timedelta(days=7).days"), ("7.0", "14 / 2", "7.5")],
)
def test_a_constant_counts_by_its_value_if_it_is_written_out(project, written, same, other):
    before = project.edit("features", "WEEK = 7", f"WEEK = {written}")
    assert project.edit("features", f"WEEK = {written}", f"WEEK = {same}") == before
    project.edit("features", "OTHER = 8", "from datetime import timedelta\nOTHER = 8")
    assert project.edit("features", f"WEEK = {same}", f"WEEK = {other}") != before


@pytest.mark.parametrize("week", ["1 + 2 * 3", "timedelta(days=7).days", "max(OTHER, 7)"])
def test_a_constant_counts_the_same_before_and_after_its_module_is_loaded(project, week):
    constants = f"from datetime import timedelta\nOTHER = 8\nWEEK = {week}"
    before = project.edit("features", "WEEK = 7\nOTHER = 8", constants)
    importlib.import_module(f"{project.name}.features")
    assert project.version() == before


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": (1, 2.5), "a": None}, ""),
        ({"b": (1, 2.5), "a": [True]}, "{'b': tuple(1, 2.5), 'a': list(True)}"),
        ({"z", "a", "m"}, "set('a', 'm', 'z')"),
        (frozenset({date(2019, 8, 15)}), "frozenset(datetime.date(2019, 8, 15))"),
        (re.compile("a+" * 200, re.IGNORECASE), f"re.compile('{'a+' * 200}', 34)"),
        (Colour.RED, ""),
        (Point(1), ""),
        (defaultdict(int), ""),
        (object(), ""),
        ([object()], ""),
    ],
    ids=[
        "with a None",
        "nested",
        "a set in order",
        "a day",
        "a long pattern",
        "a member of an Enum",
        "a NamedTuple",
        "a dict with a default",
        "an object",
        "an object within",
    ],
)
def test_plain_data_reads_the_same_in_every_process(value, text):
    assert plain(value) == text


def test_every_table_has_a_version_of_its_own():
    versions = [each.version for each in TABLES]
    assert len(set(versions)) == len(versions)
    assert all(re.fullmatch(r"[0-9a-f]{12}", version) for version in versions)


def test_features_follow_the_transforms_they_are_made_of():
    found = {
        name.rpartition(":")[2]
        for name in definitions_used("backfill_assets.datasets.outages.features", "region_daily")
    }
    assert found == {"region_daily", "by_region", "with_week", "_share", "CAUSES", "WEEK"}


def test_a_version_given_by_hand_holds():
    made = table(
        "raw/a",
        version="7",
        partition_by="arrival_day",
        columns="arrival_day DATE",
        reads={"days": SliceDays()},
    )
    assert made(lambda days: days).version == "7"


SCRIPT = """
from backfill_assets import SliceDays, table

LIMIT = 7

@table("features/a", partition_by="day", columns="day DATE", reads={"days": SliceDays()})
def a(days):
    return days.limit(LIMIT)

print(a.version)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.servers
def test_a_module_that_is_run_as_a_script_has_versions(tmp_path):
    (tmp_path / "shop.py").write_text(SCRIPT)
    first = run(tmp_path, "shop.py")
    assert first.returncode == 0, first.stderr
    (tmp_path / "shop.py").write_text(SCRIPT.replace("7", "8"))
    assert len({first.stdout, run(tmp_path, "shop.py").stdout}) == 2


@pytest.mark.servers
def test_a_table_in_a_notebook_needs_a_version_by_hand_and_the_reason_is_given(tmp_path, golden):
    """A notebook's main module has no file, as code given by -c."""
    refused = run(tmp_path, "-c", SCRIPT)
    assert refused.returncode == 1
    golden(refused.stderr.splitlines()[-1])
    by_hand = run(tmp_path, "-c", SCRIPT.replace("reads=", 'version="1", reads='))
    assert by_hand.stdout == "1\n", by_hand.stderr
