"""Committing what a step has judged, after a look at what others committed while it computed."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime

from backfill_assets.errors import Conflict, InputsChanged
from backfill_assets.lake.commit import Commit, commit_and_record
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.lost_files import lost_files
from backfill_assets.lake.record import Build
from backfill_assets.lake.rewritten import never_accepted, rewritten
from backfill_assets.step.delivered import NO_DELIVERY, deliveries
from backfill_assets.step.inputs import AcceptedBuilds, InputReader, days_of_inputs, partitions_changed
from backfill_assets.step.judge import Judgement
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def commit_days(
    table: Table,
    judgements: Sequence[Judgement],
    commit: Commit,
    records: Callable[[Sequence[Judgement], datetime], list[Build]],
    accepted: AcceptedBuilds,
    request: StepRequest,
    workspace: Workspace,
) -> list[Build]:
    """Put the accepted days into the table in one commit, and record every judgement. `accepted` is what was read before."""

    def decide() -> list[Build]:
        now = _after_others(table, judgements, accepted, request, workspace)
        return records(now, workspace.lake.ledger.next_time(table.name))

    return commit_and_record(workspace.lake.root, table.name, decide, commit)


def _after_others(
    table: Table, judgements: Sequence[Judgement], accepted: AcceptedBuilds, request: StepRequest, workspace: Workspace
) -> list[Judgement]:
    """`judgements` after what others did meanwhile: a day that does not hold what was accepted before is no longer unchanged.

    Raises InputsChanged if they wrote to an input, Conflict if they changed days of which this request keeps rows.
    """
    name = table.name
    passed = [each for each in judgements if each.outcome != "failed"]
    days = {each.day for each in passed}
    looked_at = days_of_inputs(table, days, workspace.calendar)
    known = workspace.lake.latest(looked_at | {name: days | looked_at.get(name, set())})
    now, computed = known.accepted, {each.day for each in judgements}
    _refuse_changed_inputs(table, passed, computed, now, workspace)
    moved = {day for day in days if _commit_of(now, name, day) != _commit_of(accepted, name, day)}
    if request.write_mode == "overwrite":
        unchanged = {each.day for each in passed if each.outcome == "unchanged"}
        again = moved | _not_as_accepted(table, unchanged - moved, known, workspace).keys()
        return [
            replace(each, outcome="accepted", same_as=None) if each.day in again and each.outcome == "unchanged" else each
            for each in judgements
        ]
    # What is kept was read when the step began: any other row would come in unseen, and as if it were ours.
    others = dict.fromkeys(moved, "another writer committed it") | _not_as_accepted(table, days - moved, known, workspace)
    if others:
        first = min(others)
        raise Conflict(
            f"{name}, {first} to {max(others)}, changed while this run was computing: {others[first]}. This run wrote nothing. "
            "Run it again."
        )
    return list(judgements)


def _not_as_accepted(table: Table, days: Collection[date], known: Latest, workspace: Workspace) -> dict[date, str]:
    """Those of `days` that do not hold the rows that were accepted, as the table stands: what is committed comes upon that."""
    folder, version = workspace.lake.path(table.name), workspace.lake.version(table.name)
    builds = {day: build for day in days if (build := known.accepted.get((table.name, day)))}
    differing = {day: why for (name, day), why in known.differing().items() if name == table.name and day in days}
    lost = lost_files(folder, table.partition_by, days, version)
    return differing | lost | rewritten(folder, builds.values(), version) | never_accepted(folder, days, builds, version)


def _refuse_changed_inputs(
    table: Table, judgements: Iterable[Judgement], computed: Collection[date], now: AcceptedBuilds, workspace: Workspace
) -> None:
    """InputsChanged if an input came in, went, or was built again differently after it was read: these rows would take that
    back. Days of the table itself that this step has `computed` are replaced with those that read them."""
    reader = InputReader(table, now, workspace.calendar)
    delivered = deliveries(table, [judgement.day for judgement in judgements], workspace.area)
    own = {(table.name, day.isoformat()) for day in computed}
    for judgement in judgements:
        if delivered.get(judgement.day, NO_DELIVERY) != judgement.inputs.delivery:
            raise InputsChanged(
                f"The source files of {table.name} {judgement.day} changed while they were read. Nothing was written. Run it "
                "again when they are complete."
            )
        changed = [key for key in partitions_changed(judgement.inputs.tables, reader.of(judgement.day)) if key not in own]
        if changed:
            name, day = changed[0]
            raise InputsChanged(
                f"{name} {day} was built again while {table.name} {judgement.day} was computed from it. "
                "Nothing was written. Run it again."
            )


def _commit_of(builds: AcceptedBuilds, table: str, day: date) -> tuple[str, int]:
    build = builds.get((table, day))
    return (build.fingerprint, build.delta_version) if build else ("", -1)
