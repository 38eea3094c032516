"""Golden files hold the wording of tests that exist."""

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.worlds.golden import TESTS, Golden, read_golden

FILES = sorted(file for file in TESTS.rglob("*.txt") if "golden" in (file.stem, file.parent.name))


@cache
def functions(file: Path) -> set[str]:
    if not file.exists():
        return set()
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef)
    }


def test_each_golden_text_belongs_to_a_test():
    gone = []
    for file in FILES:
        folder = file.parent if file.stem == "golden" else file.parent.parent
        for heading in read_golden(file):
            module, _, test = heading.partition("::")
            if test.split("[")[0].split(" ")[0] not in functions(folder / module):
                gone.append((str(file), heading))
    assert (bool(FILES), gone) == (True, [])


def test_a_text_that_differs_or_is_not_there_fails_and_is_written_on_request(tmp_path):
    check = Golden(tmp_path, "test_a.py::test_b", {str(tmp_path): "<tmp>"}, writes=False)
    with pytest.raises(AssertionError):
        check("one")
    for text in (f"in {tmp_path}", f"plan 12 in {tmp_path}"):
        Golden(tmp_path, "test_a.py::test_b", {str(tmp_path): "<tmp>"}, writes=True)(text, ID=12)
    Golden(tmp_path, "test_a.py::test_a", {}, writes=True)("two\n\nlines ")
    assert (tmp_path / "golden.txt").read_text() == (
        "=== test_a.py::test_a\ntwo\n\nlines\n=== test_a.py::test_b\nplan <ID> in <tmp>\n"
    )
    check(f"plan 7 in {tmp_path}", ID=7)
    with pytest.raises(AssertionError):
        check("plan 7 here", ID=7)


def test_errors_mappings_and_lists_are_compared_as_lines(tmp_path):
    check = Golden(tmp_path, "test_a.py::test_b", {}, writes=True)
    check({1: "one", 2: "two"}, "mapping")
    check([1, "f at 0x7f"], "list")
    with check.raises(ValueError, "error") as raised:
        raise ValueError("three")
    assert str(raised.value) == "three"
    assert [*read_golden(tmp_path / "golden.txt").values()] == [
        "three\n",
        "1\nf at <address>\n",
        "1: one\n2: two\n",
    ]
    with pytest.raises(AssertionError), replace(check, writes=False).raises(ValueError, "error"):
        raise ValueError("four")
