"""Restore the accepted rows of days to which someone else wrote. No Spark.

The files of an accepted build stay in its table's folder until a vacuum removes them. They are
added again, in one commit per table. This also works for a day whose source is gone, and which
could not be built again.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from backfill_assets.errors import UsageError
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.damage import Depth
from backfill_assets.lake.integrity import damaged, damaged_at
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build
from backfill_assets.lake.moves import RestoreCommit, RestoreRecord
from backfill_assets.tables.declaration import Table


@dataclass(frozen=True)
class PutBack:
    """The restored builds of one table, the damage of each day, and why other days stay."""

    builds: Sequence[Build] = ()
    damages: Mapping[date, str] = field(default_factory=dict)
    not_restored: Mapping[date, str] = field(default_factory=dict)


def put_back(table: Table, lake: Lake, who: str) -> PutBack:
    """Restore the days of a table without their accepted rows, as far as the log shows.

    Days whose files are gone are left as they are.
    """
    name = table.name
    folder = lake.path(table.name)
    record = RestoreRecord(f"reconcile-{secrets.token_hex(4)}", who, "put back as it was accepted")
    damages = dict[date, str]()
    not_restored = dict[date, str]()
    versions = dict[date, int]()

    def decide() -> list[Build]:
        nonlocal damages, not_restored
        accepted = lake.latest({name: None}, BUILD_SCHEMA.names).accepted
        by_log = damaged(folder, accepted.values(), depth=Depth.LOG)
        builds = [accepted[name, day] for day in by_log]
        at_build = [(build, build.delta_version) for build in builds]
        gone = damaged_at(folder, at_build, Depth.FILES)
        damages = {day: str(damage) for day, damage in by_log.items()}
        not_restored = {day: str(damage) for day, damage in gone.items()}
        restoring = [build for build in builds if build.day not in gone]
        versions.update({build.day: build.delta_version for build in restoring})
        at = lake.ledger.next_time(name)
        return [record.of(build, at) for build in restoring]

    lake.recover([name])
    try:
        builds = commit_and_record(
            lake.root, name, decide, RestoreCommit(folder, table.partition_by, versions)
        )
    except UsageError as error:
        return PutBack(not_restored=dict.fromkeys(damages, str(error)))
    return PutBack(builds, damages, not_restored)
