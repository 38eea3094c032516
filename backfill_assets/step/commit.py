"""Committing what a step has judged, after a look at what others committed while it computed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

from backfill_assets.errors import Conflict
from backfill_assets.lake.commit import Commit, commit_and_record
from backfill_assets.lake.latest import latest
from backfill_assets.lake.record import Build
from backfill_assets.lake.recovery import recover_locked
from backfill_assets.step.due import AcceptedBuilds
from backfill_assets.step.judge import Judgement
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def commit_days(
    table: Table,
    judgements: Sequence[Judgement],
    commit: Commit,
    records: Callable[[Sequence[Judgement]], list[Build]],
    accepted: AcceptedBuilds,
    request: StepRequest,
    workspace: Workspace,
) -> list[Build]:
    """Put the accepted days into the table in one commit, and record every judgement. `accepted` is what was read before."""

    def decide() -> list[Build]:
        return records(_after_others(table, judgements, accepted, request, workspace))

    return commit_and_record(workspace.lake.root, table.name, decide, commit)


def _after_others(
    table: Table, judgements: Sequence[Judgement], accepted: AcceptedBuilds, request: StepRequest, workspace: Workspace
) -> list[Judgement]:
    """`judgements` after what others committed meanwhile: a day they wrote is no longer unchanged."""
    name, ledger = table.name, workspace.lake.ledger
    newest = ledger.newest_versions([name])[name]
    if workspace.lake.version(name) > newest:
        recover_locked(ledger, name, after=newest)
    days = {each.day for each in judgements if each.outcome != "failed"}
    now = latest(ledger, {name: days}).accepted
    moved = {day for day in days if _commit_of(now, name, day) != _commit_of(accepted, name, day)}
    if moved and request.write_mode != "overwrite":
        raise Conflict(
            f"Another writer committed to {name}, {min(moved)} to {max(moved)}, while this run was computing. "
            "This run wrote nothing. Run it again."
        )
    return [
        replace(each, outcome="accepted", unchanged_since=-1) if each.day in moved and each.outcome == "unchanged" else each
        for each in judgements
    ]


def _commit_of(builds: AcceptedBuilds, table: str, day: date) -> tuple[str, int]:
    build = builds.get((table, day))
    return (build.fingerprint, build.delta_version) if build else ("", -1)
