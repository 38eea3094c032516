"""The page of formats says what the code has, and what lakes hold: each document and field."""

import ast
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.digest import digest
from backfill_assets.errors import UsageError
from backfill_assets.lake import broken_files, object_store, storage
from backfill_assets.lake.ledger import _LEDGER_SCHEMA, BUILD_SCHEMA, HASHES, Build
from backfill_assets.lake.numbered_documents import NumberedDocuments
from backfill_assets.lake.recorded_acts import Acts
from backfill_assets.lake.running import RunningStep, announce, mark_running
from backfill_assets.plan.plan import ID_LENGTH, read_plan
from backfill_assets.sources.archives.loaded import loaded_archives
from backfill_assets.sources.protocol import require_usable
from backfill_assets.verify.verify import Verdicts
from tests.lake.make_golden_lake import write_lake
from tests.worlds.code import nodes_of
from tests.worlds.formats import DERIVED, PACKAGE, PAGE, Page, class_at, faults, rows_of, word_of
from tests.worlds.golden_lakes import ARCHIVES, PAST, SALES, area_of, unpacked
from tests.worlds.small_lake import DAYS, A, SmallLake, gets, publish, released

PAGE_OF_FORMATS = Page(PAGE.read_text())
STRUCTURES = PAGE_OF_FORMATS.structures
OF_A_SHADOW = re.compile(r"_shadow/\w+/(?!base\.json|preview\.json)")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with every kind of document, by today's code."""
    folder = tmp_path_factory.mktemp("fresh")
    write_lake(folder)
    return folder / "lake"


