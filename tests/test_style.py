"""The codebase's rules: imports between packages, what a command loads, where files lie."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.worlds.code import nodes_of, tree_of

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "backfill_assets"
TOP = {"pyproject.toml", "backfill_assets", "tests", "workspace.yaml", "dagster.yaml", "README.md"}
LONGEST = 600
# Files that may be longer, each with the reason.
LONGER: dict[str, str] = {}

# What each package, or module at the top, may import; `OPEN_TO_ALL` are open to all. Dagster
# and Spark are listed like packages. The root, `backfill_assets/__init__.py`, only forwards names,
# and is left out.
ARROWS = {
    "errors": "",
    "calendar": "",
    "digest": "",
    "grouping": "",
    "no_day": "",
    "tries": "",
    "user": "",
    "git": "",
    "project_file": "",
    "settings": "project_file",
    "quality": "spark",
    "sources": "lake quality settings spark",
    "lake": "settings spark",
    "tables": "lake quality settings sources",
    "point_in_time": "quality tables spark",
    "models": "lake point_in_time quality reading tables spark",
    "datasets": "models point_in_time quality sources tables root spark",
    "project": "project_file tables",
    "reading": "lake settings tables spark",
    "workspace": "lake project settings sources tables",
    "step": "lake point_in_time quality sources tables workspace spark",
    "plan": "lake step tables workspace",
    "publish": "lake plan tables workspace",
    "diff": "lake plan quality tables workspace",
    "alerts": "lake plan publish settings sources verify workspace",
    "reproduce": "diff lake quality sources step tables workspace spark",
    "verify": "diff lake plan publish quality tables workspace",
    "impact": "diff git lake plan project step tables workspace spark",
    "dagster_client": "",
    "rebuild": "dagster_client lake plan reconcile workspace",
    "reconcile": "dagster_client lake tables",
    "servers": "dagster_client lake project_file settings",
    "testing": "lake quality step tables spark",
    "verbs": (
        "alerts dagster_client diff impact lake plan publish quality reading rebuild reconcile"
        " reproduce servers settings sources step verify workspace"
    ),
    "orchestration": (
        "dagster_client diff git lake plan publish rebuild reconcile reproduce servers"
        " root settings step tables verbs verify workspace dagster spark"
    ),
    "cli": (
        "alerts dagster_client datasets diff lake plan publish rebuild servers settings verbs"
        " workspace"
    ),
}
SPARKLESS = ("plan", "publish", "diff", "verify", "rebuild", "reconcile", "alerts", "verbs")
OPEN_TO_ALL = {"errors", "calendar", "digest", "grouping", "no_day", "tries", "user"}
IS_TEST = re.compile(r"^tests\.(.*\.)?test_")
# Only files with such lines are parsed for the rules of tests and of all files.
OUTSIDE_OF_WORLDS = re.compile(r"^\s*(?:from|import) tests(?!\.worlds\b)", re.MULTILINE)
SEVERAL_NAMES = re.compile(r"^\s*[(\[]?\w+(?:, *\w+)+,?[)\]]? = ", re.MULTILINE)
READ_SETTINGS = {"read_settings", "open_workspace", "Settings", "getenv"}


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    return [PROJECT / name for name in listed.splitlines() if (PROJECT / name).is_file()]


def package_of(path: Path) -> str:
    """The package below the root that a file belongs to; a module beside the packages by its own
    name.
    """
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py").replace("__init__", "root")


def imported_modules(path: Path) -> Iterator[str]:
    """The modules that a file imports anywhere in it, inside of functions too."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.partition(".")[0] in ("backfill_assets", "tests")
        ):
            # A name of a package may be one of its modules.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def imports_of(path: Path) -> Iterator[str]:
    """The packages, and Dagster and Spark, that a file imports."""
    for module in imported_modules(path):
        top, _, rest = module.partition(".")
        if top == "backfill_assets":
            package = rest.partition(".")[0]
            yield package if package in ARROWS else "root"
        elif top.startswith("dagster"):
            yield "dagster"
            if top == "dagster_pyspark":
                yield "spark"
        elif top in ("pyspark", "delta"):
            yield "spark"


@pytest.mark.parametrize("package", ARROWS)
def test_a_package_imports_only_what_its_arrows_allow(package):
    allowed = {package, *OPEN_TO_ALL, *ARROWS[package].split()}
    files = [path for path in PACKAGE.rglob("*.py") if package_of(path) == package]
    assert files, f"{package} has no file: take it out of the table"
    wrong = {
        str(path.relative_to(PACKAGE)): names
        for path in files
        if (names := set(imports_of(path)) - allowed)
    }
    assert wrong == {}


def test_every_package_has_its_arrows_and_they_make_no_circle():
    assert {package_of(path) for path in PACKAGE.rglob("*.py")} == {*ARROWS, "root"}
    TopologicalSorter({package: allowed.split() for package, allowed in ARROWS.items()}).prepare()


