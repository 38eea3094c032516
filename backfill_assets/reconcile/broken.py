"""Move broken files of a lake on a local disk aside, and repeat what followed from them.

A broken file is empty, cut off or missing (`lake/broken_files.py`). It is never deleted. The ledger
is made again from its other files and from the commits of the tables. An act whose commit or
release is lost is carried out again. The number of a lost act, release or change of a channel is
not given again, so its readers get an error and never other rows.
"""

from collections.abc import Iterator
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
from backfill_assets.lake.releases import Releases, is_lost
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.lake.storage import LEDGER, Paths

_DOCUMENTS = ("_acts", "_channels", "_releases")


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


def broken_files(root: str) -> list[Broken]:
    """The broken files of a lake and of its shadows. None in an object store."""
    if not Paths(root).is_local:
        return []
    lakes = _lakes(root)
    return [
        *(each for lake in lakes for each in (*_of_tables(lake), *_of_ledger(lake))),
        *_of_documents(root),
        *_of_releases(root),
    ]


def repair(root: str) -> list[Broken]:
    """Move broken files aside, and repeat what followed from them. Returns these files."""
    if not Paths(root).is_local:
        return []
    found = []
    for lake in _lakes(root):
        for broken in _of_tables(lake):
            with writing(lake, _table_of(lake, broken.file)):
                move_aside(root, broken.file)
            found.append(broken)
        if of_ledger := [*_of_ledger(lake)]:
            if Path(lake, LEDGER).exists():
                move_aside(lake, Path(lake, LEDGER))
            found += of_ledger
        if of_ledger:
            Ledger(lake).records.create()
        record_missing(Ledger(lake), _builds_aside(lake))
    for document in _of_documents(root):
        # The documents about it cannot be used without it.
        for about in document.file.parent.glob(f"{document.file.stem}-*.json"):
            move_aside(root, about)
        if document.file.exists():
            move_aside(root, document.file)
        found.append(document)
    _repeat_newest_act(root)
    for release in _of_releases(root):
        move_aside(root, release.file)
        found.append(release)
    if found:
        for lake in _lakes(root):
            for log in _logs(lake):
                recover(Ledger(lake), _table_of(lake, log))
    return found


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


def _logs(lake: str) -> list[Path]:
    return sorted(Path(lake).glob("[!_]*/*/_delta_log"))


def _table_of(lake: str, path: Path) -> str:
    return "/".join(path.relative_to(lake).parts[:2])


def _of_tables(lake: str) -> Iterator[Broken]:
    for log in _logs(lake):
        for file, why in broken_in_log(str(log.parent)).items():
            is_commit = file.suffix == ".json"
            commit = f"commit {int(file.stem)} of {_table_of(lake, log)}" if is_commit else ""
            yield Broken(file, why, commit or "nothing, the commits are there")


def _of_ledger(lake: str) -> Iterator[Broken]:
    lost = "builds that neither another file nor a commit has"
    place = Path(lake, LEDGER)
    try:
        files = [place / unquote(file["path"]) for file in Ledger(lake).records.files().listed]
    except BrokenFile as error:
        yield Broken(place, f"cannot be read ({error.what.rstrip('.')})", lost)
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
    for name in _DOCUMENTS:
        for file in sorted(Path(root, name).glob("[!_]*.json")):
            if why := why_broken(file):
                yield Broken(file, why, f"{name[1:]} {file.stem.lstrip('0')}")


def _of_releases(root: str) -> Iterator[Broken]:
    """The releases with a version that the log of its table does not have any more."""
    documents = Releases(root).documents
    for document in documents.listed():
        file = Path(documents.path, f"{document.number:09d}.json")
        if why_broken(file):
            continue
        for name, version in Releases(root).get(document.number).tables.items():
            if is_lost(root, version):
                why = f"has version {version.version} of {name}, which is lost"
                yield Broken(file, why, f"release {document.number}")
                break


def _repeat_newest_act(root: str) -> None:
    """Finish the act that was begun. Carry the newest one out again if a part of it is lost."""
    acts = Acts(root)
    newest = acts.newest()
    if newest and newest.stage == Stage.ENDED:
        tables = [change.table for change in acts.act(newest.number).changes if change.committed]
        logs = [open_table(Paths(root).table(table)) for table in tables]
        release = not newest.release or Releases(root).documents.get(newest.release)
        if not release or any(last_act(log) < newest.number for log in logs):
            move_aside(root, Path(root, "_acts", f"{newest.number:09d}-ended.json"))
    finish(root, is_repair=True)
