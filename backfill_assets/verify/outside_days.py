"""That a rebuild changed no day outside of its plan: by the lists of data files and the fingerprints of all days."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum

from backfill_assets.calendar import ranges
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.record import Build
from backfill_assets.lake.rewritten import data_files, rewritten
from backfill_assets.lake.table_state import day_files
from backfill_assets.verify.checklist import Line, Outcome


class Change(StrEnum):
    """What became of a day since the rebuild was begun."""

    NONE = "identical"
    UPKEEP = "the same rows in other files"
    OTHERS = "built since by others"
    PLAN = "built by this plan, which does not have them"
    FOREIGN = "not as they were built"
    GONE = "gone"


AT_FAULT = (Change.PLAN, Change.FOREIGN, Change.GONE)


@dataclass(frozen=True)
class TableDays:
    """All days of a live table at one version: a hash of each one's data files, its accepted build, and what somebody else did
    to it since that."""

    files: Mapping[date, str] = field(default_factory=dict)
    accepted: Mapping[date, Build] = field(default_factory=dict)
    rewritten: Mapping[date, str] = field(default_factory=dict)


def table_days(folder: str, version: int, accepted: Mapping[date, Build]) -> TableDays:
    """The days of the table in `folder` at `version` (-1: no table), with the builds that were accepted then.

    Raises TableUnreadable if the log does not have that version any more.
    """
    table = open_table(folder, version) if version >= 0 else None
    files = data_files(table, {day for day, _, _ in day_files(table)}) if table else {}
    return TableDays(files, accepted, rewritten(folder, accepted.values(), version))


def outside_days(
    table: str, plan: str, days: Collection[date], opened: TableDays, now: TableDays, in_shadow: Collection[date] = ()
) -> Line:
    """Live's days outside of the plan's `days` are as they were when the rebuild was begun (`opened`), but for those that
    others built since; and the shadow has no day that the plan has not.

    Nightly runs go on while a plan is rebuilt, and what they build is not the plan's: it is counted, and publishing keeps it.
    """
    others = {*opened.files, *now.files, *opened.accepted, *now.accepted} - set(days)
    found: dict[Change, list[date]] = {}
    for day in sorted(others):
        found.setdefault(_change(day, plan, opened, now), []).append(day)
    figures = [f"{len(of)} {change}" + ("" if change == Change.NONE else f": {ranges(of)}") for change, of in found.items()]
    too_many = sorted(set(in_shadow) - set(days))
    figures += [f"the shadow has days that are not in the plan: {ranges(too_many)}"] if too_many else []
    wrong = sorted({*too_many, *(day for change in AT_FAULT for day in found.get(change, ()))})
    figures += [f"{day}: {now.rewritten[day]}" for day in wrong[:1] if day in now.rewritten]
    outcome = Outcome.FAILED if wrong else Outcome.PASSED
    return Line(f"days outside the plan {table}", outcome, "; ".join(figures) or "no other days", table, tuple(wrong))


def _change(day: date, plan: str, opened: TableDays, now: TableDays) -> Change:
    same_files = opened.files.get(day) == now.files.get(day)
    before, build = opened.accepted.get(day), now.accepted.get(day)
    same_rows = (before.fingerprint if before else "") == (build.fingerprint if build else "")
    if same_files and same_rows:
        return Change.NONE
    if day in now.rewritten or (same_files and not (build and not build.rows)):  # a record without a commit, or the reverse
        return Change.FOREIGN
    if build is None:
        return Change.GONE if day not in now.files else Change.FOREIGN
    if same_rows:
        return Change.UPKEEP
    return Change.PLAN if build.plan == plan else Change.OTHERS
