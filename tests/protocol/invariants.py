"""What must hold in every world, and the way out of every world."""

from functools import partial

from tests.protocol import world as store
from tests.protocol.actors import Protocol, needed_files
from tests.protocol.explore import run_alone
from tests.protocol.world import TABLES, World


def problem_of(world: World, protocol: Protocol) -> str:
    """The first invariant that a world breaks, in words; empty if it breaks none."""
    return (
        _both_outcomes(world)
        or _twice(world)
        or _lost_update(world)
        or _half_in_release(world, protocol)
        or _half_run_in_release(world, protocol)
        or _refused(world)
        or _backwards(world)
        or _lost_file(world)
        or _unreleased(world, protocol)
        or _no_way_out(world, protocol)
    )


def _both_outcomes(world: World) -> str:
    for n, outcome in enumerate(world.outcomes):
        committed = any(store.has_txn(log, f"act {n}") for log in world.logs)
        if committed and (outcome is None or not outcome.is_committed):
            return f"act {n} has commits, and its outcome is {outcome}"
    return ""


def _twice(world: World) -> str:
    for table, log in zip(TABLES, world.logs, strict=True):
        txns = [commit.txn for commit in log if commit.txn]
        if len(txns) != len(set(txns)):
            return f"an act was committed twice to {table}"
    return ""


def _lost_update(world: World) -> str:
    """An act replaces the rows that it was decided on, or rows of a foreign writer."""
    for table, log in zip(TABLES, world.logs, strict=True):
        for version, commit in enumerate(log):
            if not commit.txn.startswith("act") or not commit.days:
                continue
            act = world.acts[int(commit.txn.split()[1])]
            for change in act.changes:
                if change.table != table:
                    continue
                replaced = store.rows_at(log[:version], change.day)
                if replaced not in (change.before, change.after) and replaced.by != "foreign":
                    return f"{commit.txn} replaced rows of {replaced.by} in {table}"
    return ""


def _half_in_release(world: World, protocol: Protocol) -> str:
    for release in world.releases:
        shown = tuple(
            log[:version] for log, version in zip(world.logs, release.versions, strict=True)
        )
        for n, act in enumerate(world.acts):
            tables = {change.table for change in act.changes}
            held = {
                table
                for table, log in zip(TABLES, shown, strict=True)
                if store.has_txn(log, f"act {n}")
            }
            if held and held != tables:
                return f"release {release} has act {n} in {sorted(held)} only"
        if not store.is_settled(shown, protocol.has_lineage):
            return f"release {release} has tables that disagree"
    return ""


def _half_run_in_release(world: World, protocol: Protocol) -> str:
    """A run that has committed to both tables is in a release with both commits, or with none.

    Without locks, a run that begins after an act looked may commit before it. Lineage prevents
    that tables disagree.
    """
    by_table = [{commit.by for commit in log if not commit.txn} for log in world.logs]
    runs = set.intersection(*by_table) - {"old", "foreign"} if protocol.has_locks else set()
    for release in world.releases:
        for run in sorted(runs):
            held = [
                table
                for table, log, version in zip(TABLES, world.logs, release.versions, strict=True)
                if any(commit.by == run for commit in log[:version])
            ]
            if len(held) == 1:
                return f"release {release} has run {run} in {held} only"
    return ""


def _refused(world: World) -> str:
    if world.refused and not world.gave_up:
        return "an act was refused because of a run, although nobody's patience had ended"
    return ""


def _backwards(world: World) -> str:
    for earlier, later in zip(world.releases, world.releases[1:], strict=False):
        if any(a > b for a, b in zip(earlier.versions, later.versions, strict=True)):
            return f"release {later} is behind {earlier}"
    return ""


def _lost_file(world: World) -> str:
    done = tuple(
        act
        for n, (act, outcome) in enumerate(zip(world.acts, world.outcomes, strict=True))
        if outcome is not None and outcome.is_committed and n in world.ended
    )
    needed = needed_files(done, world.releases, world.logs)
    missing = needed - world.files - world.lost - {""}
    return f"files are gone: {sorted(missing)}" if missing else ""


def _unreleased(world: World, protocol: Protocol) -> str:
    """An act that is done is in a release, if the tables agreed when it was committed."""
    for n in world.ended:
        outcome = world.outcomes[n]
        if outcome is None:
            return f"act {n} ended without an outcome"
        if not outcome.is_committed:
            continue
        for change in world.acts[n].changes:
            if not store.has_txn(world.log(change.table), f"act {n}"):
                return f"act {n} ended without its commit to {change.table}"
        releases = [release for release in world.releases if release.by == f"act {n}"]
        if len(releases) > 1:
            return f"act {n} was released twice"
    return ""


def _no_way_out(world: World, protocol: Protocol) -> str:
    """All actors stop here. Two nights and a release, one after the other, put all right."""
    left = world._replace(
        locks=frozenset(), announced=frozenset(), running=frozenset(), answers_to_lose=0
    )
    try:
        for day in store.days_of(left.log("A")):
            left = run_alone(left, "next", partial(protocol.repair, "next", day))
        left = run_alone(left, "next", partial(protocol.release, "next"))
    except RuntimeError as error:
        return f"no way out: {error}"
    if len(left.ended) != len(left.acts):
        return "no way out: an act is unfinished"
    if not store.is_settled(left.logs, protocol.has_lineage):
        return "no way out: tables disagree"
    rows = [store.rows_at(log, day) for log in left.logs for day in store.days_of(log)]
    if any(of_day.file not in left.files for of_day in rows):
        return "no way out: live lacks a file"
    if not left.releases or left.releases[-1].versions != tuple(len(log) for log in left.logs):
        return "no way out: live is not released"
    return ""
