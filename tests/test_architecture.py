"""The documentation for maintainers names only what exists: files, names, commands and links."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from backfill_assets.cli.app import app
from tests.worlds.code import nodes_of

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "backfill_assets"
ARCHITECTURE = PACKAGE / "ARCHITECTURE.md"
DECISIONS = PACKAGE / "decisions"
PAGES = sorted(page for page in DECISIONS.glob("*.md") if page.name != "README.md")
DOCUMENTS = [ARCHITECTURE, DECISIONS / "README.md", *PAGES]
# Pages that people look things up in: they may be longer than a screen, with wide tables.
REFERENCES = {"formats", "threat-model"}
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)

SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)[^)]*\)")
FILE = re.compile(r"[\w./-]+\.(py|md|yaml|toml)")
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# `Build` in `lake/ledger.py`, or a row of a table: | `Build` | `lake/ledger.py` |
PLACED = re.compile(r"`([A-Za-z_]\w*)` (?:in|\|) `([\w/]+\.py)`")

# What the documents name of other software. A name of ours never belongs here.
FOREIGN = {
    "AssetCheckResult",
    "BETWEEN",
    "FROM_FAILURE",
    "IN",
    "MaterializeResult",
    "PipelineModel.save",
    "RESTORE",
    "assetSelection",
    "dagster/input_event_pointer/X",
    "fetch_materializations",
    "get_latest_storage_id_by_partition",
    "getattr",
    "kafka.Kafka",
    "launchPartitionBackfill",
    "max_partitions_per_run",
    "moto",
    "partitionNames",
    "replaceWhere",
    "reportRunlessAssetEvents",
    "runConfigData",
    "run_monitoring",
    "s3proxy",
    "txnAppId",
    "txnVersion",
}


def unknown(text: str) -> list[str]:
    """The names in backticks that look like ours and do not exist."""
    missing = [span for span in SPAN.findall(text) if not is_there(span)]
    misplaced = [
        f"{name} in {path}"
        for name, path in PLACED.findall(text)
        if is_there(path) and name not in defined_in(PACKAGE / path)
    ]
    return [*missing, *misplaced]


def is_there(span: str) -> bool:
    if span == "backfill_assets/":
        return True
    if span.startswith("backfill "):
        return span.split()[1] in get_command(app).commands  # type: ignore[attr-defined]
    if "<" in span or "**" in span:
        return True
    if span.startswith("BACKFILL_"):
        return span.removeprefix("BACKFILL_").lower() in defined_in(PACKAGE / "settings.py")
    file, _, test = span.partition("::")
    if test:
        return is_there(file) and test in defined_in(PROJECT / file)
    if FILE.fullmatch(span):
        return (PACKAGE / span).is_file() or (PROJECT / span).is_file()
    if "/" in span:
        is_in_a_lake = span.startswith("_") and set(span.split("/")) <= texts()
        is_folder = (PACKAGE / span).is_dir() or (PROJECT / span).is_dir()
        return is_folder or is_in_a_lake or span in texts() | FOREIGN
    if NAME.fullmatch(span):
        return is_name(span)
    return True


def is_name(span: str) -> bool:
    first, _, member = span.partition(".")
    if span in FOREIGN or span in texts() or (PACKAGE / span).is_dir():
        return True
    if member:
        return first in members() and member in members()[first]
    return span in names()


@cache
def defined_in(path: Path) -> set[str]:
    """Every name that a module defines: its own, and those of its classes and parameters."""
    found = set[str]()
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@cache
def members() -> dict[str, set[str]]:
    """The names within each class and each module of the package."""
    found = dict[str, set[str]]()
    for path in PACKAGE.rglob("*.py"):
        found.setdefault(path.stem, set()).update(defined_in(path))
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                within = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
                within |= {field.id for field in fields if isinstance(field, ast.Name)}
                found.setdefault(node.name, set()).update(within)
    return found


@cache
def names() -> set[str]:
    """Every name that the package defines or imports."""
    found = set[str]()
    for path in PACKAGE.rglob("*.py"):
        found |= defined_in(path)
        for node in nodes_of(path):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.update(part for alias in node.names for part in alias.name.split("."))
            if isinstance(node, ast.ImportFrom) and node.module:
                found.update(node.module.split("."))
    return found


@cache
def texts() -> set[str]:
    """Every text in the package's code that is one word, docstrings left out."""
    found = set[str]()
    for path in PACKAGE.rglob("*.py"):
        docstrings = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
        constants = (node for node in nodes_of(path) if isinstance(node, ast.Constant))
        found.update(
            node.value
            for node in constants
            if isinstance(node.value, str) and " " not in node.value and id(node) not in docstrings
        )
    return found


def mentioned(text: str) -> Iterator[str]:
    """Every file or folder in backticks, with the folders that it is in."""
    for span in SPAN.findall(text):
        path = Path(span)
        yield from (str(parent) for parent in (path, *path.parents))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_every_name_in_backticks_exists(document):
    assert unknown(document.read_text()) == []


@pytest.mark.parametrize(
    "span",
    [
        pytest.param("lake/nothing.py", id="a file"),
        pytest.param("tests/test_nothing.py", id="a file of tests"),
        pytest.param("tests/test_style.py::test_nothing", id="a test"),
        pytest.param("tests/test_nothing.py::test_nothing", id="a test in no file"),
        pytest.param("lake/nothing", id="a package"),
        pytest.param("commit_and_forget", id="a function"),
        pytest.param("Step.walk", id="a method"),
        pytest.param("backfill nothing", id="a command"),
        pytest.param("BACKFILL_NOTHING", id="a setting"),
    ],
)
def test_a_name_that_does_not_exist_is_found(span):
    assert unknown(f"See `{span}` and `errors.py`.") == [span]


def test_a_name_in_another_file_is_found():
    assert unknown("`Workspace` in `errors.py`") == ["Workspace in errors.py"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_every_link_resolves(document):
    targets = [link for link in LINK.findall(document.read_text()) if "://" not in link]
    assert [link for link in targets if not (document.parent / link).is_file()] == []


def test_the_architecture_mentions_every_package():
    known = set(mentioned(ARCHITECTURE.read_text()))
    assert [
        str(path.relative_to(PACKAGE)) for path in PACKAGES if not _is_mentioned(path, known)
    ] == []


def _is_mentioned(package: Path, known: set[str]) -> bool:
    return str(package.relative_to(PACKAGE)) in known


def test_the_architecture_is_short_enough_to_read():
    assert len(ARCHITECTURE.read_text().split()) <= 1800


def test_the_index_lists_every_decision_once():
    listed = LINK.findall("".join(_rows(DECISIONS / "README.md")))
    assert sorted(listed) == [page.name for page in PAGES]


def _rows(page: Path) -> list[str]:
    return [line for line in page.read_text().splitlines(keepends=True) if line.startswith("| [")]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_decision_has_a_title_a_status_and_sections_on_one_screen(page):
    lines = page.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert lines[2].startswith("Status: ")
    assert "## Consequences" in lines
    if page.stem in REFERENCES:
        lines = [line for line in lines if not line.startswith("|")]
    assert 10 <= len(lines) <= (40 if page.stem not in REFERENCES else 400)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_says_what_it_does_and_which_file_to_read_first(package):
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    does, _, does_not, *more = docstring.splitlines()
    assert does.startswith(f"{package.name}: ")
    assert len(does) <= 90
    assert does_not.startswith("Does not ")
    first = re.match(r"Read `([\w/]+\.py)` first", "\n".join(more))
    assert first, "its last line says `Read FILE first`"
    assert (package / first[1]).is_file()
