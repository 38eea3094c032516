"""Which tests there are in a run: their marks, their order, and how much they try."""

import gc
import random
import shutil
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest

from tests.worlds.depth import load_depth, tries_everything
from tests.worlds.suite import FIRST_PROCESS, SUITE, end_engine

# What is imported and collected stays: looking for garbage among it again and again took a sixth of
# the time of collecting.
gc.set_threshold(50_000, 10, 10)

# After the pure tests, the longest files go first, so that none is alone at the end. Those that
# mostly wait for servers begin, so that other processes compute meanwhile.
EARLY = (
    "tests/journeys/test_journeys.py",
    "tests/journeys/test_demo.py",
    "tests/orchestration/test_runs.py",
    "tests/sources/test_kafka.py",
    "tests/journeys/",
    "tests/scale/",
    "tests/orchestration/test_fed_by_arrival.py",
    "tests/publish/test_in_an_object_store.py",
    "tests/simulation/",
    "tests/lake/test_on_the_engine.py",
    "tests/step/",
    "tests/benchmarks/",
    "tests/models/",
    "tests/publish/",
    "tests/datasets/",
    "tests/reproduce/",
    "tests/test_own_project.py",
    "tests/lake/",
    "tests/orchestration/",
)

# A test without any of these marks is `pure`.
MARKS = ("lake", "spark", "servers", "services", "scale", "nightly")
FIXTURES_OF = {
    "lake": {"given", "office"},
    "spark": {"spark"},
    "services": {"postgres", "running", "server", "endpoint", "weather"},
    "scale": {"sixty"},
}
# Worlds that write Delta tables, plans, or records of Dagster.
LAKES = (
    "tests.worlds.small_lake",
    "tests.worlds.recorded",
    "tests.worlds.code_location",
    "tests.worlds.webservers",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", type=int, help="the seed that a random test has printed, to run it again"
    )
    parser.addoption(
        "--golden", action="store_true", help="write the golden files of these tests again"
    )


def pytest_configure(config: pytest.Config) -> None:
    load_depth(config.option.markexpr)


def pytest_sessionstart(session: pytest.Session) -> None:
    # The process that only distributes tests need not import what they use.
    plugins = session.config.pluginmanager
    if not plugins.has_plugin("dsession"):
        plugins.import_plugin("tests.worlds.fixtures")
    if hasattr(session.config, "workerinput"):
        import_share(session.config)


def import_share(config: pytest.Config) -> None:
    """Import this process's share of the modules to collect, before it collects all of them.

    In a new clone, pytest compiles each module in the process that imports it first. If all
    processes begin with the same module, each of them compiles all.
    """
    number = int(config.workerinput["workerid"].removeprefix("gw"))  # type: ignore[attr-defined]
    count = config.workerinput["workercount"]  # type: ignore[attr-defined]
    files = sorted(file for place in config.args for file in Path(place).rglob("test_*.py"))
    for file in files[number::count]:
        # Collecting shows the error.
        with suppress(Exception):
            parts = file.resolve().relative_to(config.rootpath).with_suffix("").parts
            import_module(".".join(parts))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three processes on two cores, because tests with servers mostly wait. Pure tests compute, so
    that a third process would only collect the tests again.
    """
    return 2 if config.option.markexpr == "pure" else 3


def needs_of(item: pytest.Item) -> set[str]:
    """What a test needs beyond this process: by its marks, by its fixtures, and by the worlds that
    its module imports. A test of `nightly` or `scale` has that mark alone, so that no other mark
    selects it. In a run of `scale`, so has each property, for all its examples.
    """
    if item.get_closest_marker("nightly"):
        return {"nightly"}
    marked = {name for name in MARKS if item.get_closest_marker(name)}
    fixtures = set(getattr(item, "fixturenames", ()))
    needs = marked | {name for name, needed in FIXTURES_OF.items() if needed & fixtures}
    is_property = hypothesis.is_hypothesis_test(getattr(item, "obj", None))
    is_long = item.get_closest_marker("long") and needs & {"spark", "servers", "services"}
    if "scale" in needs or is_long or (is_property and tries_everything()):
        return {"scale"}
    return needs | ({"lake"} if uses_a_lake(item.module) else set())  # type: ignore[attr-defined]


@cache
def uses_a_lake(module: ModuleType) -> bool:
    classes = (
        kind for value in vars(module).values() if isinstance(value, type) for kind in value.__mro__
    )
    return any(
        getattr(value, "__module__", "") in LAKES for value in (*vars(module).values(), *classes)
    )


def place_of(item: pytest.Item) -> int:
    """Where a test's file stands in the whole run."""
    if item.get_closest_marker("pure"):
        return 0
    return next(
        (n for n, path in enumerate(EARLY, 1) if item.nodeid.startswith(path)), len(EARLY) + 1
    )


# Before pytest deselects by `-m`, so that it finds these marks too.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        needs = needs_of(item)
        for name in needs or {"pure"}:
            item.add_marker(name)
    items.sort(key=place_of)


def pytest_collection_finish() -> None:
    # What is collected stays until the end.
    gc.freeze()


def pytest_sessionfinish() -> None:
    if FIRST_PROCESS:
        end_engine()
        shutil.rmtree(SUITE, ignore_errors=True)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a random test: the one of `--seed`, or a new one, which is shown if the test
    fails.
    """
    given = request.config.getoption("--seed")
    seed = random.randrange(10**6) if given is None else given
    print(f"again with: --seed {seed}")
    return seed
