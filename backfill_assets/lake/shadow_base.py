"""What a shadow was opened on: the versions of live that it reads, in `<lake>/_shadow/<plan>/base.json`."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileType

from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.documents import Documents
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.paths import Paths, files_in

if TYPE_CHECKING:
    from backfill_assets.lake.store import Lake

BASE = "base.json"


@dataclass(frozen=True)
class Base:
    """Live as a shadow reads it: the version of every table (-1: there was none), since when, and who opened it.

    `ids`: Delta's id of each table, which one that is deleted and made anew has not. `recorded`: when the newest build of each
    was recorded: later ones that found the same rows, or failed, are not of this state. A table whose log could not be read,
    and that the plan does not read, is in neither.
    """

    versions: Mapping[str, int]
    at: datetime
    who: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, datetime] = field(default_factory=dict)

    @classmethod
    def of(cls, live: Lake, tables: Iterable[str], read: Container[str], who: str = "") -> Base:
        """These tables of `live` as they are now. TableUnreadable for one among those that the plan reads or builds."""
        recorded = {name: newest.at for name, newest in live.ledger.newest(tables).items()}
        opened: dict[str, DeltaTable | None] = {}
        for name in tables:
            try:
                opened[name] = open_table(live.path(name))
            except TableUnreadable:
                if name in read:
                    raise
        versions = {name: int(table.version()) if table else -1 for name, table in opened.items()}
        ids = {name: str(table.metadata().id) for name, table in opened.items() if table}
        return cls(versions, datetime.now(UTC), who, ids, recorded)

    def to_json(self) -> str:
        recorded = {name: at.isoformat() for name, at in self.recorded.items()}
        fields = {"tables": dict(self.versions), "ids": dict(self.ids), "recorded": recorded}
        return json.dumps(fields | {"at": self.at.isoformat(), "who": self.who})

    @classmethod
    def from_json(cls, text: bytes) -> Base:
        fields: dict[str, Any] = json.loads(text)
        recorded = {name: datetime.fromisoformat(at) for name, at in fields.get("recorded", {}).items()}
        at = datetime.fromisoformat(fields["at"])
        return cls(fields["tables"], at, fields["who"], fields.get("ids", {}), recorded)


def shadow_root(root: str, plan: str) -> str:
    return f"{Paths(root).shadows}/{plan}"


def read_base(root: str, plan: str) -> Base | None:
    """The versions of live that the shadow of a plan reads; None if it is not open."""
    try:
        return Base.from_json(Documents(shadow_root(root, plan)).read(BASE))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{shadow_root(root, plan)}/{BASE} cannot be read: what the shadow was built from is unknown. Nothing was changed. "
            f"Restore that file from a copy, or `backfill discard {plan}`, then plan again."
        ) from None


def write_base(root: str, plan: str, base: Base) -> None:
    """Open the shadow of a plan on these versions of live, or move it to them."""
    Documents(shadow_root(root, plan)).write(BASE, base.to_json())


def delete_shadow(root: str, plan: str) -> None:
    """Delete the shadow of a plan, if there is one, whatever is in it."""
    files = files_in(Paths(root).shadows)
    if files.get_file_info(plan).type != FileType.NotFound:
        files.delete_dir(plan)


def ledgers_of_shadows(root: str) -> dict[str, Ledger]:
    """The ledger of each shadow in the lake at `root`, by its plan."""
    folders = files_in(root).get_file_info(FileSelector("_shadow", allow_not_found=True))
    plans = sorted(folder.base_name for folder in folders if folder.type == FileType.Directory)
    return {plan: Ledger(shadow_root(root, plan)) for plan in plans}


def shadow_versions(root: str) -> Mapping[str, set[int]]:
    """The versions of each table of live that shadows in the lake at `root` read; empty if there is no shadow.

    Raises TableUnreadable for a record that cannot be read: what its shadow needs is not known.
    """
    versions: dict[str, set[int]] = {}
    for plan in ledgers_of_shadows(root):
        try:
            base = read_base(root, plan)  # None: not written yet, or removed already
        except (UsageError, OSError) as error:
            raise TableUnreadable(str(error)) from None
        for table, version in base.versions.items() if base else ():
            versions.setdefault(table, set()).add(version)
    return versions
