"""Everything that the README and the guides name exists: commands, settings, files, links, code."""

import ast
import importlib
import importlib.util
import json
import re

import pytest
from typer.exceptions import TyperException

import backfill_assets
from backfill_assets.settings import Settings
from tests.worlds.command_line import (
    COMMANDS,
    DOCUMENTS,
    GUIDES,
    PROJECT,
    Document,
    backfill_commands,
    options_of,
)

FILE = re.compile(r"(?:tests|backfill_assets|\.readme)/[\w./-]*")
every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=str)


def parse_command(words: list[str]) -> None:
    """Parse a command as the shell would, without running it. Raises TyperException for wrong
    usage.
    """
    name, *rest = words
    assert name in COMMANDS, f"there is no command {name}"
    COMMANDS[name].make_context(name, rest)


@every_document
def test_typed_commands_are_accepted(document: Document):
    wrong = {}
    for words in document.typed():
        try:
            parse_command(words)
        except (TyperException, AssertionError) as error:
            wrong[" ".join(words)] = repr(error)
    assert wrong == {}


@every_document
def test_commands_in_the_prose_exist_with_their_options(document: Document):
    wrong = []
    for name, *rest in document.named():
        # The prose names placeholders and leaves out values, so that only names are compared.
        named = {word for word in rest if word.startswith("--")}
        if name != "COMMAND" and (
            name not in COMMANDS or not named - {"--help"} <= options_of(name)
        ):
            wrong.append((name, named))
    assert wrong == []


def test_a_wrong_command_is_found():
    for words in (
        ["pubish"],
        ["plan", "--partition", "2019-09-01"],
        ["log", "--last", "two"],
        ["switch", "a/b"],
    ):
        with pytest.raises((TyperException, AssertionError)):
            parse_command(words)


def test_commands_are_found_within_a_line():
    assert backfill_commands("cd x && backfill plan --only 'a b'  # why") == [
        ["plan", "--only", "a b"]
    ]
    assert backfill_commands("pip install backfill") == []


@every_document
def test_options_in_the_prose_exist(document: Document):
    known = {option for command in COMMANDS for option in options_of(command)}
    of_other_programs = {"--times", "--help"}
    named = {re.split("[ =]", code)[0] for code in document.inline_code() if code.startswith("--")}
    assert named - of_other_programs <= known


@every_document
def test_python_compiles_and_its_imports_exist(document: Document):
    for block in document.blocks("python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@every_document
def test_settings_exist(document: Document):
    named = set(re.findall(r"BACKFILL_[A-Z_]+", document.text))
    assert named <= {f"BACKFILL_{name.upper()}" for name in Settings.model_fields}


@every_document
def test_projects_and_modules_exist(document: Document):
    modules = re.findall(r"BACKFILL_PROJECT=([\w.]+)|python -m ([\w.]+)", document.text)
    missing = [
        name for pair in modules for name in pair if name and importlib.util.find_spec(name) is None
    ]
    assert missing == []


@every_document
def test_names_of_the_package_exist(document: Document):
    named = set(re.findall(r"\bbackfill_assets\.([A-Za-z]\w*)", document.text))
    packages = {name for name in named if importlib.util.find_spec(f"backfill_assets.{name}")}
    assert {name for name in named - packages if not hasattr(backfill_assets, name)} == set()


@every_document
def test_files_and_tests_exist(document: Document):
    named = [code for code in document.inline_code() if FILE.fullmatch(code)]
    assert [name for name in named if not (PROJECT / name).exists()] == []


@every_document
def test_links_lead_to_a_file_and_a_heading(document: Document):
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", document.prose):
        file, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = Document((document.path.parent / file).resolve() if file else document.path)
        is_inside = document not in GUIDES or target.path.parent == document.path.parent
        if (
            not target.path.is_file()
            or not is_inside
            or (anchor and anchor not in target.anchors())
        ):
            wrong.append(link)
    assert wrong == []


def test_every_guide_is_linked_from_another_document():
    for each in GUIDES:
        others = [document.text for document in DOCUMENTS if document != each]
        assert any(f"{each.path.name}" in text for text in others), each


@every_document
def test_json_can_be_read(document: Document):
    for block in document.blocks("json"):
        json.loads(block)
