"""`backfill init`: what is guessed from files and Delta tables, and what is refused."""

import gzip
import os
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backfill_assets import Csv, DeltaSource, Landing
from backfill_assets.errors import UsageError
from backfill_assets.project import load
from backfill_assets.tables.declaration import Table
from backfill_assets.verbs.init import InitReport, init
from tests.worlds.command_line import backfill_main

pytestmark = pytest.mark.lake
GERMAN = (
    "Nummer;Größe;Preis;PLZ;Verkauft am\n"
    "1;Weiß;1.250,50;01234;01.06.2024 09:30\n"
    "2;Weiß;3,5;09999;21.06.2024 17:05\n"
)


def tables_of(folder: Path) -> tuple[Table, Table]:
    """The tables of a new project, raw first."""
    sys.path.insert(0, str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]
    load.cache_clear()
    try:
        raw, feature = load(f"{folder.name}.definitions", folder).tables
    finally:
        sys.path.remove(str(folder))
    return raw, feature


def begun(tmp_path: Path, text: str, encoding: str = "utf-8", name: str = "sales.csv") -> Table:
    """The raw table of a project that begins with a CSV file."""
    file = tmp_path / name
    file.write_text(text, encoding)
    init("company", tmp_path, "", file)
    return tables_of(tmp_path / "company")[0]


def fields_of(raw: Table) -> dict[str, tuple[str, ...]]:
    source = raw.source()
    assert isinstance(source, Landing)
    return {each.names[0]: (each.name, each.type, *each.formats) for each in source.fields}


def test_a_project_without_data_has_rows_of_its_own(tmp_path, golden):
    report = init("company", tmp_path, "", None)
    golden("\n".join(map(str, report.lines())), command="init", folder=tmp_path)
    raw, feature = tables_of(tmp_path / "company")
    assert (raw.name, raw.key) == ("raw/orders", ["order"])
    assert feature.name == "features/orders_daily"
    assert {str(path.relative_to(report.folder)) for path in report.folder.rglob("*.*")} >= {
        ".env",
        ".gitignore",
        "company/__init__.py",
        "company/definitions.py",
        "company/tables.py",
        "deliveries/orders/orders.csv",
        "pyproject.toml",
        "tests/test_tables.py",
    }
    assert [path for path in tmp_path.iterdir() if path != report.folder] == []


@pytest.mark.servers
def test_a_new_project_passes_the_usual_linter(tmp_path):
    init("company", tmp_path, "", None)
    for arguments in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "."]
        subprocess.run(command, cwd=tmp_path / "company", check=True)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_the_dialect_of_a_german_file_is_guessed(tmp_path, encoding):
    raw = begun(tmp_path, GERMAN, encoding)
    source = raw.source()
    assert isinstance(source, Landing)
    assert isinstance(source.format, Csv)
    assert (source.format.delimiter, source.format.encoding) == (";", encoding)
    assert (source.day, source.day_formats) == ("Verkauft am", ("%d.%m.%Y %H:%M",))
    assert fields_of(raw) == {
        "Nummer": ("nummer", "BIGINT"),
        "Größe": ("grosse", "STRING"),
        "Preis": ("preis", "DOUBLE"),
        "PLZ": ("plz", "STRING"),
        "Verkauft am": ("verkauft_am", "TIMESTAMP", "d.M.yyyy H:mm"),
    }
    (preis,) = [each for each in source.fields if each.name == "preis"]
    assert (preis.decimal, preis.thousands) == (",", ".")
    assert raw.key == ["nummer"]


