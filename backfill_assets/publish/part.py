"""Publish a part of a plan: days that conflict with live stay in the shadow.

A day stays if it is in conflict with live, or connected with such a day through reads in the plan:
a reader was computed from rows that live does not get, and an input would make live's rows of the
reader outdated. Rows that live already has connect no days.
"""

from collections.abc import Collection
from typing import NoReturn

from backfill_assets.calendar import Partition, TextByPartition
from backfill_assets.errors import RefusedByGuard
from backfill_assets.lake.damage import Depth
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build, BuildByPartition
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.guards import NOT_PUBLISHED, examples
from backfill_assets.workspace import Workspace


def staying(
    workspace: Workspace, builds: BuildByPartition, conflicts: TextByPartition
) -> dict[Partition, str]:
    """Return the partitions that stay when other `builds` are published, with the reason.

    No published day reads a staying day, or is read by one, with other rows than live has.
    """
    linked = _linked(workspace, builds, conflicts)
    stay = dict(conflicts)
    found = list(conflicts)
    while found:
        partition = found.pop()
        for other in sorted(linked.get(partition, set()) - stay.keys()):
            stay[other] = f"is read together with {partition[0]} {partition[1]}"
            found.append(other)
    return stay


def refuse_nothing(plan: Plan, left: TextByPartition) -> NoReturn:
    """Raise RefusedByGuard: all partitions that are not in live yet stay."""
    raise RefusedByGuard(
        f"Nothing of plan {plan.id} is left to publish without its conflicts:"
        f" {len(left)} partition(s) stay in the shadow:\n{examples(left)}",
        unchanged=NOT_PUBLISHED,
        next_step=(
            f"`backfill rebase {plan.id}` builds what this concerns on live as it is now. With"
            " `--keep live`, live keeps its newer rows."
        ),
    )


def _linked(
    workspace: Workspace, builds: BuildByPartition, conflicts: Collection[Partition]
) -> dict[Partition, set[Partition]]:
    """The partitions that each partition reads, or is read by, with other rows than in live."""
    partitions = {*builds, *conflicts}
    of_live = accepted_in_live(workspace, builds)
    same = {p for p in builds if p in of_live and of_live[p].fingerprint == builds[p].fingerprint}
    other = partitions - same
    linked: dict[Partition, set[Partition]] = {}
    graph = workspace.graph
    for reader in partitions:
        for read in graph.reads(reader):
            if read in other:
                linked.setdefault(reader, set()).add(read)
                linked.setdefault(read, set()).add(reader)
    return linked


def accepted_in_live(
    workspace: Workspace, partitions: Collection[Partition]
) -> dict[Partition, Build]:
    """The accepted builds of these partitions in live, if live still holds their rows."""
    lake = workspace.lake
    days = workspace.graph.by_table(partitions)
    known = lake.latest(days, BUILD_SCHEMA.names)
    damaged = lake.damaged(known, dict.fromkeys(days), Depth.FILES)
    return {p: build for p, build in known.accepted.items() if p not in damaged}
