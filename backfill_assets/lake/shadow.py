"""The shadow of a plan: its own days, and all others from live at recorded versions.

It is a lake at `<lake>/_shadow/<plan>`, with its own tables, ledger and locks. Opening it records
the versions of live in `base.json` and copies nothing. Discarding it deletes the folder. All code
for a lake works on a shadow. If live has a partition of the plan with the same code, inputs and
source files, the partition is up to date and is not computed.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileType
from pydantic import TypeAdapter

from backfill_assets.calendar import Partition
from backfill_assets.errors import NOTHING_CHANGED, TableUnreadable, UsageError
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.history import LATEST_COLUMNS, Latest, latest
from backfill_assets.lake.lake import DaysInFolder, Lake
from backfill_assets.lake.ledger import Days, Ledger
from backfill_assets.lake.slices import Slice
from backfill_assets.lake.storage import Documents, Paths, files_in

BASE = "base.json"


@dataclass(frozen=True)
class Base:
    """The versions of live that a shadow reads (-1: no table), with time and user.

    `ids`: Delta's id of each table. A recreated table has another id. `recorded`: the time of the
    newest build of each table. Later builds do not belong to this state. A table that the plan does
    not read, and whose log could not be read, is missing in all of them. `kept`: partitions that
    the plan has given up. For these the shadow reads live, even if it has built them.
    """

    versions: Mapping[str, int]
    at: datetime
    who: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, datetime] = field(default_factory=dict)
    kept: frozenset[Partition] = frozenset()

    @classmethod
    def of(cls, live: Lake, tables: Iterable[str], read: Container[str], who: str = "") -> Base:
        """The current versions of these tables of `live`.

        Raises TableUnreadable if a table that the plan reads or builds cannot be read.
        """
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
        return TypeAdapter(Base).dump_json(self).decode()

    @classmethod
    def from_json(cls, text: bytes) -> Base:
        """Raises ValueError for other texts."""
        return TypeAdapter(cls).validate_json(text, strict=True)


def shadow_root(root: str, plan: str) -> str:
    return f"{Paths(root).shadows}/{plan}"


def read_base(root: str, plan: str) -> Base | None:
    """The versions of live that the shadow of a plan reads; None if the shadow is not open."""
    try:
        return Base.from_json(Documents(shadow_root(root, plan)).read(BASE))
    except FileNotFoundError:
        return None
    except ValueError:
        raise UsageError(
            f"{shadow_root(root, plan)}/{BASE} cannot be read: the versions that the shadow reads"
            " are unknown.",
            unchanged=NOTHING_CHANGED,
            next_step=(
                f"Restore that file from a copy, or `backfill discard {plan}`, then plan again."
            ),
        ) from None


def write_base(root: str, plan: str, base: Base) -> None:
    """Open the shadow of a plan on these versions of live, or move an open one to them."""
    Documents(shadow_root(root, plan)).write(BASE, base.to_json())


def delete_shadow(root: str, plan: str) -> None:
    """Delete the shadow of a plan with all its contents, if there is one."""
    files = files_in(Paths(root).shadows)
    if files.get_file_info(plan).type != FileType.NotFound:
        files.delete_dir(plan)


def ledgers_of_shadows(root: str) -> dict[str, Ledger]:
    """The ledger of each shadow in the lake at `root`, by its plan."""
    folders = files_in(root).get_file_info(FileSelector("_shadow", allow_not_found=True))
    plans = sorted(folder.base_name for folder in folders if folder.type == FileType.Directory)
    return {plan: Ledger(shadow_root(root, plan)) for plan in plans}


def shadow_versions(root: str) -> Mapping[str, set[int]]:
    """The versions of each table of live that shadows in the lake at `root` read.

    Raises TableUnreadable if the record of a shadow cannot be read.
    """
    versions: dict[str, set[int]] = {}
    for plan in ledgers_of_shadows(root):
        try:
            base = read_base(root, plan)  # None: not written yet, or already removed
        except (UsageError, OSError) as error:
            raise TableUnreadable(str(error)) from None
        for table, version in base.versions.items() if base else ():
            versions.setdefault(table, set()).add(version)
    return versions


@dataclass(frozen=True)
class Shadow(Lake):
    """Partitions that were built in the shadow, and all others from `live` at `base`.

    A table's version is the version of the shadow's own table, because live's is fixed.
    """

    live: Lake
    base: Base

    def recover(self, tables: Collection[str]) -> None:
        super().recover(tables)
        self.live.recover(tables)

    def latest(
        self, days: Days, columns: Iterable[str] = LATEST_COLUMNS, *, plan: str = ""
    ) -> Latest:
        """The latest builds, as for any lake. `of_live`: accepted partitions with rows in live."""
        columns = tuple(columns)
        own = self._own(days, columns, plan)
        below = self.below(days, columns)
        of_live = below.accepted.keys() - own.accepted.keys()
        return Latest(
            # A failed build in live is not a failed build of the shadow.
            below.accepted | own.last,
            below.accepted | own.accepted,
            audits={p: audit for p, audit in below.audits.items() if p in of_live} | own.audits,
            compared={p: audit for p, audit in below.compared.items() if p in of_live}
            | own.compared,
            plans=own.plans,
            computed=below.computed | own.computed,
            of_live=of_live,
        )

    def _own(
        self,
        days: Days,
        columns: Iterable[str] = LATEST_COLUMNS,
        plan: str = "",
        until: Mapping[str, int] | None = None,
    ) -> Latest:
        """The latest builds in the shadow itself, without the partitions that the plan gave up."""
        own = latest(self.ledger, days, columns, plan, until=until)
        for partition in self.base.kept:
            for builds in (own.last, own.accepted, own.audits, own.compared):
                builds.pop(partition, None)
        return own

    def below(self, days: Days, columns: Iterable[str] = LATEST_COLUMNS) -> Latest:
        """The latest builds of live at the versions that the shadow reads."""
        return latest(
            self.live.ledger, days, columns, until=self.base.versions, recorded=self.base.recorded
        )

    def slices(self, rows: Slice) -> list[tuple[str, Slice]]:
        """As for any lake. Raises TableUnreadable for a table that the base lacks."""
        if rows.table not in self.base.versions:
            raise TableUnreadable(
                f"The shadow was opened without {rows.table}: its log could not be read then, or"
                " there was no such table.",
                unchanged="Nothing was read.",
                next_step="Type `backfill rebase`.",
            )
        return super().slices(rows)

    def parts_of(
        self, table: str, days: Collection[date], version: int | None
    ) -> list[DaysInFolder]:
        """The days from live at the base, and the days that were built in the shadow."""
        until = None if version is None else {table: version}
        built = self._own({table: days}, until=until).accepted if days else {}
        own = {day for day in days if (table, day) in built}
        return self._parts(table, days, own, version)

    def _parts_of_builds(
        self, table: str, days: Collection[date], version: int | None, builds: Latest
    ) -> list[DaysInFolder]:
        if version is not None:
            return self.parts_of(table, days, version)
        own = {day for day in days if (table, day) not in builds.of_live}
        return self._parts(table, days, own, version)

    def _parts(
        self, table: str, days: Collection[date], own: Collection[date], version: int | None
    ) -> list[DaysInFolder]:
        base = self.base.versions.get(table, -1)
        in_live = [day for day in days if day not in own]
        of_shadow = [day for day in days if day in own]
        live = self.live.parts_of(table, in_live, base)
        return [*live, *super().parts_of(table, of_shadow, version)]