@pytest.mark.parametrize(
    ("values", "kind", "pattern"),
    [
        pytest.param(["2024-06-01", "2024-06-30"], ("DATE",), (), id="ISO"),
        pytest.param(["2024-06-01 10:00", "2024-06-30 11:30"], ("TIMESTAMP",), (), id="a time"),
        pytest.param(["2024-06-01T10:00:00Z"], ("TIMESTAMP",), (), id="a time with a zone"),
        pytest.param(
            ["06/01/2024", "06/30/2024"], ("DATE", "M/d/yyyy"), ("%m/%d/%Y",), id="the month first"
        ),
        pytest.param(
            ["01/06/2024", "30/06/2024"], ("DATE", "d/M/yyyy"), ("%d/%m/%Y",), id="the day first"
        ),
    ],
)
def test_the_form_of_days_is_guessed(tmp_path, values, kind, pattern):
    lines = "".join(f"{number},{value}\n" for number, value in enumerate(values))
    raw = begun(tmp_path, f"n,on\n{lines}")
    source = raw.source()
    assert isinstance(source, Landing)
    assert (fields_of(raw)["on"][1:], source.day_formats) == (kind, pattern)


def test_a_key_of_two_columns_is_found_and_none_where_rows_repeat(tmp_path):
    two = "day,shop,line\n" + "".join(
        f"2024-06-0{day},{shop},{line}\n" for day in (1, 2) for shop in "ab" for line in (1, 2)
    )
    assert begun(tmp_path, two).key == ["shop", "line"]
    (tmp_path / "company").rename(tmp_path / "first")
    assert begun(tmp_path, two + "2024-06-01,a,1\n").key == ()


def test_columns_whose_names_are_the_same_or_taken_are_told_apart(tmp_path):
    raw = begun(tmp_path, "day,A b,a-b,malformed,1st\n2024-06-01,1,2,3,4\n")
    names = [name for name, *_ in fields_of(raw).values()]
    assert names == ["day", "a_b", "a_b_2", "malformed_3", "c_1st"]


def test_a_file_without_a_header_gets_names_of_columns(tmp_path):
    raw = begun(tmp_path, "1,2024-06-01,2.5\n2,2024-06-02,3.5\n")
    source = raw.source()
    assert isinstance(source, Landing)
    assert isinstance(source.format, Csv)
    assert source.format.header == ("column0", "column1", "column2")
    assert source.day == "column1"


@pytest.mark.parametrize(
    ("days", "is_expected"),
    [
        pytest.param((3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 17), False, id="working days"),
        pytest.param((3, 4, 5, 6, 7, 8, 10, 17), True, id="a Saturday"),
        pytest.param((3, 4, 5), True, id="three days"),
    ],
)
def test_weekends_without_rows_are_not_expected(tmp_path, days, is_expected):
    raw = begun(tmp_path, "n,day\n" + "".join(f"{n},2024-06-{n:02}\n" for n in days))
    saturday = date(2024, 6, 15)
    assert (raw.expected is None or raw.expected(saturday)) == is_expected


def delta(folder: Path, partition_by: list[str] | None = None, **columns: object) -> str:
    write_deltalake(str(folder), pa.table(columns), partition_by=partition_by)
    return str(folder)


DAYS = [date(2024, 6, 1), date(2024, 6, 1), date(2024, 6, 2)]


def test_a_delta_table_is_declared_as_a_source(tmp_path):
    at = [datetime(2024, 6, day, tzinfo=UTC) for day in (3, 3, 4)]
    columns = {
        "Shop no": ["a", "b", "a"],
        "at": pa.array(at, pa.timestamp("us", "UTC")),
        "cents": pa.array([1, 2, 3], pa.int32()),
        "tags": [["x"], [], ["y"]],
        "sold_on": DAYS,
    }
    path = delta(tmp_path / "sales", ["sold_on"], **columns)
    report = init("company", tmp_path, path, None)
    raw, _ = tables_of(report.folder)
    source = raw.source()
    assert isinstance(source, DeltaSource)
    assert (source.day, source.path) == ("sold_on", path)
    assert raw.columns == (
        "arrival_day DATE, shop_no STRING, at TIMESTAMP, cents INT, tags ARRAY<STRING>,"
        " sold_on DATE"
    )
    assert raw.key == ["shop_no"]
    assert "BACKFILL_LANDING" not in (report.folder / ".env").read_text()


