"""What each computed day comes to: accepted, unchanged, or failed and why; and the record that is made of it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from backfill_assets.lake.record import Build, Outcome
from backfill_assets.quality.day import DayProfile
from backfill_assets.quality.profile import SAMPLE_SIZE
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.audit import Audited
from backfill_assets.step.due import Due
from backfill_assets.step.inputs import AcceptedBuilds, Inputs, change
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table

NO_INPUTS = Inputs()
# The samples of a day's files that lie beside those delivered, of columns that nobody declared, and of what two flows have:
# Dagster shows them, and the run's log warns of them.
UNREAD = "files not read"
UNDECLARED = "columns not declared"
OVERLAP = "in two flows"


@dataclass(frozen=True)
class Judgement:
    """What one day comes to, before it is known in which commit. `same_as`: the build whose rows an unchanged day has.
    `mixed`: as of the build that is made of it.
    """

    day: date
    outcome: Outcome
    message: str = ""
    inputs: Inputs = NO_INPUTS
    audited: Audited | None = None
    same_as: Build | None = None
    mixed: bool = False


def judge_days(
    table: Table, due: Due, audited: Mapping[date, Audited], accepted: AcceptedBuilds, kept: Collection[date] = ()
) -> list[Judgement]:
    """A judgement a day, in order: a day of a table that reads itself fails with the day it was computed from. Those of `kept`
    keep rows of the build before.

    Days that were computed in case a day before them came out different, and that are as they were built from what it came to,
    have none: a correction of the past ends there. Nor have they if it failed: it stays as it was, and so do they.
    """
    stands = [day for day in due.compute if day not in due.rewritten]  # what was lost or changed by hand is written again
    before = {day: accepted[partition] for day in stands if (partition := (table.name, day)) in accepted}
    same = {day: build for day, build in before.items() if build.fingerprint == audited[day].profile.fingerprint}
    fingerprints: dict[date, str] = {}
    judgements: dict[date, Judgement] = {}
    stay: set[date] = set()  # those that failed, and those after them
    for day in due.compute:
        own = [d for other, w in table.windows() if other is table for d in w.days(day)]
        failed = [d for d in own if d in stay]
        if failed and day in due.in_case:
            stay.add(day)
            continue
        message = f"computed from {failed[0]}, which failed in this run" if failed else audited[day].why()
        inputs = _with_own(due.inputs[day], table, own, fingerprints)
        last = accepted.get((table.name, day))
        if day in due.in_case and last and _is_as_built(table, last, audited[day], inputs):
            continue
        outcome: Outcome = "failed" if message else "unchanged" if day in same else "accepted"
        same_as = same[day] if outcome == "unchanged" else None
        mixed = bool(day in kept and last and last.rows and change(table, last, inputs.tables, inputs.delivery))
        judgements[day] = Judgement(day, outcome, message, inputs, audited[day], same_as, mixed)
        if outcome == "failed":
            stay.add(day)
        else:
            fingerprints[day] = audited[day].profile.fingerprint
    return list(judgements.values())


def _is_as_built(table: Table, last: Build, audited: Audited, inputs: Inputs) -> bool:
    return last.fingerprint == audited.profile.fingerprint and not change(table, last, inputs.tables, inputs.delivery)


def _with_own(inputs: Inputs, table: Table, days: Iterable[date], fingerprints: Mapping[date, str]) -> Inputs:
    """`inputs` with the fingerprints that days of the table itself were computed to in this run."""
    own = {day.isoformat(): fingerprints[day] for day in days if day in fingerprints}
    if not own:
        return inputs
    return Inputs({**inputs.tables, table.name: {**inputs.tables.get(table.name, {}), **own}}, inputs.delivery)


def record(
    judgement: Judgement,
    table: Table,
    request: StepRequest,
    *,
    at: datetime,
    versions: Mapping[str, int] | None = None,
    seconds: float = 0.0,
) -> Build:
    """The build that the ledger keeps of a judgement. `seconds`: how long the day took."""
    audited = judgement.audited
    profile = audited.profile if audited else DayProfile(judgement.day, fingerprint="")
    return Build(
        table=table.name,
        day=judgement.day,
        outcome=judgement.outcome,
        run=request.run,
        code_version=table.version,
        fingerprint=profile.fingerprint,
        rows=profile.rows,
        nulls=dict(profile.nulls),
        measures=dict(profile.measures),
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
        git_commit=request.git_commit,
        plan=request.plan,
        who=request.who,
        reason=request.reason,
        message=judgement.message,
        at=at,
    )


def _samples_of(delivery: Delivery) -> dict[str, Sequence[str]]:
    overlap = [delivery.overlap] if delivery.overlap else []
    samples = {UNREAD: delivery.unread, UNDECLARED: delivery.undeclared, OVERLAP: overlap}
    return {name: values[:SAMPLE_SIZE] for name, values in samples.items() if values}


def verdicts_of(audited: Audited) -> list[dict[str, Any]]:
    """The verdict of each rule, with the rows that broke it."""
    return [asdict(each) | {"rows": list(audited.failing_rows.get(each.rule, ()))} for each in audited.verdicts]
