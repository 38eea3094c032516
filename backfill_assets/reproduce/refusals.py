"""What a build is to be reproduced from, and why it cannot be: by other code, from inputs that are gone, rows of nobody. No
Spark: whoever asks knows at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backfill_assets.calendar import Partition
from backfill_assets.errors import SourceError
from backfill_assets.lake.rewritten import rewritten
from backfill_assets.reproduce.recorded_build import RecordedBuild
from backfill_assets.reproduce.recorded_inputs import recorded_inputs
from backfill_assets.reproduce.reproduction import Reproduction, Result
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.delivered import NO_DELIVERY, Delivered, deliveries, files_changed
from backfill_assets.workspace import Workspace

DIRTY = "-dirty"


@dataclass(frozen=True)
class Basis:
    """What a build is reproduced from: the version of its table that holds each partition read, and the delivery."""

    versions: Mapping[Partition, int]
    delivery: Delivery


def basis_of(recorded: RecordedBuild, workspace: Workspace) -> Basis | Reproduction:
    """What a build was made from, if all of it is there; else the reproduction that says what is not."""
    table, build, day = recorded.table, recorded.build, recorded.day
    if build.code_version != table.version:
        return refused(recorded, Result.OTHER_CODE, [_other_code(recorded)])
    if build.mixed:
        why = (
            f"it was built by {build.write_mode}, and keeps rows that other code, files or inputs made: no one build makes all"
        )
        return refused(recorded, Result.MIXED, [why])
    if by := rewritten(workspace.lake.path(table.name), [build], recorded.version).get(day):
        return refused(recorded, Result.REWRITTEN, [f"its rows are none of a build: {by}"])
    inputs = recorded_inputs(recorded, workspace)
    gone = [f"{name} {on}: {why}" for (name, on), why in inputs.gone.items()]
    delivery = deliveries(table, [day], workspace.area).get(day, NO_DELIVERY)
    if build.delivered and (why := _other_delivery(recorded, delivery)):
        gone.append(why)
    if gone or isinstance(delivery, SourceError):
        return refused(recorded, Result.INPUT_GONE, gone)
    return Basis(inputs.versions, delivery)


def refused(recorded: RecordedBuild, result: Result, reasons: Sequence[str]) -> Reproduction:
    return Reproduction(recorded.table.name, str(recorded.day), recorded.release, result, recorded.facts(), tuple(reasons))


def _other_code(recorded: RecordedBuild) -> str:
    build, now = recorded.build, recorded.table.version
    why = f"it was built by code {build.code_version}, and the project's is {now} here"
    commit = build.git_commit.removesuffix(DIRTY)
    if not commit:
        return f"{why}; no commit was recorded with it: no repository had that code"
    dirty = ", with changes that were not committed" if build.git_commit.endswith(DIRTY) else ""
    return f"{why}; its commit is {commit}{dirty}: `git checkout {commit}`, then `backfill reload`"


def _other_delivery(recorded: RecordedBuild, delivery: Delivered) -> str:
    """Why what lies there is not what the build was made from; "" if it is."""
    if isinstance(delivery, SourceError):
        return str(delivery)
    if delivery.fingerprint == recorded.build.delivered:
        return ""
    # Older builds recorded no hash of each file.
    changed = files_changed(recorded.build, delivery) or f"other contents in {', '.join(recorded.build.files)}"
    return f"the source files of {recorded.day} are not those that were read: {changed}"