def test_a_day_whose_name_has_a_blank_is_quoted(tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": [1, 2, 3], "sold on": DAYS}))
    raw, _ = tables_of(init("company", tmp_path, path, None).folder)
    source = raw.source()
    assert isinstance(source, DeltaSource)
    assert source.day == "`sold on`"


def test_the_day_of_a_delta_table_with_times_is_their_day(tmp_path):
    at = [datetime(2024, 6, day, 23, 30, tzinfo=UTC) for day in (3, 3, 4)]
    path = delta(tmp_path / "t", id=[1, 2, 1], at=pa.array(at, pa.timestamp("us", "UTC")))
    raw, _ = tables_of(init("company", tmp_path, path, None).folder)
    source = raw.source()
    assert isinstance(source, DeltaSource)
    assert (source.day, raw.key) == ("CAST(`at` AS DATE)", ["id"])


def refused(golden, tmp_path: Path, *arguments: Any) -> None:
    """Refuse without a trace."""
    before = sorted(tmp_path.rglob("*"))
    with golden.raises(UsageError, command="init", folder=tmp_path):
        init(*arguments)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["Two words", "class", "../other", "1st", "tests", "json", ""])
def test_a_name_that_no_package_has_is_refused(tmp_path, golden, name):
    refused(golden, tmp_path, name, tmp_path, "", None)


@pytest.mark.parametrize("name", ["03-10-2020.csv.gz", "Ümsätze.csv"])
def test_any_name_of_a_file_gives_names_of_tables(tmp_path, name):
    text = b"shop,day\nnorth,2020-03-10\n"
    file = tmp_path / name
    file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    folder = init("company", tmp_path, "", file).folder
    (delivered,) = (folder / "deliveries").rglob("*.csv*")
    assert delivered.read_bytes() == file.read_bytes()
    assert delivered.suffix == file.suffix
    declared = re.findall('"raw/(.*)"', (folder / "company" / "tables.py").read_text())
    assert declared == [delivered.parent.name]
    assert re.fullmatch("[a-z][a-z0-9_]*", declared[0])


def test_a_folder_that_holds_something_is_refused(tmp_path, golden):
    init("company", tmp_path, "", None)
    refused(golden, tmp_path, "company", tmp_path, "", None)


def test_an_empty_folder_becomes_a_project(tmp_path):
    (tmp_path / "company").mkdir()
    assert init("company", tmp_path, "", None).folder == tmp_path / "company"


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param(None, id="a file that is not there"),
        pytest.param("", id="an empty file"),
        pytest.param("a,day\n", id="a file without rows"),
        pytest.param("a,b\n1,x\n2,y\n", id="a file without days"),
    ],
)
def test_a_file_that_gives_no_table_is_refused(tmp_path, golden, contents):
    file = tmp_path / "sales.csv"
    if contents is not None:
        file.write_text(contents)
    refused(golden, tmp_path, "company", tmp_path, "", file)


def test_a_delta_table_without_a_day_is_refused(tmp_path, golden):
    path = delta(tmp_path / "t", id=[1, 2], name=["a", "b"])
    refused(golden, tmp_path, "company", tmp_path, path, None)


def test_a_folder_that_is_no_delta_table_is_refused(tmp_path, golden):
    refused(golden, tmp_path, "company", tmp_path, str(tmp_path / "none"), None)


def test_a_disk_that_cannot_be_written_ends_the_command_with_3(tmp_path, monkeypatch):
    folder = tmp_path / "read only"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def fails(*_: object, **__: object) -> None:
        raise OSError(30, os.strerror(30), str(folder))

    monkeypatch.setattr("backfill_assets.verbs.init.TemporaryDirectory", fails)
    done = backfill_main("init", "company", home=tmp_path / "home")
    assert (done.returncode, done.stdout) == (3, "")
    assert list(folder.iterdir()) == []


def test_two_kinds_of_data_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("--from-csv", "a.csv", "--from-delta", "b")
    assert backfill_main("init", "company", *options, home=tmp_path / "home").returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_the_report_names_what_was_guessed(tmp_path):
    report = init("company", tmp_path, "", None)
    assert isinstance(report, InitReport)
    written = "".join(path.read_text() for path in (report.folder / "company").glob("*.py"))
    assert len(report.guesses) == written.count("# guess: ") == 6
    assert report.commands[-1] == "backfill run --partitions 2024-06-01..2024-06-10 --yes"
