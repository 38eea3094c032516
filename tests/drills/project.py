"""The drill's own project, copied into a folder as `marks.py`: two small tables, whose runs wait
where a file says so.
"""

import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

import backfill_assets
from backfill_assets import Landing, rules, same_day, table
from backfill_assets.tries import wait_until

GATES = Path(os.environ.get("DRILL_GATES", "/nowhere"))


def wait_at(point: str) -> None:
    """Wait as long as there is a file of this name, and leave one with this process's id,
    `<point>.<pid>`.
    """
    gate = GATES / point
    if gate.exists():
        (GATES / f"{point}.{os.getpid()}").touch()
        wait_until(lambda: not gate.exists(), every=0.05)


# Versions are given by hand, since where a step waits is read from the environment; no row depends
# on it.
@table(
    "raw/marks", partition_by="arrival_day", columns="arrival_day DATE, line STRING",
    reads={"lines": Landing("marks")}, rules=[rules.has_rows()], pool="ingestion", version="1",
)  # fmt: skip
def raw_marks(lines: Any) -> Any:
    """As delivered."""
    wait_at("in a step")
    return lines.select("arrival_day", "line")


@table(
    "staging/marks", partition_by="arrival_day", columns="arrival_day DATE, line STRING",
    reads={"marks": same_day(raw_marks)}, rules=[rules.has_rows()], version="1",
)  # fmt: skip
def marks(marks: Any) -> Any:
    """One row per mark."""
    return marks.distinct()


defs = backfill_assets.definitions(
    tables=[raw_marks, marks], first_day=date(2019, 8, 15), last_day=date(2020, 12, 31)
)

if Path(sys.argv[0]).name == "run_starter.py":  # the process of a run
    from dagster import DagsterEventType, DagsterInstance

    from backfill_assets.lake.ledger import Ledger

    wait_at("starting")
    append = Ledger.append
    handle_new_event = DagsterInstance.handle_new_event

    def append_later(ledger: Any, builds: Any) -> None:
        wait_at("between commit and record")
        append(ledger, builds)

    def handle_later(instance: Any, event: Any, **given: Any) -> None:
        if (
            event.is_dagster_event
            and event.get_dagster_event().event_type == DagsterEventType.RUN_SUCCESS
        ):
            wait_at("at the end")
        handle_new_event(instance, event, **given)

    Ledger.append = append_later  # type: ignore[assignment, method-assign]
    DagsterInstance.handle_new_event = handle_later  # type: ignore[method-assign, assignment]
