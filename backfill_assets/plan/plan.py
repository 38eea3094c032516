"""A plan: the frozen list of partitions to rebuild, with reasons, cut into chunks.

Its id is a hash of its contents. It has no time and no user, so that planning again on the same
state gives the same plan. The order of chunks makes sure that inputs are built before their
readers.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property
from typing import Any

from pydantic import TypeAdapter

from backfill_assets.calendar import NO_DAY, Partition, consecutive, days_as_typed, without_no_day
from backfill_assets.digest import digest
from backfill_assets.errors import NothingToBuild, UsageError
from backfill_assets.plan.request import DayOrder, PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind, Selection
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph

_CANARY_DAYS = 2
# The number of the group with which a partition is built, by table and day.
Places = dict[str, dict[date, int]]


@dataclass(frozen=True)
class Chunk:
    """Days of tables that are launched together.

    `after` has the numbers of the chunks that must end before it.
    """

    number: int
    days: Mapping[str, Sequence[date]]
    after: Sequence[int] = ()

    def partitions(self) -> set[Partition]:
        return {(table, day) for table, days in self.days.items() for day in days}


def cut_into_chunks(
    partitions: Collection[Partition],
    graph: Graph,
    *,
    days_per_run: int,
    order: DayOrder = "asc",
    canary: int = 0,
) -> list[Chunk]:
    """Cut `partitions` into chunks. Each partition is in exactly one chunk.

    A chunk has its days of every table, and all days of the plan that these days read. Tables that
    read themselves, and their readers, are built with the last of their inputs instead: with newest
    days first, the first chunk would otherwise need all of history.
    """
    planned = defaultdict[str, set[date]](set)
    planned |= {table: set(days) for table, days in graph.by_table(partitions).items()}
    days = without_no_day(set().union(*planned.values()))
    groups = _groups(days, days_per_run, order, canary)
    recursive = _recursive(graph.tables)
    places: Places = {table.name: {} for table in graph.tables}
    for number, group in enumerate(groups):
        _take(
            number,
            group,
            planned,
            [table for table in graph.tables if table.name not in recursive],
            places,
        )
    own = {day: number for number, group in enumerate(groups) for day in group}
    for name in (table.name for table in graph.tables if table.name in recursive):
        for day in sorted(planned[name]):
            places[name][day] = max(
                [own[day], *(places[other].get(at, 0) for other, at in graph.reads((name, day)))]
            )
    return _chunks(places, graph)


def _groups(days: list[date], size: int, order: DayOrder, canary: int) -> list[list[date]]:
    """Divide days into groups of at most `size`, in the order requested.

    The canary comes first: the first few days of the longest span without a gap. A group ends at a
    gap, if it can: days on both sides of its end would read the same days of their inputs.
    """
    longest = max(consecutive(days), key=len, default=[])
    first = (longest if order == "asc" else longest[::-1])[:canary] if canary < len(days) else []
    spans = consecutive(day for day in days if day not in set(first))
    groups = [first] if first else []
    begun: list[date] = []
    for span in spans if order == "asc" else [span[::-1] for span in reversed(spans)]:
        if len(begun) + len(span) > size:
            groups += [begun] if begun else []
            *whole, begun = [span[n : n + size] for n in range(0, len(span), size)]
            groups += whole
        else:
            begun = begun + span
    return [*groups, begun] if begun else groups


def _recursive(tables: Sequence[Table]) -> set[str]:
    """The tables that read themselves, and the tables downstream of these."""
    names: set[str] = set()
    for table in tables:
        if table.needs_itself() or any(other.name in names for other, _ in table.windows()):
            names.add(table.name)
    return names


def _take(
    number: int,
    group: Collection[date],
    planned: Mapping[str, set[date]],
    tables: Sequence[Table],
    places: Places,
) -> None:
    """Place the days of a group, and their inputs in the plan, unless they have a place.

    Tables without days are in the first group.
    """
    wanted = {table.name: {*group, NO_DAY} for table in tables}
    for table in reversed(tables):
        days = [
            day for day in wanted[table.name] & planned[table.name] if day not in places[table.name]
        ]
        places[table.name].update(dict.fromkeys(days, number))
        for other, w in table.windows():
            wanted[other.name].update(w.days_of_any(days))


def _chunks(places: Places, graph: Graph) -> list[Chunk]:
    """The groups that have a partition, numbered from 0."""
    numbers = {
        number: n
        for n, number in enumerate(sorted({n for of in places.values() for n in of.values()}))
    }
    groups: list[dict[str, list[date]]] = [{} for _ in numbers]
    for name, of in places.items():
        for day, number in sorted(of.items()):
            groups[numbers[number]].setdefault(name, []).append(day)
    chunks = []
    for n, days in enumerate(groups):
        read = {
            numbers[places[other.name][day]]
            for table in graph.tables
            if table.name in days
            for other, w in table.windows()
            for day in w.days_of_any(days[table.name])
            if day in places[other.name]
        }
        chunks.append(Chunk(n, days, sorted(read - {n})))
    return chunks


ID_LENGTH = 12
FORMAT = 5
_GIVE_UP = "`backfill cancel {}` gives it up; then plan again."


@dataclass(frozen=True)
class Plan:
    """Days of tables to rebuild, with the reason for each, the code version and the chunks."""

    code: Mapping[str, str]
    reasons: Mapping[str, Mapping[date, Reason]]
    chunks: Sequence[Chunk]
    options: PlanOptions
    repeat: int = 0  # the number of earlier plans with the same contents

    @cached_property
    def id(self) -> str:
        return digest(self.contents(), length=ID_LENGTH)

    def contents(self) -> str:
        """The plan as JSON text. The same plan always has the same text."""
        return json.dumps(self._values())

    def as_json(self) -> dict[str, Any]:
        """The plan as `--json` shows it, with the reasons as text."""
        reasons = {
            table: {str(day): str(reason) for day, reason in days.items()}
            for table, days in self.reasons.items()
        }
        return self._values() | {"reasons": reasons}

    def _values(self) -> dict[str, Any]:
        # Tables stay in the order in which they are built, inputs first, wherever the plan is read.
        values = {"format": FORMAT, **_adapter().dump_python(self, mode="json")}
        values["options"]["spark_conf"] = dict(sorted(self.options.spark_conf.items()))
        return values

    def partitions(self) -> Mapping[Partition, Reason]:
        """Every partition with its reason, table by table."""
        return self._partitions

    @cached_property
    def _partitions(self) -> dict[Partition, Reason]:
        return {
            (table, day): reason
            for table, days in self.reasons.items()
            for day, reason in days.items()
        }

    @property
    def is_shadow(self) -> bool:
        """True if the plan is built in a shadow and published afterwards."""
        return self.options.into == "shadow"

    @property
    def as_typed(self) -> str:
        """The command that plans the same days of the same tables again."""
        target = ",".join(self.reasons)
        days = days_as_typed(self.days())
        replaces = self.options.replace_foreign_rows
        again = " --replace-foreign-rows --reason 'why'" if replaces else ""
        return f"backfill plan --partitions {days} --target {target} --force{again}"

    def days(self) -> list[date]:
        return without_no_day(day for _, day in self.partitions())

    def days_of(self, table: str) -> frozenset[date]:
        """The days of a table."""
        return frozenset(self.reasons.get(table, ()))

    def forced_days(self, table: str) -> frozenset[date]:
        """Return the days of a table to compute even if nothing has changed.

        These are the days requested with force, without downstream days.
        """
        reasons = self.reasons.get(table, {}) if self.options.force else {}
        return frozenset(day for day, reason in reasons.items() if reason.kind != ReasonKind.READS)

    def refuse_other_code(self, now: Mapping[str, str], *, loaded_by: str = "") -> None:
        """Raise UsageError if a table's code version is not the planned one.

        `now` has every table's version. `loaded_by` is the webserver that loaded this code. Without
        it, this code was read from disk.
        """
        self.refuse_gone_tables(now)
        changed = [
            f"{name} (planned {code}, now {now[name]})"
            for name, code in self.code.items()
            if now[name] != code
        ]
        if changed:
            go_on = f"`backfill resume {self.id}`" if loaded_by else f"`backfill run {self.id}`"
            reload = (
                f"If the files are right, `backfill reload` (or Reload at {loaded_by}/locations),"
                f" then {go_on}. Else bring"
            )
            give_up = "discard" if self.is_shadow else "cancel"
            raise UsageError(
                f"The code is not the one that plan {self.id} was made for: {', '.join(changed)}.",
                unchanged="Nothing was read or written.",
                next_step=(
                    f"{(reload if loaded_by else 'Bring')} the planned code back"
                    f" and {go_on}; or `backfill {give_up} {self.id}`, then plan"
                    " again."
                ),
            )

    def refuse_gone_tables(self, names: Collection[str]) -> None:
        """Raise UsageError if a table of the plan is not among `names`."""
        gone = [name for name in self.code if name not in names]
        if gone:
            raise UsageError(
                f"Plan {self.id} has {', '.join(gone)}, which the code location does not"
                " have any more.",
                unchanged="Nothing was read or written.",
                next_step=(f"The tables are {', '.join(names)}. Plan again: `backfill plan`."),
            )


def make(selection: Selection, graph: Graph, options: PlanOptions, *, repeat: int = 0) -> Plan:
    """Make the plan for these partitions.

    Raises UsageError if no partition can be built, and NothingToBuild if none needs building.
    """
    if not selection.partitions:
        why = "".join(
            f"\n  {table} {day}: {reason}"
            for (table, day), reason in list(selection.blocked.items())[:5]
        )
        if not why and selection.left_out:
            (table, day), state = next(iter(selection.left_out.items()))
            raise NothingToBuild(
                f"{len(selection.left_out)} partition(s) of what was requested need"
                f" building, and are in no state that --only names, as {table} {day}:"
                f" {state}.",
                unchanged="Nothing was planned.",
                next_step="Leave out --only, or name that state too.",
            )
        if not why:
            never = [
                f"{table} {day}: {reason}" for (table, day), reason in selection.never_now.items()
            ]
            of_it = (
                f" {len(never)} partition(s) of it cannot be built now, as {never[0]}."
                if never
                else ""
            )
            raise NothingToBuild(
                f"Nothing of what was requested needs building.{of_it}",
                unchanged="Nothing was planned.",
                next_step=(
                    "With --force and without --only, days that are up to date are built too."
                ),
            )
        go_on = (
            "With --upstream, what these days need is planned too; see"
            if selection.upstream_helps
            else "See"
        )
        raise UsageError(
            f"Nothing of what was requested can be built:{why}",
            unchanged="Nothing was planned.",
            next_step=f"{go_on} `backfill status`.",
        )
    reasons = {
        table: {day: selection.partitions[table, day] for day in days}
        for table, days in graph.by_table(selection.partitions).items()
    }
    code = {table.name: table.version for table in graph.tables if table.name in reasons}
    days = len(without_no_day(day for _, day in selection.partitions))
    days_per_run = options.days_per_run or days
    if options.canary is None:
        # A canary takes a run. In a shadow it protects no reader; it saves what the rest takes.
        is_one_run = options.into == "shadow" and days <= days_per_run
        options = replace(options, canary=0 if is_one_run else _CANARY_DAYS)
    chunks = cut_into_chunks(
        selection.partitions,
        graph,
        days_per_run=days_per_run,
        order=options.order,
        canary=options.canary or 0,
    )
    return Plan(code, reasons, chunks, options, repeat)


def read_plan(text: str | bytes, plan_id: str) -> Plan:
    """Read a plan from its `contents`. Raises UsageError if they no longer match the id."""
    why = "cannot be read"
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        contents: dict[str, Any] = json.loads(text)
        if contents["format"] == FORMAT:
            plan = _adapter().validate_python(contents)
            if plan.id == plan_id:
                return plan
            why = f"was edited: its contents have another id ({plan.id})"
        else:
            why = "was made by another version of this project"
    raise UsageError(
        f"Plan {plan_id} {why}.",
        unchanged="Nothing was done.",
        next_step=f"{_GIVE_UP.format(plan_id)}",
    )


@cache
def _adapter() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)