@pytest.mark.servers
@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        pytest.param(
            ["backfill_assets"],
            {"dagster", "pyspark", "deltalake", "pydantic", "backfill_assets.tables"},
            id="the root loads nothing until a name of it is used",
        ),
        pytest.param(
            ["backfill_assets.cli.app"],
            {"dagster", "pyspark", "pandas", "deltalake", "httpx"},
            id="the command line loads nothing heavy before a command is called",
        ),
        pytest.param(
            [
                f"backfill_assets.{path.parent.name}.{path.stem}"
                for name in SPARKLESS
                for path in sorted((PACKAGE / name).glob("*.py"))
            ],
            {"dagster", "pyspark", "backfill_assets.datasets"},
            id="plans and rebuilds load neither Dagster nor Spark nor a dataset",
        ),
        pytest.param(
            [
                f"backfill_assets.{name}"
                for name in ("lake.ledger", "lake.lake", "reading", "settings")
            ],
            {"dagster", "pyspark", "backfill_assets.tables"},
            id="the lake's small records and releases are read without Spark",
        ),
    ],
)
def test_importing_loads_nothing_heavy(modules, absent):
    program = f"import sys, {', '.join(modules)}\nprint(*sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def run_at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that is evaluated when a module is imported: all but bodies of functions and `if
    __name__ == '__main__'`.
    """
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += [
                *node.decorator_list,
                *node.args.defaults,
                *(default for default in node.args.kw_defaults if default),
            ]
        elif not isinstance(node, ast.Lambda) and not (
            isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        ):
            pending += ast.iter_child_nodes(node)


def test_no_setting_is_read_when_a_module_is_imported():
    calls = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        for node in run_at_import(tree_of(path))
        if isinstance(node, ast.Call)
        if (name := getattr(node.func, "id", getattr(node.func, "attr", ""))) in READ_SETTINGS
    }
    assert calls == set()


def test_no_file_is_too_long_unless_there_is_a_reason():
    paths = [path for top in ("backfill_assets", "tests") for path in (PROJECT / top).rglob("*.py")]
    lines = {str(path.relative_to(PROJECT)): len(path.read_text().splitlines()) for path in paths}
    assert {name for name, number in lines.items() if number > LONGEST} == LONGER.keys()


def test_names_of_tests_have_at_most_80_characters():
    text = "".join(path.read_text() for path in (PROJECT / "tests").rglob("test_*.py"))
    names = re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE)
    assert [name for name in names if len(name) > 80] == []


def test_no_test_module_imports_another():
    """What tests share is in `tests/worlds`."""
    files = [
        path
        for path in (PROJECT / "tests").rglob("*.py")
        if OUTSIDE_OF_WORLDS.search(path.read_text())
    ]
    modules = {path: imported_modules(path) for path in files}
    wrong = {
        str(path.relative_to(PROJECT)): names
        for path, of in modules.items()
        if (names := set(filter(IS_TEST.search, of)))
    }
    assert wrong == {}


def test_the_top_level_holds_nothing_else():
    names = {path.relative_to(PROJECT).parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} <= TOP


def test_nothing_tracked_names_a_registry_or_a_path_of_one_machine():
    wrong = re.compile(
        r"https?://[\w.-]*(pypi|pythonhosted|artifactory|nexus|repo1?\.maven)[\w./-]*|/(tmp/v|work/main|work/shared)/"
    )
    me = Path(__file__).resolve()
    text = [path for path in tracked() if path.suffix not in (".gz", ".png", ".xz") and path != me]
    assert {
        str(path.relative_to(PROJECT)): m.group()
        for path in text
        if (m := wrong.search(path.read_text()))
    } == {}


def packs(path: Path) -> Iterator[str]:
    """The assignments of several values to plain names in one statement, swaps excepted."""
    if not SEVERAL_NAMES.search(path.read_text()):
        return
    for node in nodes_of(path):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Tuple):
            continue
        names = {name.id for name in target.elts if isinstance(name, ast.Name)}
        values = {name.id for name in node.value.elts if isinstance(name, ast.Name)}
        if len(names) == len(target.elts) and names != values:
            yield f"{path.relative_to(PROJECT)}:{node.lineno}"


def test_a_statement_assigns_one_value():
    files = [path for path in tracked() if path.suffix == ".py"]
    assert [pack for path in files for pack in packs(path)] == []


# Words that readers of English as a second language stumble over.
def test_every_window_has_a_partition():
    """Spark warns about a window without one, in the first run of a new project too."""
    found = [
        str(path)
        for path in tracked()
        if path.is_relative_to(PACKAGE)
        and path.suffix in (".py", ".jinja", ".md")
        and re.search(r"\bWindow\.(orderBy|rowsBetween|rangeBetween)\(", path.read_text())
    ]
    assert found == []


UNUSUAL = re.compile(
    r"\b(anew|besides|mends?|mended|mending|nobody|somebody|whoever|none that)\b", re.I
)


def docstrings(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def test_docstrings_begin_with_a_short_line_that_is_a_sentence():
    first_lines = [
        docstring.splitlines()[0]
        for path in PACKAGE.rglob("*.py")
        for docstring in docstrings(path)
        if docstring
    ]
    assert [line for line in first_lines if len(line) > 90 or not line.endswith(".")] == []


def test_the_package_uses_usual_words():
    found = {
        f"{path.relative_to(PACKAGE)}:{number}": line
        for path in PACKAGE.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNUSUAL.search(line)
    }
    assert found == {}
