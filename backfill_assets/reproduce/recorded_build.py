"""The build that is to be reproduced: the one whose rows live has of a day, or readers of a release. Reads small records."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from backfill_assets.errors import UsageError
from backfill_assets.lake.latest import latest
from backfill_assets.lake.record import SCHEMA, Build
from backfill_assets.lake.releases import Releases
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class RecordedBuild:
    """A `build` of a day, of a table of the project as it is declared now.

    `version`: that of the table, as live or the `release` (None: live) has it.
    """

    table: Table
    build: Build
    version: int
    release: int | None = None

    @property
    def day(self) -> date:
        return self.build.day

    def facts(self) -> dict[str, Any]:
        """What a reproduction says of the build, as values of JSON."""
        build = self.build
        names = ("run", "outcome", "code_version", "git_commit", "fingerprint", "rows", "input_versions", "spark_conf")
        return {"at": build.at.isoformat()} | {name: _plain(getattr(build, name)) for name in names}


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def recorded_build(name: str, day: str, release: int | None, workspace: Workspace) -> RecordedBuild:
    """The build of a day of the table called `name`; of a release, under the name by which readers read it.

    UsageError for more or less than one table and day, for one that was never built, and for a release that cannot be read.
    """
    tables, days = workspace.named(name) if name else [], workspace.calendar.select(day)
    if len(tables) != 1 or len(days) != 1:
        raise UsageError(
            "One day of one table is reproduced. Nothing was rebuilt. Type, for example, `backfill reproduce "
            f"{workspace.names[0]} {workspace.calendar.first}`."
        )
    (table,), (on,) = tables, days
    if release is not None:
        return _of_release(table, on, release, workspace)
    build = workspace.lake.latest({table.name: [on]}, SCHEMA.names).accepted.get((table.name, on))
    if build is None:
        raise UsageError(f"No build of {table.name} {on} was accepted. Nothing was rebuilt. See `backfill status`.")
    return RecordedBuild(table, build, workspace.lake.version(table.name))


def _of_release(table: Table, day: date, number: int, workspace: Workspace) -> RecordedBuild:
    release, declared = Releases(workspace.lake.root).readable(number), {each.name: each for each in workspace.tables}
    version = release.version(table.name)
    if version is None or version.path not in declared:
        why = "has no" if version is None else f"has {version.path}, which is no table of the project any more, as"
        raise UsageError(f"Release {number} {why} {table.name}. Nothing was rebuilt. See `backfill releases {number}`.")
    read = declared[version.path]  # readers may get another table under this name
    until, ledger = {read.name: version.version}, workspace.lake.ledger
    builds = latest(ledger, {read.name: [day]}, SCHEMA.names, until=until, recorded=release.recorded)
    if (build := builds.accepted.get((read.name, day))) is None:
        raise UsageError(f"Release {number} has no accepted build of {read.name} {day}. Nothing was rebuilt.")
    return RecordedBuild(read, build, version.version, number)
