"""Lay out a new project that runs at once, from a CSV file, a Delta table or bundled rows.

DuckDB guesses how the data is to be declared, from a sample of its rows as texts. The templates and
the queries are in the folder `project`.
"""

import gzip
import json
import keyword
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.machinery import PathFinder
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
from deltalake.exceptions import DeltaError

from backfill_assets.errors import UsageError, first_line
from backfill_assets.lake.delta import open_table
from backfill_assets.sources.files.dialect import HEAD_BYTES, likely_encodings
from backfill_assets.verbs.export import json_text
from backfill_assets.verbs.pages import CODE, render
from backfill_assets.verbs.report import Line, Report

_UNREADABLE = (
    duckdb.Error,
    DeltaError,
    FileNotFoundError,
    IsADirectoryError,
    gzip.BadGzipFile,
    EOFError,
)
_FOLDER = Path(__file__).with_name("project")
_NAME = "Choose another name, of lower-case letters, digits and _."
_DECLARE = (
    "Correct it. Or begin without it, and declare it: `backfill guide your-own-data`, and for data"
    " without days `backfill guide bring-your-own`."
)
# Enough days for the week that a feature reads.
_FIRST_RUN = timedelta(days=13)


@dataclass(frozen=True)
class InitReport(Report):
    """The new project, the lines of it that were guessed, and the commands to type."""

    folder: Path
    guesses: Sequence[str]
    commands: Sequence[str]

    def lines(self) -> Iterator[Line]:
        yield f"{self.folder} is a project. These lines of it were guessed from the data:"
        yield from (f"  {guess}" for guess in self.guesses)
        yield "Check them. Then type:"
        yield from (f"  {command}" for command in self.commands)


def init(name: str, parent: Path, delta: str, csv: Path | None) -> InitReport:
    """Write the folder `name` in `parent`, all of it or nothing.

    Raises UsageError for a name that no Python package may have or another one has, for a folder
    that holds something, and for data that is missing, empty, unreadable or without days.
    """
    folder = parent / name
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or name == "tests":
        raise _refusal(f"{name!r} is not a usable name of a Python package", _NAME)
    if name in sys.stdlib_module_names or PathFinder.find_spec(name):
        raise _refusal(f"{name!r} is the name of an installed Python module", _NAME)
    if folder.is_symlink() or (
        folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))
    ):
        raise _refusal(f"{folder} exists, and is not an empty folder", _NAME)
    file = None if delta else csv or _FOLDER / "orders.csv"
    path = delta if "://" in delta else str(Path(delta).resolve())
    stem = (file or Path(path)).name.lower().partition(".")[0]
    words = re.sub(r"\W+", "_", stem, flags=re.ASCII).strip("_")
    source = re.sub(r"^(?![a-z])", "rows_", words).rstrip("_")
    guesses = []
    with TemporaryDirectory(prefix=f".{name}-", dir=parent) as unfinished:
        try:
            data = _guessed(file, path, Path(unfinished) / "rows.csv")
        except _UNREADABLE as error:
            why = first_line(getattr(error, "strerror", None) or error)
            why = why.removeprefix("Invalid Input Error: ").rstrip(".")
            raise _refusal(f"{file or path} cannot be used: {why}", _DECLARE) from None
        values = data | {"name": name, "file": file, "path": path, "source": source}
        project = Path(unfinished) / name
        for template in sorted(_FOLDER.rglob("*.jinja")):
            place = template.relative_to(_FOLDER).as_posix()
            written = project / place.replace("NAME", name).removesuffix(".jinja")
            written.parent.mkdir(parents=True, exist_ok=True)
            text = render(CODE + place, values, json_text)
            written.write_text(f"{text}\n", "utf-8")
            guesses += [line.strip() for line in text.splitlines() if "# guess: " in line]
        if file:
            delivered = project / "deliveries" / source
            delivered.mkdir(parents=True)
            packed = ".gz" if file.suffix == ".gz" else ""
            shutil.copyfile(file, delivered / f"{source}.csv{packed}")
        project.rename(folder)
    first = max(data["first"], data["last"] - _FIRST_RUN)
    commands = [
        f"cd {name}",
        "backfill up      # in a second terminal, until Ctrl-C",
        f"backfill run --partitions {first}..{data['last']} --yes",
    ]
    return InitReport(folder, guesses, commands)


def _guessed(file: Path | None, path: str, copy: Path) -> dict[str, Any]:
    """The guesses for the templates. `copy` is a place for the file in UTF-8."""
    found: dict[str, Any] = {"encoding": "utf-8"}
    with duckdb.connect() as database:
        if file:
            contents = file.read_bytes()
            if file.suffix == ".gz":
                contents = gzip.decompress(contents)
            try:
                contents.decode(found["encoding"])
            except UnicodeDecodeError:
                likely = likely_encodings(contents[:HEAD_BYTES])
                found["encoding"] = next(iter(likely), "latin-1")
            copy.write_text(contents.decode(found["encoding"], "replace"), "utf-8")
            dialect = database.execute(_query("dialect"), [str(copy)]).fetchall()
            (found["dialect"], has_header), *_ = dialect
            database.read_csv(str(copy), all_varchar=True, header=has_header).create_view("rows")
        else:
            table = open_table(path)
            if table is None:
                raise FileNotFoundError("there is no Delta table")
            found["fields"] = json.loads(table.schema().to_json())["fields"]
            database.register("source", table.to_pyarrow_dataset())
            database.execute("CREATE VIEW rows AS SELECT COLUMNS(*)::VARCHAR FROM source")
        database.execute(_query("columns"))
        columns = database.sql("FROM columns ORDER BY place")
        found["columns"] = columns.to_arrow_table().to_pylist()
        ((day,),) = database.sql("FROM days").fetchall()
        database.execute(f'CREATE VIEW dated AS SELECT "#", {day} AS day FROM sample')
        found["key"] = database.sql(_query("key")).fetchall()
        ends = database.sql(_query("ends").format(day))
        ((found["first"], found["last"], found["weekdays"]),) = ends.fetchall()
    return found


def _query(name: str) -> str:
    return (_FOLDER / f"{name}.sql").read_text("utf-8")


def _refusal(what: str, next_step: str) -> UsageError:
    return UsageError(f"{what}.", unchanged="Nothing was written.", next_step=next_step)
