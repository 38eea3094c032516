"""What a rollback does with each partition that a plan changed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from backfill_assets.lake.record import Build


class Kind(StrEnum):
    """What a rollback does with a partition that the plan changed."""

    RESTORE = "restored"
    RESTORED = "as before already"
    CONFLICT = "built since"  # the rows are not the plan's any more
    FIRST_BUILT = "built first by this plan"  # there is nothing to put back
    LOST = "not in the history"  # the rows of before are not in the table's log as they were built


@dataclass(frozen=True)
class Decision:
    """What is done with one partition; `before`: the build to put back, from `version` of its table, or, where the rows are as
    before already, to record again; `why`: of a conflict, of rows that are lost, or what to know of those put back."""

    kind: Kind
    before: Build | None = None
    why: str = ""
    version: int = -1


LEFT = (Kind.CONFLICT, Kind.FIRST_BUILT, Kind.LOST)


def is_put_back(decisions: Iterable[Decision]) -> bool:
    """Whether a partition has the rows of before the plan: put back now, or so already. Else the plan stays what it is."""
    return any(decision.kind in (Kind.RESTORE, Kind.RESTORED) for decision in decisions)


def decide(builds: Sequence[Build], plan_id: str, rewritten_by_others: str = "", *, force: bool = False) -> Decision | None:
    """What is done with a partition, by its builds that were accepted, oldest first; None if the plan did not change it.

    `rewritten_by_others`: what somebody else did to its rows since the last of them, if anything.
    """
    changed = [n for n, build in enumerate(builds) if build.plan == plan_id and build.outcome == "accepted"]
    if not changed:
        return _recorded_again(builds, plan_id)
    of_plan, now = builds[changed[-1]], builds[-1]
    # What others built between two of the plan's builds is not lost; that they found the plan's own rows is no build of theirs.
    written = {builds[n].delta_version for n in changed}
    others = [n for n in range(changed[-1]) if builds[n].plan != plan_id and builds[n].delta_version not in written]
    before = builds[others[-1]] if others else None
    first = next(n for n in changed if not others or n > others[-1])
    version = max(builds[first].delta_version - 1, before.delta_version if before else -1)
    if before is None:
        return Decision(Kind.FIRST_BUILT)
    if now.fingerprint == before.fingerprint and not rewritten_by_others:
        return Decision(Kind.RESTORED)
    why = rewritten_by_others or (_by_whom(now) if now.fingerprint != of_plan.fingerprint else "")
    return Decision(Kind.CONFLICT, why=why) if why and not force else Decision(Kind.RESTORE, before, version=version)


def _recorded_again(builds: Sequence[Build], plan_id: str) -> Decision | None:
    """The decision on a partition in which the plan found the rows that were there, made from other inputs; None for others."""
    now, others = builds[-1], [build for build in builds if build.plan != plan_id]
    if now.plan != plan_id or not others or now.inputs == others[-1].inputs or now.fingerprint != others[-1].fingerprint:
        return None
    before = replace(others[-1], delta_version=now.delta_version, data_files=now.data_files)
    return Decision(Kind.RESTORED, before)


def _by_whom(build: Build) -> str:
    who = f"plan {build.plan}" if build.plan else f"run {build.run}"
    return f"built since by {who} on {build.at:%Y-%m-%d %H:%M} UTC" + (f" ({build.reason})" if build.reason else "")
