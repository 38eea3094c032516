"""The words of a publication or a rollback, for the terminal and the job."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import BackfillError
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.releases import Release
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.publish.guards import examples
from backfill_assets.publish.publish import Published
from backfill_assets.publish.release_live import PASSING, Obstacle
from backfill_assets.publish.rollback import CHANGED, Decisions, Kind, RolledBack
from backfill_assets.publish.switch import Switch

COLUMNS = (
    "table",
    Kind.RESTORE.value,
    "removed, as the plan built them first",
    Kind.RESTORED.value,
    Kind.CONFLICT.value,
    Kind.LOST.value,
)
PUBLISHED = ("table", "new rows", "live had the same")


def rows(decisions: Decisions) -> list[tuple[str, ...]]:
    """A row a table, with the days of each kind."""
    return _rows(list(Kind), ((*partition, each.kind) for partition, each in decisions.items()))


def published_rows(builds: Iterable[Build]) -> list[tuple[str, ...]]:
    """Return a row per table: the days with new rows, and the days that live had already."""
    days = ((build.table, build.day, build.outcome) for build in builds)
    return _rows(["accepted", "unchanged"], days)


def _rows(kinds: Sequence[str], days: Iterable[tuple[str, date, str]]) -> list[tuple[str, ...]]:
    by_table: dict[str, dict[str, list[date]]] = {}
    for table, day, kind in days:
        by_table.setdefault(table, {}).setdefault(kind, []).append(day)
    return [(name, *(ranges(of.get(kind, [])) for kind in kinds)) for name, of in by_table.items()]


def decision_lines(decisions: Decisions) -> list[str]:
    """Return the days of each kind, a line per table. A narrow terminal wraps these lines."""
    of_tables = rows(decisions)
    lines = list[str]()
    for column, kind in enumerate(COLUMNS[1:], start=1):
        days = [f"  {row[0]}  {row[column]}" for row in of_tables if row[column]]
        will_be = "to be " if column <= len(CHANGED) else ""
        lines += [f"{will_be}{kind}:", *days] if days else []
    return lines


def question(decisions: Decisions, *, has_rest: bool = False) -> str:
    """Ask whether to restore these partitions, and to remove those that the plan built first.

    `has_rest`: the rest of the plan is deleted. The question is "" if nothing is to be changed.
    """
    kinds = [decision.kind for decision in decisions.values()]
    verbs = {Kind.RESTORE: "restore", Kind.REMOVE: "remove"}
    counts = {kind: kinds.count(kind) for kind in verbs}
    parts = [f"{verb} {counts[kind]} partition(s)" for kind, verb in verbs.items() if counts[kind]]
    parts += ["delete the rest of the plan, which is in its shadow"] if has_rest else []
    return f"{' and '.join(parts).capitalize()}?" if parts else ""


def lines_of_left(decisions: Decisions) -> list[str]:
    """Return the days that stay in the tables, the reason, and the next step."""
    kinds = {d.kind for d in decisions.values()}
    why = {partition: each.why for partition, each in decisions.items() if each.why}
    lines = [examples(why)] if why else []
    if Kind.CONFLICT in kinds:
        lines.append(
            "Days that others built since stay as they are. With --force they are restored too, and"
            " their newer rows are lost."
        )
    if Kind.LOST in kinds:
        lines.append(
            "Days whose earlier rows are not in the history can be built again, by the earlier"
            " code."
        )
    return lines


def ending_lines(plan_id: str, result: RolledBack) -> list[str]:
    """Return sentences on the result of a rollback."""
    restored = result.count(Kind.RESTORE)
    removed = result.count(Kind.REMOVE)
    if not result.is_new:
        return [f"Plan {plan_id} was rolled back already. Nothing was changed."]
    if not result.decisions:
        return [f"Plan {plan_id} changed no rows. Nothing was restored."]
    if result.is_refused:
        return [
            f"Nothing was restored. Plan {plan_id} stays as it is: all of its"
            f" {len(result.decisions)} partition(s) stay."
        ]
    counts = [f"{restored} partition(s) have the rows from before it"] if restored else []
    counts += [f"{removed} partition(s) that it built first are removed"] if removed else []
    done = ", and ".join(counts) or "no partition had to be restored"
    lines = [f"Plan {plan_id} is rolled back: {done}. No other was changed."]
    if restored:
        lines.append(
            "Where code or inputs have changed since, `backfill status` shows them as outdated, and"
            " the next rebuild of outdated days (of recent ones, the nightly run) builds them"
            " again. Correct what was wrong before that."
        )
    if removed:
        lines.append(
            "Removed days are missing. Dagster shows them as materialized until they are built"
            " again."
        )
    if release := result.release:
        return [*lines, f"Release {release.number} has these rows."]
    return [*lines, *_withheld_lines(result.withheld)]


def _withheld_lines(withheld: Sequence[Obstacle]) -> list[str]:
    """Say why readers do not get the result yet, and when they do."""
    if not withheld:
        return []
    why = "; ".join(map(str, withheld))
    is_passing = any(reason.cause in PASSING for reason in withheld)
    by_hand = "" if is_passing else ", or now with `backfill release --reason 'why'`"
    return [f"Live cannot be released now: {why}. Readers get this with its next release{by_hand}."]


def published_lines(plan_id: str, published: Published) -> list[str]:
    """Return sentences on the result of a publication."""
    as_release = f" as release {published.release.number}" if published.release else ""
    counts = f"{published.count('accepted')} partition(s) have new rows in live"
    same = (
        f", {published.count('unchanged')} had the same already"
        if published.count("unchanged")
        else ""
    )
    in_part = " in part" if published.left else ""
    return [
        f"Plan {plan_id} is published{in_part}{as_release}: {counts}{same}."
        if published.builds
        else f"Plan {plan_id} is in live{in_part}{as_release}.",
        *_withheld_lines(published.withheld),
        *left_lines(published.left),
        *(
            [
                f"To publish the rest: `backfill rebase {plan_id}`, then verify and publish again."
                " With `--keep live`, live keeps its newer rows."
            ]
            if published.left
            else []
        ),
        f"To take it back: `backfill rollback {plan_id}`.",
    ]


def left_lines(left: Mapping[Partition, str]) -> list[str]:
    """Return the partitions that a publication in part leaves in the shadow, and why."""
    return [f"{len(left)} partition(s) stay in the shadow:", examples(left)] if left else []


def preview_lines(preview: Release, channel: str) -> list[str]:
    """Return sentences on a preview, and how it is read."""
    partitions = sum(len(of_table.days) for of_table in preview.previewed.values())
    readers = f" Readers of {channel} get it now." if channel else ""
    how = f'channel="{channel}"' if channel else f'preview="{preview.preview}"'
    return [
        f"The preview of plan {preview.preview} is release {preview.number} with {partitions}"
        f" partition(s) from its shadow.{readers} Nothing of it is in live.",
        f"Read it with `backfill_assets.read(..., {how})`.",
    ]


def rebased_preview_lines(preview: Release, state: ShadowState) -> list[str]:
    """Return sentences on the preview of a plan whose shadow was moved."""
    if state.unbuilt:
        return [
            f"Its preview stays on release {preview.number}. Once these days are built and"
            f" verified, type `backfill preview {preview.preview} --channel candidate`."
        ]
    return [f"Its preview is on release {preview.number}."]


def switched_line(switch: Switch, *, is_switched: bool) -> str:
    """Return the result of a switch."""
    get = f"Readers of {switch.name} in {switch.channel} get {switch.to}"
    if not is_switched:
        return f"{get} already. Nothing was changed."
    back = (
        f" To switch back: `backfill switch {switch.name} --to {switch.name} --channel"
        f" {switch.channel}`."
    )
    return f"{get} now. Both tables are built as before.{back if switch.to != switch.name else ''}"


def not_reported(error: BackfillError) -> str:
    """The warning after an act whose days could not be reported to Dagster."""
    reason = error.what.rstrip(".")
    return (
        f"Dagster still shows these days as the plan built them: {reason}. Once its webserver runs,"
        " type `backfill reconcile --repair`."
    )


def days_by_kind(decisions: Decisions) -> dict[str, dict[str, dict[str, str]]]:
    """The days with their reason, by table and kind (restore, conflict, lost, ...)."""
    values: dict[str, dict[str, dict[str, str]]] = {kind.name.lower(): {} for kind in Kind}
    for (table, day), decision in decisions.items():
        values[decision.kind.name.lower()].setdefault(table, {})[str(day)] = decision.why
    return values
