"""A Delta table that another program wrote, in a lake or elsewhere. No Spark."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backfill_assets.errors import (
    BackfillError,
    UsageError,
)
from backfill_assets.lake.adoption import refuse_other_place
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.plan.status_in_bulk import status_in_bulk
from backfill_assets.project import Project
from backfill_assets.settings import read_settings
from backfill_assets.tables.declaration import SliceDays, Table, same_day
from backfill_assets.verbs.adopt import AdoptReport, adopt_days
from backfill_assets.verbs.options import AdoptOptions
from backfill_assets.workspace import Workspace
from tests.worlds.small_lake import CALENDAR, DAYS, SmallLake

D0, D1, D2, D3 = DAYS
COLUMNS = "n BIGINT, day DATE"
A = Table("raw/a", lambda: None, "day", COLUMNS, {"days": SliceDays()}, (), "1")
B = Table("raw/b", lambda: None, "day", COLUMNS, {"a": same_day(A)}, (), "1")


def rows_of(*days: date | None, each: int = 2) -> pa.Table:
    return pa.table(
        {
            "n": pa.array([each] * each * len(days), pa.int64()),
            "day": pa.array([*days] * each, pa.date32()),
        }
    )


def files_below(folder: Path) -> dict[str, str]:
    """A hash of the contents of each file."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def in_duckdb(folder: Path) -> duckdb.DuckDBPyRelation:
    """The rows of a Delta table, by the actions in its log."""
    files: set[str] = set()
    for commit in sorted(folder.glob("_delta_log/*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            files -= {action["remove"]["path"]} if "remove" in action else set()
            files |= {action["add"]["path"]} if "add" in action else set()
    return duckdb.read_parquet([str(folder / file) for file in files], hive_partitioning=True)


@dataclass
class Foreign:
    """A lake at `root`, and a table of another program in `folder`."""

    root: Path
    folder: Path
    table: Table

    @property
    def workspace(self) -> Workspace:
        reader = replace(B, reads={"a": same_day(self.table)})
        project = Project((self.table, reader), CALENDAR.first, CALENDAR.last)
        return Workspace.of(project, read_settings(lake=str(self.root)))

    def write_as_declared(self) -> None:
        """Write a day, as a step does: it first looks where the table lies."""
        refuse_other_place(self.workspace.lake.ledger, self.table.name, self.table.path)
        SmallLake(self.root).write({D0: 3}, table=self.table.name)

    def write(self, rows: pa.Table | None = None, **options: Any) -> None:
        rows = rows_of(*DAYS) if rows is None else rows
        by = options.pop("partition_by", ["day"])
        write_deltalake(str(self.folder), rows, partition_by=by, **options)

    def adopt(self, reason: str = "it is ours", **options: Any) -> AdoptReport:
        asked = AdoptOptions(target=self.table.name, reason=reason, **options)
        return adopt_days(self.workspace, asked, who="ada", note=print)

    def states(self, table: str = A.name) -> dict[date, State]:
        workspace = self.workspace
        status = status_of(
            workspace, workspace.tables, DAYS, latest=latest_builds(workspace)
        ).partitions
        bulk = status_in_bulk(workspace, workspace.tables, DAYS, {}).partitions
        assert bulk == status
        return {at: status[table, at].state for at in DAYS}

    def accepted(self) -> dict[date, Build]:
        found = self.workspace.lake.latest({A.name: None}, BUILD_SCHEMA.names).accepted
        return {at: build for (_, at), build in found.items()}


def refused(
    foreign: Foreign,
    golden: Callable[..., None],
    part: str = "",
    kind: type[BackfillError] = UsageError,
    **options: Any,
) -> None:
    """Nothing is adopted, and nothing changes."""
    before = foreign.accepted(), files_below(foreign.folder)
    with pytest.raises(kind) as error:
        foreign.adopt(**options)
    if foreign.table.path:
        golden(str(error.value), part)
    assert (foreign.accepted(), files_below(foreign.folder)) == before


def of_another_lake(foreign: Foreign) -> None:
    other = Foreign(foreign.root.parent / "other lake", foreign.folder, foreign.table)
    other.write()
    if foreign.table.path:
        other.adopt()
    else:
        lake = SmallLake(other.root)
        lake.write({D0: 1}, table=A.name)
        shutil.rmtree(foreign.folder)
        shutil.copytree(other.root / A.name, foreign.folder)


def not_written(foreign: Foreign, golden: Callable[..., None], part: str = "") -> None:
    with pytest.raises(UsageError) as error:
        foreign.write_as_declared()
    golden(str(error.value), part)
