"""Move broken files of a lake on a local disk aside, and repeat what followed from them.

A broken file is empty, cut off or missing (`lake/broken_files.py`). It is not deleted; the ledger
of a shadow goes with its shadow. The ledger is made again from its other files and from the commits
of the tables. An act whose commit or release is lost is carried out again. The number of a lost
act, release or change of a channel is not given again, so its readers get an error and never other
rows.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.errors import BrokenFile, TableUnreadable
from backfill_assets.lake.acts import finish
from backfill_assets.lake.broken_files import DAMAGED, broken_in_log, move_aside, why_broken
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.file_commit import last_act
from backfill_assets.lake.history import record_missing, recover
from backfill_assets.lake.ledger import Build, Ledger, from_arrow
from backfill_assets.lake.locks import writing
from backfill_assets.lake.recorded_acts import Acts, Stage
from backfill_assets.lake.releases import Releases, newest_of
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.lake.storage import LEDGER, Paths, lake_and_table, recorded_places

_DOCUMENTS = {"_acts": "act", "_channels": "change of channels", "_releases": "release"}


class Broken(NamedTuple):
    """A broken file, why it cannot be used, and what is lost with it."""

    file: Path
    why: str
    lost: str

    @property
    def is_of_records(self) -> bool:
        """True for the ledger and for documents, without which nothing can be compared."""
        return LEDGER in self.file.parts or self.file.parent.name in _DOCUMENTS

    def __str__(self) -> str:
        return f"{self.file} {self.why}. Lost: {self.lost}."


def broken_files(root: str, tables: Collection[str]) -> list[Broken]:
    """The broken files of a lake and of its shadows. None in an object store.

    Looks at these `tables` and at those of the ledger.
    """
    if not Paths(root).is_local:
        return []
    lakes = _lakes(root)
    return [
        *(broken for lake in lakes for broken in (*_of_tables(lake, tables), *_of_ledger(lake))),
        *_of_documents(root),
        *_of_releases(root),
    ]


def repair(root: str, tables: Collection[str], zone: str = "") -> tuple[list[Broken], str]:
    """Move broken files aside, and repeat what followed from them.

    A ledger that is made again has days of `zone`. Returns these files, and the id of the act that
    was finished ("": none).
    """
    if not Paths(root).is_local:
        return [], ""
    found = list[Broken]()
    for lake in _lakes(root):
        # The commit before a broken one may be broken too.
        while broken := [*_of_tables(lake, tables)]:
            for file, *_ in broken:
                with writing(*lake_and_table(str(file.parents[1]))):
                    move_aside(root, file)
            found += broken
        if of_ledger := [*_of_ledger(lake)]:
            with writing(lake, LEDGER):
                if Path(lake, LEDGER).exists():
                    move_aside(lake, Path(lake, LEDGER))
            Ledger(lake, zone).records.create()
            found += of_ledger
        # A repair that was interrupted may not have recorded them.
        record_missing(Ledger(lake), _builds_aside(lake))
    for document in (*_of_documents(root),):
        _move_document(root, document.file)
        found.append(document)
    finished = _repeat_newest_act(root)
    for release in (*_of_releases(root),):
        _move_document(root, release.file)
        found.append(release)
    if found:
        for lake in _lakes(root):
            for table in _tables(lake, tables):
                recover(Ledger(lake), table)
    return found, finished


def _move_document(root: str, file: Path) -> None:
    """Move a document aside, with the documents about it. They cannot be used without it."""
    with writing(root, file.parent.name):
        for document in file.parent.glob(f"{file.stem}*.json"):
            move_aside(root, document)


def _lakes(root: str) -> list[str]:
    """The lake and its shadows, without those whose deletion was interrupted."""
    shadows = ledgers_of_shadows(root).values()
    return [root, *(ledger.root for ledger in shadows if _can_be_repaired(ledger))]


def _can_be_repaired(ledger: Ledger) -> bool:
    try:
        ledger.files()
    except BrokenFile:
        return True
    except TableUnreadable:
        return False
    return True


def _tables(lake: str, tables: Collection[str]) -> list[str]:
    """The names of the given tables, and of all tables in the ledger or its broken copies.

    Tables whose adoption was undone are left out.
    """
    ledgers = [Path(lake, LEDGER), *_folders_aside(lake)]
    folders = [folder for ledger in ledgers for folder in ledger.glob("table=*")]
    names = {*tables, *(unquote(folder.name.partition("=")[2]) for folder in folders)}
    undone = {name for name, place in recorded_places(lake).items() if place.is_undone}
    return sorted(names - undone)


def _of_tables(lake: str, tables: Collection[str]) -> Iterator[Broken]:
    for table in _tables(lake, tables):
        for file, why in broken_in_log(Paths(lake).table(table)).items():
            lost = f"commit {int(file.stem)} of {table}" if file.suffix == ".json" else "nothing"
            yield Broken(file, why, lost)


def _of_ledger(lake: str) -> Iterator[Broken]:
    lost = "builds that are in no other file and in no commit"
    place = Path(lake, LEDGER)
    try:
        files = [place / unquote(file["path"]) for file in Ledger(lake).records.files().listed]
    except BrokenFile as error:
        why = error.what.rpartition(": ")[2].rstrip(".")
        yield Broken(place, f"cannot be read: {why}", lost)
        return
    if not place.exists() and _folders_aside(lake):
        yield Broken(place, "is missing", lost)
    for file in files:
        if why := why_broken(file):
            yield Broken(file, why, lost)


def _folders_aside(lake: str) -> list[Path]:
    return sorted(Path(lake, DAMAGED).glob(f"{LEDGER}*"))


def _builds_aside(lake: str) -> list[Build]:
    """The builds in the whole files of ledgers that were moved aside."""
    builds = dict[object, Build]()
    folders = _folders_aside(lake)
    for file in (file for folder in folders for file in folder.glob("table=*/*.parquet")):
        if why_broken(file):
            continue
        rows = pq.ParquetFile(file).read()
        table = unquote(file.parent.name.partition("=")[2])
        named = rows.append_column("table", pa.array([table] * len(rows), pa.string()))
        for build in from_arrow(named):
            builds[build.table, build.day, build.run, build.outcome, build.at] = build
    return [*builds.values()]


def _of_documents(root: str) -> Iterator[Broken]:
    for name, kind in _DOCUMENTS.items():
        files = {*Path(root, name).glob("[!_]*.json")}
        # What is about a document needs it.
        for file in sorted(files | {f.with_name(f"{f.name[:9]}.json") for f in files}):
            if why := why_broken(file):
                yield Broken(file, why, f"{kind} {file.stem.lstrip('0')}")


def _of_releases(root: str) -> Iterator[Broken]:
    """The releases with a version that the log of its table does not have any more."""
    newest = cache(partial(newest_of, root))
    documents = Releases(root).documents
    for document in documents.listed():
        with suppress(BrokenFile):
            for name, version in Releases(root).get(document.number).tables.items():
                last = newest(version.path, version.id)
                if last is not None and last < version.version:
                    file = Path(documents.path, f"{document.number:09d}.json")
                    why = f"has version {version.version} of {name}, which is lost"
                    yield Broken(file, why, f"release {document.number}")
                    break


def _repeat_newest_act(root: str) -> str:
    """Finish the act that was begun. Carry the newest one out again if a part of it is lost.

    Returns the id of that act; "" without one.
    """
    acts = Acts(root)
    newest = acts.newest()
    if newest and newest.stage == Stage.ENDED:
        tables = [change.table for change in acts.act(newest.number).changes if change.committed]
        logs = [open_table(Paths(root).table(table)) for table in tables]
        release = not newest.release or Releases(root).documents.get(newest.release)
        if not release or any(last_act(log) < newest.number for log in logs):
            move_aside(root, Path(root, "_acts", f"{newest.number:09d}-ended.json"))
    begun = acts.unfinished()
    finish(root, is_repair=True)
    return begun[1].id if begun else ""
