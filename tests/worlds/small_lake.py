"""A lake of two small tables that plans and nights write, release, publish and roll back, by
`deltalake` alone.

The value of a day is the number of its rows, and the number in each row. So rows show the last
write.
"""

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backfill_assets.calendar import Calendar
from backfill_assets.lake import record_table
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.data_files import write_table
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.ledger import ActKind, Build
from backfill_assets.lake.maintenance import MANY_FILES, Maintenance, TableUpkeep, maintain
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.recorded_acts import Act, Acts, Stage
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Release, Releases
from backfill_assets.lake.slices import files_of
from backfill_assets.lake.storage import files_in
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.plan.shadow import workspace_of as workspace_of_plan
from backfill_assets.plan.store import Event, Plans
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.publish.live import live_tables
from backfill_assets.publish.pointers import preview as make_preview
from backfill_assets.publish.publish import Publication, Published
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.publish.rollback import Decisions, Kind, RolledBack, roll_back
from backfill_assets.tables.declaration import SliceDays, Table, same_day
from backfill_assets.verify.checklist import PlanVerdict
from backfill_assets.verify.verify import Verdicts, require_verified, verify
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day
from tests.worlds.suite import copied_once
from tests.worlds.tables import workspace_of

DAYS = [day(n) for n in range(4)]
CALENDAR = Calendar(DAYS[0], DAYS[-1])
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
A = Table("raw/a", lambda: None, "day", "n BIGINT, day DATE", {"days": SliceDays()}, (), "1")
B = Table("raw/b", lambda: None, "day", "n BIGINT, day DATE", {"a": same_day(A)}, (), "1")


# The column of the number, and its type.
NUMBER = ("n", "long")


def columns(day_column: str, *texts: str, number: tuple[str, str] = NUMBER) -> str:
    """The columns of a table in Spark's form: the number, the day, and texts."""
    types = {number[0]: number[1], day_column: "date", **dict.fromkeys(texts, "string")}
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in types.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


