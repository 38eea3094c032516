"""What a rollback does with each partition that a plan changed."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from backfill_assets.lake.record import Build
from backfill_assets.lake.writers import writers


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
    before already, to record again; `why`: of a conflict, or of rows that are lost; `by_others`: of a conflict, whether the
    rows are those of another build."""

    kind: Kind
    before: Build | None = None
    why: str = ""
    version: int = -1
    by_others: bool = False


LEFT = (Kind.CONFLICT, Kind.FIRST_BUILT, Kind.LOST)


def is_put_back(decisions: Iterable[Decision]) -> bool:
    """Whether a partition has the rows of before the plan: put back now, or so already. Else the plan stays what it is."""
    return any(decision.kind in (Kind.RESTORE, Kind.RESTORED) for decision in decisions)


def decide(
    builds: Sequence[Build],
    plan_id: str,
    rewritten_by_others: str = "",
    *,
    undone: Collection[str] = (),
    force: bool = False,
) -> Decision | None:
    """What is done with a partition, by its builds that were accepted, oldest first; None if the plan did not change it.

    Before it were the last rows that neither this plan nor one of the `undone`, which were rolled back, has written; if there
    are none, those of the last other plan. `rewritten_by_others`: what somebody else did to its rows since the last build.
    """
    changed = [n for n, build in enumerate(builds) if build.plan == plan_id and build.outcome == "accepted"]
    if not changed:
        return _recorded_again(builds, plan_id)
    of_plan, now, wrote = builds[changed[-1]], builds[-1], writers(builds)
    # What others built between two of the plan's builds is not lost; that they found the plan's own rows is no build of theirs.
    for plans in ({plan_id, *undone}, {plan_id}):
        others = [n for n in range(changed[-1]) if builds[n].plan not in plans and wrote[n].plan not in plans]
        if others:
            break
    else:
        return Decision(Kind.FIRST_BUILT)
    before, since = builds[others[-1]], range(others[-1] + 1, len(builds))
    first = next(builds[n] for n in since if wrote[n].plan in plans)
    version = max(first.delta_version - 1, before.delta_version)
    if now.fingerprint == before.fingerprint and not rewritten_by_others:
        return Decision(Kind.RESTORED)
    built_since = _by_whom(now) if now.fingerprint != of_plan.fingerprint else ""
    why = rewritten_by_others or built_since
    if why and not force:
        return Decision(Kind.CONFLICT, why=why, by_others=bool(built_since))
    return Decision(Kind.RESTORE, before, version=version)


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
