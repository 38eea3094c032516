"""A plan: the frozen list of what to rebuild and why. Its id is a hash of its contents, so the same plan has the same id.

A plan holds no time and no name of who made it: planned again on the same state, it is the same plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

from backfill_assets.backfill.choose import Choice, Graph
from backfill_assets.backfill.chunks import Chunk, Order, cut
from backfill_assets.errors import UsageError
from backfill_assets.lake.latest import Cell
from backfill_assets.lake.records import WriteMode

ID_LENGTH = 12
FORMAT = 1


@dataclass(frozen=True)
class How:
    """How the days of a plan are built. `budget_minutes` 0 is none."""

    write_mode: WriteMode = "overwrite"
    force: bool = False
    order: Order = "asc"
    days_per_run: int = 1000
    max_parallel: int = 1
    canary: int = 2
    budget_minutes: float = 0.0
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Plan:
    """Which days of which tables, why, from which code, in which chunks."""

    code: Mapping[str, str]
    reasons: Mapping[str, Mapping[str, str]]
    chunks: Sequence[Chunk]
    how: How

    @cached_property
    def id(self) -> str:
        return hashlib.sha256(self.contents().encode()).hexdigest()[:ID_LENGTH]

    def contents(self) -> str:
        """The plan as JSON, the same text for the same plan."""
        chunks = [
            {"days": {t: [str(d) for d in days] for t, days in chunk.days.items()}, "after": list(chunk.after)}
            for chunk in self.chunks
        ]
        told = {"format": FORMAT, "code": self.code, "reasons": self.reasons, "chunks": chunks, "how": asdict(self.how)}
        return json.dumps(told, sort_keys=True)

    def cells(self) -> dict[Cell, str]:
        """Every cell with its reason, table by table."""
        return {(t, date.fromisoformat(day)): why for t, days in self.reasons.items() for day, why in days.items()}

    def days(self) -> list[date]:
        return sorted({day for _, day in self.cells()})


def make(choice: Choice, graph: Graph, how: How) -> Plan:
    """The plan for these cells; UsageError if there is nothing to build."""
    if not choice.cells:
        why = "".join(f"\n  {table} {day}: {reason}" for (table, day), reason in list(choice.left_out.items())[:5])
        told = f"Nothing of what was asked for can be built:{why}" if why else "Nothing of what was asked for needs building."
        raise UsageError(f"{told}\nNothing was planned. See `backfill status`; --force builds days that are up to date.")
    reasons: dict[str, dict[str, str]] = {}
    for table, day in graph.in_order(choice.cells):
        reasons.setdefault(table, {})[str(day)] = choice.cells[table, day]
    code = {table.name: table.version for table in graph.tables if table.name in reasons}
    chunks = cut(choice.cells, graph, days_per_run=how.days_per_run, order=how.order, canary=how.canary)
    return Plan(code, reasons, chunks, how)


def read(text: str, plan_id: str) -> Plan:
    """The plan that `contents` wrote; UsageError if it is not the one of that id any more."""
    try:
        told: dict[str, Any] = json.loads(text)
        chunks = [
            Chunk(n, {t: [date.fromisoformat(d) for d in days] for t, days in chunk["days"].items()}, chunk["after"])
            for n, chunk in enumerate(told["chunks"])
        ]
        plan = Plan(told["code"], told["reasons"], chunks, How(**told["how"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"Plan {plan_id} cannot be read. Nothing was started. Plan again.") from None
    if told.get("format") != FORMAT or plan.id != plan_id:
        raise UsageError(
            f"Plan {plan_id} is not what was planned: its contents have another id ({plan.id}). Nothing was started. "
            "Plans are not edited; plan again."
        )
    return plan
