"""Builds that only a table's own commits tell of: a run died between its data commit and the ledger.

Each commit of ours carries the builds it holds. Every writer first records the commits that the ledger lacks, before it
commits to the table, and its own commit says so. A recorded commit that says so has no unrecorded one before it: nothing older
is read again. `log` and `reconcile` read all commits, because rows of the ledger may be lost in other ways.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from backfill_assets.lake.commits import commits_at, read_commits
from backfill_assets.lake.delta_table import open_table, version_of
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.ledger_files import Newest
from backfill_assets.lake.locks import writing
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.record import Build

SIGNATURE = "backfill_assets"
# In the metadata of a commit: all commits before it were in the ledger when it was made.
COMPLETE = "complete"
Key = tuple[str, date, str, datetime]


def key(build: Build) -> Key:
    """A build, and no other: a run builds a day more than once only if it tries again, later."""
    return build.table, build.day, build.run, build.at


def unrecorded(recorded: Iterable[Build], committed: Iterable[Build]) -> list[Build]:
    """Those of `committed` that are not `recorded`, oldest first."""
    known = {key(build) for build in recorded}
    return sorted((build for build in committed if key(build) not in known), key=lambda b: b.at)


def committed_builds(path: str) -> list[Build]:
    """The builds that the table's own commits tell of, oldest first. Reads every commit."""
    commits = read_commits(path, version_of(path))
    return [build for commit in reversed(commits) for build in builds_of(commit)]


def lacking_builds(path: str, recorded: Newest) -> list[Build]:
    """The builds of the table's commits that are not `recorded`, oldest first. Reads only commits that may be such.

    A table that has not come to the newest recorded version was deleted and made again: all its commits count.
    """
    last = version_of(path)
    if last < recorded.version:
        return committed_builds(path)
    versions = set(range(last + 1)) - recorded.versions
    later = {version for version in versions if version > recorded.version}
    # Commits of maintenance and of others are in no ledger: they are not read again at each commit.
    if versions != later and any(map(_is_complete, commits_at(path, [recorded.version]))):
        versions = later
    commits = list(commits_at(path, sorted(versions, reverse=True)))
    return [build for commit in reversed(commits) for build in builds_of(commit)]


def last_committed(path: str, days: Collection[date]) -> dict[date, Build]:
    """The last build of each of these days by the table's own commits. Reads no further back than needed."""
    last: dict[date, Build] = {}
    if not days:
        return last
    for commit in commits_at(path, range(version_of(path), -1, -1)):
        for build in builds_of(commit):
            if build.day in days:
                last.setdefault(build.day, build)
        if len(last) == len(days):
            break
    return last


def recover(ledger: Ledger, table: str) -> list[Build]:
    """Record what the ledger lacks of all commits of one table, once no writer is at work on that table."""
    with writing(ledger.root, table):  # a live writer holds this until it has recorded what it committed
        return _record(ledger, table, committed_builds(Paths(ledger.root).table(table)))


def recover_locked(ledger: Ledger, table: str) -> list[Build]:
    """Record the commits of one table that the ledger lacks. The caller holds the right to write the table."""
    return _record(ledger, table, lacking_builds(Paths(ledger.root).table(table), ledger.newest([table])[table]))


def recover_newest(ledger: Ledger, tables: Collection[str]) -> list[Build]:
    """Record the commits of `tables` that the ledger lacks."""
    recovered: list[Build] = []
    for name, recorded in ledger.newest(tables).items():
        if lacking_builds(Paths(ledger.root).table(name), recorded):
            with writing(ledger.root, name):
                recovered += recover_locked(ledger, name)
    return recovered


def _record(ledger: Ledger, table: str, committed: Sequence[Build]) -> list[Build]:
    if not committed:
        return []
    days = {build.day for build in committed}
    missing = unrecorded(ledger.builds({table: days}, ("table", "day", "run", "outcome", "at")), committed)
    if missing:
        ledger.append(missing)
    return missing


@dataclass(frozen=True)
class BuildHistory:
    """Every build there was, oldest first: `recorded` in the ledger, or `unrecorded`."""

    recorded: Sequence[Build]
    unrecorded: Sequence[Build]

    def builds(self) -> list[Build]:
        return sorted([*self.recorded, *self.unrecorded], key=lambda b: b.at)


def build_history(ledger: Ledger, tables: Collection[str], columns: Sequence[str] | None = None) -> BuildHistory:
    """Every build of `tables`, changing nothing. `columns` narrows what is read of each build in the ledger."""
    recorded = ledger.builds(dict.fromkeys(tables), columns)
    committed = [build for name in tables for build in committed_builds(Paths(ledger.root).table(name))]
    return BuildHistory(recorded, unrecorded(recorded, committed))


def tables_in(ledger: Ledger) -> list[str]:
    """Every table that was ever built, those that have another name by now too."""
    table = open_table(ledger.path)
    return sorted({partition["table"] for partition in table.partitions()}) if table else []


def commit_metadata(builds: Sequence[Build], *, complete: bool = False) -> str:
    """What a data commit says of itself: who wrote what, why, from which code and inputs.

    `complete`: whether all commits before it are in the ledger.
    """
    complete_before = {COMPLETE: True} if complete else {}
    return json.dumps({"by": SIGNATURE, "builds": [b.to_json() for b in builds]} | complete_before, sort_keys=True)


def version_with(path: str, metadata: str, *, after: int) -> int | None:
    """The version later than `after` whose commit carries `metadata`; None if there is none."""
    table = open_table(path)
    if table is None or table.version() <= after:
        return None
    commits = read_commits(path, int(table.version()), after + 1)
    return next((int(commit["version"]) for commit in commits if commit.get("userMetadata") == metadata), None)


def builds_of(commit: Mapping[str, Any]) -> list[Build]:
    """The builds that one commit tells of; none if it is not ours."""
    return [Build.from_json(entry | {"delta_version": commit["version"]}) for entry in _entries(commit)]


def is_ours(commit: Mapping[str, Any]) -> bool:
    return bool(_entries(commit))


def _is_complete(commit: Mapping[str, Any]) -> bool:
    return bool(_metadata(commit).get(COMPLETE))


def _entries(commit: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = _metadata(commit).get("builds", [])
    return entries


def _metadata(commit: Mapping[str, Any]) -> dict[str, Any]:
    """What a commit of ours says of itself; empty if it is not ours."""
    try:
        metadata = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) and metadata.get("by") == SIGNATURE else {}