@dataclass
class SmallLake:
    """A lake at `root`, a folder or the address of an object store; `column` is the day of its
    tables.
    """

    root: Path
    column: str = "day"
    runs: Counter[str] = field(default_factory=Counter)
    tables: tuple[Table, ...] = (A, B)

    @property
    def workspace(self) -> Workspace:
        return workspace_of(self.tables, CALENDAR, str(self.root))

    def plan(self, days: Mapping[str, list[date]], reason: str = "") -> Plan:
        """A plan of these days that has started and ended."""
        reasons = {
            table: {at: Reason(ReasonKind.MISSING) for at in of} for table, of in days.items()
        }
        plan = Plan(dict.fromkeys(days, "1"), reasons, [Chunk(0, days)], PlanOptions(reason=reason))
        self.plans.keep(plan)
        self.plans.note(plan.id, "started", NOW, who="ada")
        self.plans.note(plan.id, "ended", NOW, ending="done")
        return plan

    def shadow_plan(
        self,
        days: Mapping[str, list[date]],
        reason: str = "",
        workspace: Workspace | None = None,
        *,
        force: bool = True,
        expect: Mapping[str, str] | None = None,
    ) -> Plan:
        """A plan of these days into a shadow, which is open and has no days yet; it was started,
        and has ended.

        Without `force`, days that live has of the same code and inputs are not built.
        """
        reasons = {
            table: {at: Reason(ReasonKind.CODE_CHANGED) for at in of} for table, of in days.items()
        }
        code = (
            dict.fromkeys(days, "1")
            | {name: of for name, of in workspace.code.items() if name in days}
            if workspace
            else None
        )
        plan = Plan(
            code or dict.fromkeys(days, "1"),
            reasons,
            [Chunk(0, days)],
            PlanOptions(reason=reason, into="shadow", force=force, expect=expect or {}),
        )
        self.plans.keep(plan)
        self.plans.note(plan.id, "started", NOW, who="ada")
        open_shadow(plan, workspace or self.workspace, "ada")
        self.plans.note(plan.id, "ended", NOW, ending="done")
        return plan

    @property
    def plans(self) -> Plans:
        return Plans(str(self.root))

    def events(self, plan: Plan, kind: str) -> list[Event]:
        """The events of a plan of one kind, also acts."""
        return [event for event in self.plans.history(plan.id) if event.kind == kind]

    def write(
        self,
        values: Mapping[date, int],
        *,
        table: str = A.name,
        plan: str = "",
        code: str = "1",
        more: str = "",
        into: Plan | None = None,
        number: tuple[str, str] = NUMBER,
        of_run: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> list[Build]:
        """Write days in one commit, by a plan or by a night; one whose value is the same is
        recorded as unchanged.

        With `into`, they are written to the shadow of that plan. Days of B are recorded with the
        fingerprints of A's days. `of_run` is the writing run; it waits with `sleep`.
        """
        self.runs["run"] += 1
        lake = workspace_of_plan(into, self.workspace).lake if into else self.workspace.lake
        plan, code = (into.id, into.code[table]) if into else (plan, code)
        folder = lake.path(table)
        rows = [(value, at) for at, value in values.items() for _ in range(value)]
        numbers = pa.array([v for v, _ in rows], pa.int64()).cast(
            pa.int64() if number[1] == "long" else pa.string()
        )
        data = {number[0]: numbers, self.column: pa.array([at for _, at in rows], pa.date32())}
        data |= {more: pa.array([f"{v}" for v, _ in rows], pa.string())} if more else {}
        files = write_table(pa.table(data), folder, self.column)

        def decide() -> list[Build]:
            ledger = lake.ledger
            at = ledger.next_time(table)
            now = {} if into else self.values(table)
            known = lake.latest({table: None, A.name: None}).accepted
            run = of_run or f"run{self.runs['run']}"
            builds = []
            for of, value in values.items():
                # An unchanged build has the commit of its rows.
                same = known.get((table, of)) if now.get(of) == value else None
                there: dict[str, Any] = (
                    {"delta_version": same.delta_version, "data_files": same.data_files}
                    if same
                    else {}
                )
                read = known.get((A.name, of)) if table == B.name else None
                there["inputs"] = {A.name: {str(of): read.fingerprint}} if read else {}
                there["outcome"] = "unchanged" if same else "accepted"
                made = Build(
                    table,
                    of,
                    "accepted",
                    run,
                    code,
                    fingerprint=f"{value}{more}",
                    rows=value,
                    plan=plan,
                    at=at,
                )
                builds.append(replace(made, **there))
            return builds

        commit = FileCommit(
            folder,
            self.column,
            files,
            columns(self.column, *([more] if more else []), number=number),
        )
        builds = commit_and_record(lake.root, table, decide, commit, of_run, sleep)
        accepted = {build.day for build in builds if build.outcome == "accepted"}
        for file in files:
            if file.day not in accepted:  # as a step does with files that it does not commit
                files_in(folder).delete_file(unquote(file.path))
        return builds

    def fail(self, *days: date, table: str = A.name, message: str = "no rows") -> None:
        """Record days that a run of live could not build."""
        ledger = self.workspace.lake.ledger
        at = ledger.next_time(table)
        ledger.append(
            [Build(table, of, "failed", "a run", "1", message=message, at=at) for of in days]
        )

    def values(self, table: str = A.name) -> dict[date, int]:
        """The value of every day that has rows, read from the table; a day with rows of two values
        fails.
        """
        written = open_table(f"{self.root}/{table}")
        if written is None:
            return {}
        rows = written.to_pyarrow_table(columns=[self.column, "n"])
        numbers = map(int, rows["n"].to_pylist())
        pairs = Counter(zip(rows[self.column].to_pylist(), numbers, strict=True))
        assert all(count == value for (_, value), count in pairs.items()), pairs
        assert len({at for at, _ in pairs}) == len(pairs), pairs
        return dict(sorted(pairs))

    def files(self, table: str = A.name) -> dict[date, set[str]]:
        """The data files of every day."""
        listed: dict[date, set[str]] = {}
        for file in files_of(DeltaTable(f"{self.root}/{table}"), self.column, DAYS):
            listed.setdefault(file.day, set()).add(file.path)
        return listed

    def roll_back(self, plan: Plan, *, force: bool = False) -> dict[tuple[str, date], Kind]:
        return {
            partition: each.kind for partition, each in self.decisions(plan, force=force).items()
        }

    def decisions(self, plan: Plan, *, force: bool = False) -> Decisions:
        return self.rolled_back(plan, force=force).decisions

    def rolled_back(self, plan: Plan, **options: Any) -> RolledBack:
        """Roll a plan back."""
        return roll_back(plan, self.workspace, who="ada", reason="a wrong rule", **options)


def record_act(root: Path, kind: ActKind, plan_id: str) -> None:
    """Record an act of a plan that has changed no table."""
    acts = Acts(str(root))
    newest = acts.newest()
    number = newest.number + 1 if newest else 1
    for stage in (Stage.RECORDED, Stage.COMMITTING, Stage.ENDED):
        acts.add(Act(f"{kind}-{plan_id}", kind, plan_id, "ada", "", ()), stage, number)


# Only these calls of libraries change a lake on disk: a file gets its name, a table a commit.
WRITES: list[tuple[Any, str]] = [
    (os, "link"),
    (os, "replace"),
    (DeltaTable, "create_write_transaction"),
    (record_table, "write_deltalake"),
]


class Killed(BaseException):
    """The process was killed: our code does not handle this."""


@contextmanager
def killed_when(reached: Callable[[], object]) -> Iterator[list[str]]:
    """Kill the block after the first write at which `reached` holds.

    The list that is yielded gets the name of the write; it stays empty if `reached` never holds.
    """
    killed: list[str] = []

    def stopping(name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def stopped(*arguments: Any, **options: Any) -> Any:
            written = write(*arguments, **options)
            if not killed and reached():
                killed.append(name)
                raise Killed
            return written

        return stopped

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in WRITES:
            patch.setattr(owner, name, stopping(name, getattr(owner, name)))
        with suppress(Killed):
            yield killed


def killed_after(writes: int) -> AbstractContextManager[list[str]]:
    """Kill the block after this many writes."""
    numbers = count(1)
    return killed_when(lambda: next(numbers) == writes)


RELEASED = dict(zip(DAYS, [1, 2, 3, 4], strict=True))


def released_lake(root: Path | str) -> SmallLake:
    """Four days of A and B in the lake at `<root>/lake`, all of them released; the value of a day
    of B is that of A.
    """
    lake = SmallLake(f"{root}/lake" if isinstance(root, str) else root / "lake")  # type: ignore[arg-type]
    for table in (A.name, B.name):
        lake.write(RELEASED, table=table)
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)
    return lake


def copy_of(make: Callable[[Path], SmallLake], root: Path) -> SmallLake:
    """The lake that `make` writes below `root`, written once per session and copied."""
    copied_once(make.__name__, make, root)
    # The names of runs continue after the two runs that wrote the lake.
    return SmallLake(root / "lake", runs=Counter(run=2))


def approved(state: ShadowState) -> None:
    """Approve every shadow."""


def publish(lake: SmallLake, plan: Plan, reason: str = "a new rule", **options) -> Published:
    return Publication(plan, lake.workspace, "ada", reason).publish(approved, **options)


def timeless(text: str) -> str:
    """The text without the times in it, which differ from run to run."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "<TIME>", text)


def preview(lake: SmallLake, plan: Plan, channel: str = "candidate") -> Release:
    """Give readers of a channel the preview of a plan, without a verdict."""
    return make_preview(plan, lake.workspace, channel, approved, who="ada")


def half_published(lake: SmallLake, values: dict[date, int]) -> Plan:
    """A plan whose publication was killed after A, and before B."""
    plan = rebuilt_in_shadow(lake, values)
    with killed_when(lambda: lake.values() != RELEASED):
        publish(lake, plan)
    assert lake.values() != RELEASED
    assert lake.values(B.name) == RELEASED
    return plan


def released(lake: SmallLake, table: str = A.name, channel: str = "stable") -> dict[date, int]:
    """The value of every day for readers of a channel, checked against the number of rows."""
    release = open_channel(str(lake.root), channel)
    rows = ReleasedTable(str(lake.root), release, table).dataset().to_table().to_pydict()
    pairs = Counter(zip(rows["day"], rows["n"], strict=True))
    assert all(count == value for (_, value), count in pairs.items()), pairs
    return dict(sorted(pairs))


def gets(lake: SmallLake, channel: str = "stable") -> dict[date, int]:
    """The value of each day for readers of a channel, the same in both tables."""
    values = released(lake, channel=channel)
    assert released(lake, B.name, channel) == values
    return values


def everywhere(lake: SmallLake) -> dict[date, int]:
    """The value of each day, the same in live and for readers, in both tables."""
    values = gets(lake)
    assert lake.values() == lake.values(B.name) == values
    return values


def four_days(root: Path) -> SmallLake:
    """Four days of A, with the values 1 to 4, built by older code."""
    lake = SmallLake(root)
    lake.write({at: n for n, at in enumerate(DAYS, start=1)}, code="0")
    return lake


def rebuilt_in_live(lake: SmallLake, values: Mapping[date, int], **options: Any) -> Plan:
    """A plan that has built these days in live."""
    plan = lake.plan({A.name: list(values)})
    lake.write(values, plan=plan.id, **options)
    return plan


TEN = dict.fromkeys(DAYS, 10)


def ten_rows(root: Path) -> SmallLake:
    """A lake with ten rows on every day of A and B, released."""
    lake = SmallLake(root / "lake")
    for table in (A.name, B.name):
        lake.write(TEN, table=table)
    release_live(lake.workspace, who="sensor")
    return lake


def rebuilt_in_shadow(
    lake: SmallLake, values: dict[date, int], of: tuple[str, ...] = (A.name, B.name)
) -> Plan:
    """A plan of these days of both tables, or of one table, built in its shadow."""
    plan = lake.shadow_plan({name: list(values) for name in of}, reason=str(values))
    for table in of:
        lake.write(values, table=table, into=plan)
    return plan


def verdict_of(plan: Plan, workspace: Workspace) -> PlanVerdict:
    """The verdict, with every decision accepted: these tables drift with each row."""
    verdict = verify(plan, workspace, who="ada", now=lambda: NOW)
    if not verdict.undecided():
        return verdict
    return Verdicts(workspace.lake.root).accept(plan.id, ["*"], who="ada", reason="a test", at=NOW)


def publish_verified(
    lake: SmallLake,
    plan: Plan,
    workspace: Workspace | None = None,
    act=None,
) -> Published:
    """Publish a verified plan. `act` runs after the shadow was read, before the first commit."""
    workspace = workspace or lake.workspace
    approve = require_verified(plan, workspace)

    def approved(state: ShadowState) -> None:
        approve(state)
        if act:
            act()

    return Publication(plan, workspace, "ada").publish(approved)


RELEASE_WINDOW = 30


def later(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def maintain_later(lake: SmallLake, days: float = 0) -> Maintenance:
    """Maintain the lake as if this many days later."""
    return maintain(lake.workspace.lake, RELEASE_WINDOW, later(days), "ada")


def age(lake: SmallLake, days: float) -> None:
    """Make all files of the lake older by this many days."""
    for path in lake.root.rglob("*"):
        then = path.stat().st_mtime - timedelta(days=days).total_seconds()
        os.utime(path, (then, then))


def upkeep_of(done: Maintenance, name: str = A.name) -> TableUpkeep:
    return next(table for table in done.tables if table.name == name)


def files_on_disk(lake: SmallLake, table: str = A.name) -> set[str]:
    """The data files in the folder of a table."""
    paths = {path.relative_to(lake.root / table) for path in (lake.root / table).rglob("*.parquet")}
    return {str(path) for path in paths if path.parts[0] != "_delta_log"}


def release_live_now(lake: SmallLake) -> int:
    """Release live as it stands."""
    releases = Releases(str(lake.root))
    newest = releases.newest()
    tables = live_tables(lake.workspace, newest)
    return releases.add(newest, tables, kind="live", who="ada", reason="r").number


def values_of_release(lake: SmallLake, number: int) -> dict[date, int]:
    """The value of each day of A in a release, checked against the number of rows."""
    release_live_now = Releases(str(lake.root)).readable(number)
    rows = ReleasedTable(str(lake.root), release_live_now, A.name).dataset().to_table()
    pairs = list(zip(rows["day"].to_pylist(), rows["n"].to_pylist(), strict=True))
    assert all(pairs.count(pair) == pair[1] for pair in set(pairs)), pairs
    return dict(sorted(set(pairs)))


def write_in_many_files(lake: SmallLake, at: date, count: int = MANY_FILES + 1) -> None:
    """Write a day of A with the value `count`, by a night that writes one file per row."""
    folder = str(lake.root / A.name)
    ledger = lake.workspace.lake.ledger
    row = pa.table({"n": pa.array([count], pa.int64()), "day": pa.array([at], pa.date32())})
    files = [file for _ in range(count) for file in write_table(row, folder, "day")]

    def decide() -> list[Build]:
        when = ledger.next_time(A.name)
        return [
            Build(
                A.name,
                at,
                "accepted",
                f"run{when}",
                "1",
                fingerprint=f"{count}",
                rows=count,
                at=when,
            )
        ]

    commit_and_record(
        str(lake.root), A.name, decide, FileCommit(folder, "day", files, columns("day"))
    )


def contents(root: Path) -> dict[str, str]:
    """Everything in a folder, including folders, with a hash of each file's contents."""
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        )
        for path in root.rglob("*")
    }