@pytest.fixture(scope="module", params=["fresh", *ARCHIVES], ids=lambda of: Path(of).name)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fresh lake, and the lakes of each form."""
    if request.param == "fresh":
        return request.getfixturevalue("fresh")
    return unpacked(request.param, tmp_path_factory.mktemp("golden")).lake.root


def documents(lake: Path) -> Iterator[tuple[str, Path]]:
    """Every file of a lake, with its place. In a shadow, which is a lake, places begin there."""
    for path in sorted(lake.rglob("*")):
        if path.is_file():
            yield OF_A_SHADOW.sub("", str(path.relative_to(lake))), path


def in_json(lake: Path) -> Iterator[tuple[str, str, Any]]:
    """The documents with a structure: the place, the type of the contents, and the contents. Their
    numbers and results, which are no fields, are left out.
    """
    for place, path in documents(lake):
        kind = PAGE_OF_FORMATS.kind_of(place)
        assert kind, place
        word, *more = kind.contents.split(", ")
        if word.removeprefix("map of ") in STRUCTURES:
            contents = json.loads(path.read_bytes())
            assert set(more) <= set(contents), place
            yield place, word, {k: v for k, v in contents.items() if k not in more}


@pytest.mark.parametrize("name", [name for name, of in STRUCTURES.items() if of.of])
def test_a_structure_has_the_fields_and_types_of_its_class(name):
    structure = STRUCTURES[name]
    assert list(structure.fields.items()) == list(structure.in_code.items())


def test_structures_name_only_structures_of_the_page():
    words = {word for of in STRUCTURES.values() for word in of.fields.values()}
    named = {name for word in words for name in re.findall(r"[A-Z]\w+", word)}
    assert named - set(STRUCTURES) == DERIVED


def test_every_class_that_a_documented_class_has_is_documented():
    classes = [of.of for of in STRUCTURES.values() if of.of]
    assert len(classes) == len(set(classes)) >= 20


def test_every_file_of_a_lake_has_a_place_on_the_page(lake):
    assert [place for place, _ in documents(lake) if not PAGE_OF_FORMATS.kind_of(place)] == []


def test_documents_have_the_fields_of_the_page(lake, fresh):
    wrong = [
        f"{place}: {fault}"
        for place, word, contents in in_json(lake)
        for fault in faults(PAGE_OF_FORMATS, word, contents, complete=lake == fresh)
    ]
    # A golden lake may lack fields that are newer.
    assert wrong == []


def test_a_fresh_lake_has_every_kind_of_document_that_a_local_lake_can_have(fresh):
    found = {kind.name for place, _ in documents(fresh) if (kind := PAGE_OF_FORMATS.kind_of(place))}
    elsewhere = {
        "last known number",  # in an object store
        "clock of the store",
        "mark of a newer form",  # by a newer version
        "page of a diff",  # by people
        "budget of a service",  # by a request to a service
        "mark of a running step",  # while it runs
        "announced act",
        "last backup",
        "place of a table outside of the lake",  # by an adoption
        "told incidents",  # by a look for alerts
        "mark of a restore",  # while it runs
        "file moved aside",  # by a repair
        "probe",
    }
    assert {kind.name for kind in PAGE_OF_FORMATS.kinds} - found == elsewhere


def test_marks_have_the_structure_of_the_page(tmp_path):
    root = str(tmp_path)
    with mark_running(root, RunningStep(A.name, [DAYS[0]], "a run")), announce(root, "an act"):
        found = {place: path.read_bytes() for place, path in documents(tmp_path)}
    kinds = {
        kind.name: contents
        for place, contents in found.items()
        if (kind := PAGE_OF_FORMATS.kind_of(place))
    }
    assert set(kinds) == {"mark of a running step", "announced act"}
    marked = json.loads(kinds["mark of a running step"])
    assert faults(PAGE_OF_FORMATS, "RunningStep", marked, complete=True) == []


def test_commits_have_the_metadata_of_the_page(lake, fresh):
    found = set[bool]()
    for place, path in documents(lake):
        is_ours = not place.startswith("_ledger") and re.search(r"_delta_log/\d+\.json$", place)
        for line in path.read_text().splitlines() if is_ours else ():
            metadata = json.loads(line).get("commitInfo", {}).get("userMetadata")
            if metadata:
                values = json.loads(metadata)
                wrong = faults(PAGE_OF_FORMATS, "CommitMetadata", values, complete=lake == fresh)
                found.add(values["complete"])
                assert wrong == []
    assert found == {True}


def test_the_ledger_has_the_columns_of_the_page(lake, fresh):
    row = STRUCTURES["Ledger row"]
    expected = [*STRUCTURES["Build"].fields, *row.fields]
    assert expected == _LEDGER_SCHEMA.names
    words = {pa.int64(): "integer", pa.date32(): "day"}
    for field in HASHES:
        is_list = pa.types.is_list(field.type)
        word = words[field.type.value_type if is_list else field.type]
        assert row.fields[field.name] == (f"list of {word}" if is_list else word)
    nested = {name for name, word in STRUCTURES["Build"].fields.items() if " of " in word}
    assert {BUILD_SCHEMA.field(name).type for name in nested} == {pa.string()}
    for place, path in documents(lake):
        kind = PAGE_OF_FORMATS.kind_of(place)
        if kind and kind.name == "ledger":
            columns = ["table", *pq.read_schema(path).names]
            assert set(columns) <= set(expected)
            assert lake != fresh or set(columns) == set(expected)


def test_facts_about_a_table_have_the_fields_of_the_page(fresh):
    (path,) = fresh.glob("_table_facts/*.arrow")
    rows = pa.ipc.open_file(path.read_bytes()[:-4]).read_all()
    about = json.loads(rows.schema.metadata[b"about"])
    assert (rows.schema.names, set(about)) == (["day", "hash"], {"format", "log", "columns"})
    assert faults(PAGE_OF_FORMATS, "TableColumns", about["columns"], complete=True) == []


def test_parts_of_splits_have_fields_of_file_contents(lake):
    for _, word, contents in in_json(lake):
        splits = {"Split": [contents], "map of LoadedArchive": [*contents.values()]}.get(word, [])
        for part in (part for split in splits for part in split["parts"].values()):
            assert set(part) <= set(STRUCTURES["FileContents"].fields)


def test_numbers_of_documents_are_those_of_the_code():
    section = PAGE_OF_FORMATS.text.partition("## Numbers of documents\n")[2]
    rows = rows_of(section.partition("\n## ")[0])
    assert len(rows) == 6
    for _, constant, number, _ in rows:
        [(name, path)] = re.findall(r"`(\w+)` in `([\w/]+\.py)`", constant)
        assert str(class_at(name, path)) == number


def test_events_have_the_facts_of_the_page(lake):
    section = PAGE_OF_FORMATS.text.partition("## Events of plans\n")[2].partition("\n## ")[0]
    facts = {kind: set(names.split(", ")) for kind, names in rows_of(section)}
    events = [contents for _, word, contents in in_json(lake) if word == "Event"]
    assert {event["kind"] for event in events} >= {"started", "requested", "ended"}
    for event in events:
        assert set(event["facts"]) <= facts[event["kind"]]
    noted = {
        keyword.arg
        for path in PACKAGE.rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and len(node.args) == 3
        if isinstance(node.func, ast.Attribute) and node.func.attr == "note"
        for keyword in node.keywords
    }
    assert noted - {None} <= set().union(*facts.values())


def constants_in(node: ast.expr) -> list[str]:
    """The text of an argument. A name that is given on has none."""
    return [ast.literal_eval(node)] if isinstance(node, ast.Constant) else []


def folders_in_code() -> set[str]:
    """The folders at the top of a lake that the code names."""
    modules = (storage, object_store, broken_files)
    constants = [value for module in modules for value in vars(module).values()]
    found = {value for value in constants if isinstance(value, str)}
    for path in PACKAGE.rglob("*.py"):
        for node in nodes_of(path):
            if isinstance(node, ast.JoinedStr) and len(node.values) > 1:
                text = node.values[1]
                if isinstance(text, ast.Constant) and str(text.value).startswith("/_"):
                    found.add(str(text.value)[1:].partition("/")[0])
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if is_call and node.func.id == NumberedDocuments.__name__:  # type: ignore[attr-defined]
                found |= set(constants_in(node.args[1]))  # type: ignore[attr-defined]
    return {name for name in found if re.fullmatch(r"_[a-z_]+", name)}


def test_every_folder_that_the_code_names_is_on_the_page():
    listed = {kind.place.partition("/")[0] for kind in PAGE_OF_FORMATS.kinds}
    of_tables = {"_delta_log", broken_files.LAST_CHECKPOINT}
    others = {"_budget"}  # a file in a folder of the page
    assert folders_in_code() - of_tables - others == {
        name
        for name in listed
        if name.startswith("_") and name not in ("_probe-<letters>", "_backup.json")
    }


def with_unknown_fields(value: Any) -> Any:
    """The value with one more field in each structure, which has at least three fields."""
    if isinstance(value, list):
        return [with_unknown_fields(each) for each in value]
    if not isinstance(value, dict):
        return value
    more = {"of a later version": [1]} if len(value) > 2 and all(map(is_field, value)) else {}
    return {name: with_unknown_fields(each) for name, each in value.items()} | more


def is_field(name: str) -> bool:
    fields = {name for of in STRUCTURES.values() for name in of.fields}
    return name in fields | {"format", "result", "entry", "act"}


@pytest.fixture
def later(tmp_path: Path) -> SmallLake:
    """A lake in which each document but the plans has fields that this version does not know."""
    write_lake(tmp_path)
    changed = set[str]()
    for place, path in documents(tmp_path / "lake"):
        kind = PAGE_OF_FORMATS.kind_of(place)
        assert kind
        word = kind.contents.split(", ")[0].removeprefix("map of ")
        if word in STRUCTURES and word != "Plan":
            contents = json.loads(path.read_bytes())
            path.write_text(json.dumps(with_unknown_fields(contents)))
            changed.add(kind.name)
    assert len(changed) == 11, changed
    return SmallLake(tmp_path / "lake")


def test_unknown_fields_are_ignored(later):
    root = str(later.root)
    assert gets(later, "candidate")[DAYS[2]] == 30
    assert all(later.plans.history(plan_id) for plan_id in later.plans.ids())
    begun = Acts(root).unfinished()
    assert begun
    verdict = Verdicts(root).newest(begun[1].plan)
    assert verdict
    assert verdict.passed
    area = area_of(later.root.parent)
    assert loaded_archives(area, PAST.name).of_day(DAYS[0])
    assert require_usable(SALES.delivered(area, DAYS[:2])).keys() == set(DAYS[:2])
    publish(later, later.plans.read(begun[1].plan))
    assert released(later)[DAYS[0]] == 40


def test_a_plan_with_another_field_is_refused(fresh):
    """Its id is a hash of all its fields, so that older code takes it for an edited plan."""
    plans = SmallLake(fresh).plans
    contents = plans.read(plans.ids()[0]).contents()[:-1] + ', "of a later version": 1}'
    with pytest.raises(UsageError, match="was edited"):
        read_plan(contents, digest(contents, length=ID_LENGTH))


def test_fields_that_documents_may_lack_have_defaults():
    required = {
        field.name
        for field in dataclasses.fields(Build)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    assert required == {"table", "day", "outcome", "run", "code_version"}


def test_a_missing_field_another_type_and_an_unknown_place_are_found():
    channels = dict.fromkeys(STRUCTURES["Channels"].fields, "") | {"newer": 1}
    del channels["kind"]
    found = faults(PAGE_OF_FORMATS, "Channels", channels, complete=True)
    assert {".newer is not on the page", ".kind is missing", ".number is not integer: ''"} <= set(
        found
    )
    assert PAGE_OF_FORMATS.kind_of("_notes/1.json") is None
    assert PAGE_OF_FORMATS.kind_of("_acts/000000001-again.json") is None
    assert word_of(dict[str, int | None]) == "map of (integer or null)"
