"""Builds that only a table's own commits tell of: a run died between its data commit and the ledger.

Each commit of ours carries the builds it holds. Those after the newest recorded version are looked for by every step; all of
them, holes in the middle included, by `log` and `reconcile`.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from backfill_assets.lake.commits import read_commits
from backfill_assets.lake.delta_table import open_table, version_of
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.locks import writing
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.record import Build

SIGNATURE = "backfill_assets"
Key = tuple[str, date, str, datetime]


def key(build: Build) -> Key:
    """A build, and no other: a run builds a day more than once only if it tries again, later."""
    return build.table, build.day, build.run, build.at


def unrecorded(recorded: Iterable[Build], committed: Iterable[Build]) -> list[Build]:
    """Those of `committed` that are not `recorded`, oldest first."""
    known = {key(build) for build in recorded}
    return sorted((build for build in committed if key(build) not in known), key=lambda b: b.at)


def committed_builds(path: str, after: int = -1) -> list[Build]:
    """The builds that the table's own commits tell of, from versions later than `after`, oldest first.

    Of a table that has not come to `after` every version counts: it was deleted, and made anew.
    """
    table = open_table(path)
    if table is None or table.version() == after:
        return []
    after = after if after < table.version() else -1
    commits = read_commits(path, int(table.version()), after + 1)
    return [build for commit in reversed(commits) for build in builds_of(commit)]


def recover(ledger: Ledger, table: str, *, after: int = -1) -> list[Build]:
    """Record what the ledger lacks of one table's versions later than `after`, once no writer is at work on that table."""
    with writing(ledger.root, table):  # a live writer holds this until it has recorded what it committed
        return recover_locked(ledger, table, after=after)


def recover_locked(ledger: Ledger, table: str, *, after: int = -1) -> list[Build]:
    """The same for a caller that holds the right to write the table."""
    committed = committed_builds(Paths(ledger.root).table(table), after)
    days = {build.day for build in committed}
    missing = unrecorded(ledger.builds({table: days}, ("table", "day", "run", "outcome", "at")) if days else (), committed)
    ledger.append(missing)
    return missing


def recover_newest(ledger: Ledger, tables: Collection[str]) -> list[Build]:
    """Record what crashes left out of `tables` after their newest recorded versions."""
    newest = {name: of_table.version for name, of_table in ledger.newest(tables).items()}
    unlike = [name for name, version in newest.items() if version_of(Paths(ledger.root).table(name)) not in (version, -1)]
    return [build for name in unlike for build in recover(ledger, name, after=newest[name])]


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


def commit_metadata(builds: Sequence[Build]) -> str:
    """What a data commit says of itself: who wrote what, why, from which code and inputs."""
    return json.dumps({"by": SIGNATURE, "builds": [b.to_json() for b in builds]}, sort_keys=True)


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


def _entries(commit: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        metadata = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return []
    return metadata.get("builds", []) if isinstance(metadata, dict) and metadata.get("by") == SIGNATURE else []
