"""Decide the outcome of each computed day, and commit the days that passed.

The inputs are compared again under the table's lock, because others may have committed while the
step computed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from typing import Any

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import NOTHING_COMMITTED, Conflict, InputsChanged
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.damage import Depth
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import Build, Outcome
from backfill_assets.quality.profile import SAMPLE_SIZE
from backfill_assets.quality.rule import DayProfile
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.audit import Audited
from backfill_assets.step.due import Due
from backfill_assets.step.inputs import (
    CLOSED,
    NOTES,
    UNDECLARED,
    UNEXPECTED,
    UNREAD,
    AcceptedBuilds,
    InputReader,
    Inputs,
    change_since,
    changed_inputs,
    days_of_inputs,
    deliveries,
    newer_code,
    own_days,
    with_own,
)
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

_NO_INPUTS = Inputs()


@dataclass(frozen=True)
class Judgement:
    """The outcome of one day, before its commit. `same_as` is the build with the same rows.

    `message` says why the day failed, or has the warnings of a day that passed. `mixed` has the
    same meaning as in `Build`. `kept_code` is the code of kept rows that someone accepted for the
    present code (merge).
    """

    day: date
    outcome: Outcome
    message: str = ""
    inputs: Inputs = _NO_INPUTS
    audited: Audited | None = None
    same_as: Build | None = None
    mixed: bool = False
    kept_code: str = ""


def judge_days(
    table: Table,
    due: Due,
    audited: Mapping[date, Audited],
    accepted: AcceptedBuilds,
    kept_days: Collection[date] = (),
) -> list[Judgement]:
    """One judgement per day, in order.

    Days in `kept_days` keep rows of their last build (merge).

    A day of a table that reads itself fails with the day that it was computed from. A day in
    `due.in_case` has no judgement if its rows and inputs are unchanged, or if the day that it was
    computed from failed: its build stays as it is.
    """
    # A damaged day is written again even if its rows are the same.
    same = {
        day: build
        for day in due.compute
        if day not in due.rewritten
        and (build := accepted.get((table.name, day)))
        and build.fingerprint == audited[day].profile.fingerprint
    }
    fingerprints: dict[date, str] = {}
    judgements: dict[date, Judgement] = {}
    # Days that failed, and days computed from them.
    failed_days: set[date] = set()
    for day in due.compute:
        own = own_days(table, day)
        failed = [d for d in own if d in failed_days]
        if failed and day in due.in_case:
            failed_days.add(day)
            continue
        message = (
            f"computed from {failed[0]}, which failed in this run" if failed else audited[day].why()
        )
        inputs = with_own(due.inputs[day], table, own, fingerprints)
        last = accepted.get((table.name, day))
        if (
            day in due.in_case
            and last
            and (
                last.fingerprint == audited[day].profile.fingerprint
                and not change_since(table, last, inputs.tables, inputs.delivery)
            )
        ):
            continue
        outcome: Outcome = "failed" if message else "unchanged" if day in same else "accepted"
        same_as = same[day] if outcome == "unchanged" else None
        kept_from = last if day in kept_days and last and last.rows else None
        mixed = bool(kept_from and change_since(table, kept_from, inputs.tables, inputs.delivery))
        kept_code = ""
        if kept_from and kept_from.accepted_code == table.version:
            kept_code = kept_from.code_version
        message = message or audited[day].warnings()
        judgements[day] = Judgement(
            day, outcome, message, inputs, audited[day], same_as, mixed, kept_code
        )
        if outcome == "failed":
            failed_days.add(day)
        else:
            fingerprints[day] = audited[day].profile.fingerprint
    return list(judgements.values())


def closed_day(day: date) -> Judgement:
    """The judgement of a closed day: it has no rows, and no rule judges it."""
    empty = Audited(DayProfile(day), ())
    return Judgement(day, "accepted", inputs=Inputs(delivery=CLOSED), audited=empty)


def record(
    judgement: Judgement,
    table: Table,
    request: StepRequest,
    *,
    at: datetime,
    versions: Mapping[str, int] | None = None,
    seconds: float = 0.0,
) -> Build:
    """The build that records a judgement in the ledger. `seconds` is the duration of the day."""
    audited = judgement.audited
    profile = audited.profile if audited else DayProfile(judgement.day, fingerprint="")
    return Build(
        table=table.name,
        day=judgement.day,
        outcome=judgement.outcome,
        run=request.run,
        code_version=judgement.kept_code or table.version,
        accepted_code=table.version if judgement.kept_code else "",
        code_loaded_at=table.loaded_at,
        fingerprint=profile.fingerprint,
        rows=profile.rows,
        nulls=dict(profile.nulls),
        measures=dict(profile.measures),
        dropped=dict(profile.dropped),
        samples=dict(profile.samples) | _samples_of(judgement.inputs.delivery),
        day_fingerprints=dict(profile.day_fingerprints),
        inputs=judgement.inputs.tables,
        delivered=judgement.inputs.delivery.fingerprint,
        files=dict(judgement.inputs.delivery.files),
        hashes=dict(judgement.inputs.delivery.hashes),
        input_versions=dict(versions or {}),
        checks=verdicts_of(audited) if audited else (),
        rules=table.rules_version,
        delta_version=judgement.same_as.delta_version if judgement.same_as else -1,
        data_files=judgement.same_as.data_files if judgement.same_as else "",
        seconds=round(seconds, 3),
        write_mode=request.write_mode,
        mixed=judgement.mixed,
        spark_conf=dict(request.spark_conf),
        accept=audited.accept if audited else request.accept,
        replace_foreign_rows=request.replace_foreign_rows,
        git_commit=request.git_commit,
        plan=request.plan,
        who=request.who,
        reason=request.reason,
        message=judgement.message,
        at=at,
    )


def _samples_of(delivery: Delivery) -> dict[str, Sequence[str]]:
    samples = {
        UNREAD: delivery.unread,
        UNDECLARED: delivery.undeclared,
        UNEXPECTED: list(delivery.files) if delivery.unexpected else [],
        NOTES: delivery.notes,
    }
    return {name: values[:SAMPLE_SIZE] for name, values in samples.items() if values}


def verdicts_of(audited: Audited) -> list[dict[str, Any]]:
    """The verdict of each rule with the rows that broke it, as plain data."""
    return [
        asdict(verdict) | {"rows": list(audited.failing_rows.get(verdict.rule, ()))}
        for verdict in audited.verdicts
    ]


def commit_days(
    table: Table,
    judgements: Sequence[Judgement],
    commit: FileCommit,
    records: Callable[[Sequence[Judgement], datetime], list[Build]],
    accepted: AcceptedBuilds,
    request: StepRequest,
    workspace: Workspace,
    began: datetime,
) -> list[Build]:
    """Commit the accepted days together, and record every judgement.

    `accepted` are the accepted builds from before the computation. `began` is the time of the
    table's newest build when the step began.
    """

    def decide() -> list[Build]:
        now = _after_others(table, judgements, accepted, request, workspace, began)
        return records(now, workspace.lake.ledger.next_time(table.name))

    workspace.lake.ledger.begin()
    return commit_and_record(workspace.lake.root, table.name, decide, commit, request.run)


def _after_others(
    table: Table,
    judgements: Sequence[Judgement],
    accepted: AcceptedBuilds,
    request: StepRequest,
    workspace: Workspace,
    began: datetime,
) -> list[Judgement]:
    """The judgements after commits of other writers. A changed day is not `unchanged` any more."""
    name = table.name
    passed = [judgement for judgement in judgements if judgement.outcome != "failed"]
    days = {judgement.day for judgement in passed}
    inputs = days_of_inputs(table, days, workspace.calendar)
    latest = workspace.lake.latest(inputs | {name: days | inputs.get(name, set())})
    now = latest.accepted
    _refuse_newer_code(table, days, now)
    is_overwrite = request.write_mode == "overwrite"
    if not (is_overwrite and request.replace_foreign_rows):
        _refuse_occupied(workspace.lake.occupied({name: days}, latest))
    if is_overwrite:
        _refuse_merged_meanwhile(table, days, now, request, workspace, began)
    computed = {judgement.day for judgement in judgements}
    _refuse_changed_inputs(table, passed, computed, now, workspace)
    moved = {day for day in days if _commit_of(now, name, day) != _commit_of(accepted, name, day)}
    if is_overwrite:
        unchanged = {judgement.day for judgement in passed if judgement.outcome == "unchanged"}
        changed = moved | _not_as_accepted(table, unchanged - moved, latest, workspace).keys()
        return [
            (
                replace(judgement, outcome="accepted", same_as=None)
                if judgement.day in changed & unchanged
                else judgement
            )
            for judgement in judgements
        ]
    # The kept rows were read when the step began, so newer rows of other writers would be lost.
    others = dict.fromkeys(moved, "another writer committed it")
    others |= _not_as_accepted(table, days - moved, latest, workspace)
    if others:
        raise Conflict(
            f"{name} {ranges(sorted(others))} changed while this run was computing:"
            f" {others[min(others)]}.",
            unchanged=NOTHING_COMMITTED,
            next_step="Run it again.",
        )
    return list(judgements)


def _refuse_occupied(occupied: Collection[Partition]) -> None:
    """Raise InputsChanged if another program has written one of the days first."""
    for name, day in sorted(occupied):
        raise InputsChanged(
            f"Another program wrote {name} {day} while this run was computing it.",
            unchanged=NOTHING_COMMITTED,
            next_step="Run it again with --replace-foreign-rows, if its rows may be replaced.",
        )


def _refuse_newer_code(table: Table, days: Iterable[date], now: AcceptedBuilds) -> None:
    """Raise InputsChanged if newer code has built one of the days."""
    for day in sorted(days):
        if newer := newer_code(table, now.get((table.name, day))):
            raise InputsChanged(
                f"{table.name} {day} was built by newer code ({newer}) while this run was"
                " computing.",
                unchanged=NOTHING_COMMITTED,
                next_step="Load the newer code (`backfill reload`), then run again.",
            )


def _refuse_merged_meanwhile(
    table: Table,
    days: Iterable[date],
    now: AcceptedBuilds,
    request: StepRequest,
    workspace: Workspace,
    began: datetime,
) -> None:
    """Raise Conflict if another run merged rows into one of the days: they would be lost."""
    since = {
        day
        for day in days
        if (build := now.get((table.name, day)))
        and build.write_mode == "merge"
        and build.at > began
    }
    # The last build may be a repeated merge, which left the rows of the first merge.
    merged = [
        build
        for build in (workspace.lake.ledger.builds({table.name: since}) if since else ())
        if (build.write_mode, build.outcome) == ("merge", "accepted")
        and build.at > began
        and build.run != request.run
    ]
    if merged:
        raise Conflict(
            f"{table.name} {ranges({build.day for build in merged})} got rows of run"
            f" {merged[0].run} (merge) while this run was computing, and would lose them.",
            unchanged=NOTHING_COMMITTED,
            next_step="If these rows may be replaced, run it again.",
        )


def _not_as_accepted(
    table: Table, days: Collection[date], latest: Latest, workspace: Workspace
) -> dict[date, str]:
    """Days that no longer hold their accepted rows, at the version before this commit."""
    lake = workspace.lake
    version = lake.version(table.name)
    accepted = {p: b for p, b in latest.accepted.items() if p[0] == table.name and p[1] in days}
    own = replace(latest, accepted=accepted)
    return {
        day: str(damage)
        for (_, day), damage in lake.damaged(own, {table.name: version}, Depth.FILES).items()
    }


def _refuse_changed_inputs(
    table: Table,
    judgements: Iterable[Judgement],
    computed: Collection[date],
    now: AcceptedBuilds,
    workspace: Workspace,
) -> None:
    """Raise InputsChanged if an input was added, removed or rebuilt after it was read.

    Days of the same table that this step `computed` do not count.
    """
    reader = InputReader(table, now, workspace.calendar)
    delivered = deliveries(table, [judgement.day for judgement in judgements], workspace.area)
    own = {(table.name, day.isoformat()) for day in computed}
    for judgement in judgements:
        read = judgement.inputs.delivery
        if delivered.get(judgement.day, read) != read:
            raise InputsChanged(
                f"The source files of {table.name} {judgement.day} changed while they were read.",
                unchanged=NOTHING_COMMITTED,
                next_step="Run it again when they are complete.",
            )
        if read == CLOSED:
            continue
        changed = [
            key
            for key in changed_inputs(judgement.inputs.tables, reader.fingerprints(judgement.day))
            if key not in own
        ]
        if changed:
            name, day = changed[0]
            raise InputsChanged(
                f"{name} {day} was built again while {table.name} {judgement.day} was computed from"
                " it.",
                unchanged=NOTHING_COMMITTED,
                next_step="Run it again.",
            )


def _commit_of(builds: AcceptedBuilds, table: str, day: date) -> tuple[str, int]:
    build = builds.get((table, day))
    return (build.fingerprint, build.delta_version) if build else ("", -1)
