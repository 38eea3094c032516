"""Lakes whose commits, builds and releases are written by hand with deltalake, as steps leave
them. No Spark.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.staging import outage_updates, outages
from backfill_assets.errors import Conflict
from backfill_assets.lake.channels import ChannelHistory, Channels, Pointer
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.data_files import write_frame
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.history import commit_metadata, latest
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.lake.listed_files import data_files
from backfill_assets.lake.releases import Release, Releases, TableVersion
from backfill_assets.lake.slices import Slice
from backfill_assets.lake.spark.reading import SliceReader
from backfill_assets.plan.lifecycle import start
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.step.inputs import InputReader
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day
from tests.worlds.suite import copied_once
from tests.worlds.tables import CALENDAR, table, workspace_of

TABLE = "staging/o"
NOON = datetime(2019, 10, 14, 12, tzinfo=UTC)


def build(number: int = 0, minutes: int = 0, **fields: Any) -> Build:
    known: dict[str, Any] = {
        "run": "r",
        "code_version": "1",
        "outcome": "accepted",
        "at": NOON + timedelta(minutes=minutes),
    }
    return Build(TABLE, day(number), **known | fields)


FULL = build(
    fingerprint="1-2-3",
    rows=1,
    nulls={"a": 1},
    measures={"m": 2},
    samples={"s": ["x"]},
    day_fingerprints={"2019-08-15": "p"},
    inputs={"t": {"2019-08-15": "f"}},
    delivered="d",
    files={"f": 1},
    accept="f",
    input_versions={"t": 4},
    git_commit="c",
    checks=[
        {
            "rule": "r",
            "passed": True,
            "message": "",
            "figures": {"rows": 1},
            "severity": "error",
            "rows": [],
        }
    ],
    delta_version=3,
    seconds=0.5,
    write_mode="merge",
    plan="p",
    who="w",
    reason="why",
    message="m",
)


def commit(lake: Path, *builds: Build, metadata: str | None = None) -> None:
    """A commit of one row to the table, with the builds' metadata or other metadata."""
    text = commit_metadata(builds) if metadata is None else metadata
    properties = CommitProperties(custom_metadata={"userMetadata": text})
    write_deltalake(
        str(lake / TABLE), pa.table({"a": [1]}), mode="append", commit_properties=properties
    )


def days_of(builds: Sequence[Build]) -> list[Any]:
    return [each.day for each in builds]


def write_days(
    root: Path, *builds: Build, ours: bool = True, columns: Sequence[str] = ("outage_day", "n")
) -> None:
    """Replace each build's day by as many rows as it has, in one commit with their metadata, or
    without any.

    The first of `columns` is the day, the other columns are texts.
    """
    rows, (partition_by, *texts) = [(b.day, str(n)) for b in builds for n in range(b.rows)], columns
    days = pa.array([at for at, _ in rows], pa.date32())
    numbers = pa.array([n for _, n in rows], pa.string())
    path = root / builds[0].table
    exists = (root / builds[0].table / "_delta_log").exists()
    metadata = {"userMetadata": commit_metadata(builds)} if ours else {}
    write_deltalake(
        str(path),
        pa.table({partition_by: days, **dict.fromkeys(texts, numbers)}),
        partition_by=[partition_by],
        mode="overwrite",
        predicate=" OR ".join(f"{partition_by} = '{b.day}'" for b in builds) if exists else None,
        commit_properties=CommitProperties(custom_metadata=metadata),
    )


RELEASED_TABLE = "staging/o"
RELEASED_COLUMN = "outage_day"


def table_versions(version: int, name: str = RELEASED_TABLE) -> dict[str, TableVersion]:
    return {name: TableVersion(name, version)}


def add_release(
    releases: Releases, version: int, after: Release | None = None, who: str = "ada"
) -> Release:
    return releases.add(
        after or releases.newest(),
        table_versions(version),
        kind="live",
        who=who,
        reason=f"version {version}",
    )


def channel_numbers(root: str) -> dict[str, int]:
    """The number of the release that readers of each channel get now."""
    history = ChannelHistory(root)
    return history.now().numbers(history.newest_release())


def move_pointer(root: str, channel: str, pointer: Pointer, reason: str = "") -> Channels:
    """Move a pointer after the newest change."""
    history = ChannelHistory(root)
    return history.move(history.now(), channel, pointer, who="ben", reason=reason)


def retire(root: str, numbers: Iterable[int], on: date) -> Channels:
    """Retire these releases."""
    history = ChannelHistory(root)
    return history.retire(history.now(), numbers, on, who="ada", why="old")


def release_many(
    root: str, who: str, times: int, start: Callable[[], object] = lambda: None
) -> int:
    """Add `times` releases among concurrent writers. Return how often another writer came first."""
    start()
    releases = Releases(root)
    conflicts = 0
    added = 0
    while added < times:
        try:
            add_release(releases, added, releases.newest(), who)
            added += 1
        except Conflict:
            conflicts += 1
    return conflicts


def write_rows(root: Path, rows: dict[date, list[str]], name: str = RELEASED_TABLE) -> None:
    """Replace these days of a table by rows of these texts, in one commit; its folder and log are
    made by the first.
    """
    path = root / name
    made = (path / "_delta_log").exists()
    flat = [(at, n) for at, of_day in rows.items() for n in of_day]
    table = pa.table(
        {
            RELEASED_COLUMN: pa.array([at for at, _ in flat], pa.date32()),
            "n": pa.array([n for _, n in flat], pa.string()),
        }
    )
    where = " OR ".join(f"{RELEASED_COLUMN} = '{at}'" for at in rows) if made else None
    write_deltalake(
        str(path), table, partition_by=[RELEASED_COLUMN], mode="overwrite", predicate=where
    )


THREE_DAYS = {day(n): [f"{n}a", f"{n}b"] for n in range(3)}


A = "raw/a"
B = "staging/b"


@dataclass
class BuiltLake:
    """The workspace of tables A and B, with changes of their days."""

    root: Path
    calendar: Calendar = field(default=CALENDAR)

    @property
    def workspace(self) -> Workspace:
        return workspace_of([table(A), table(B)], self.calendar, str(self.root))

    @property
    def releases(self) -> Releases:
        return Releases(str(self.root))

    def build(self, name: str, *numbers: int, rows: int = 1, **fields: Any) -> None:
        """Commit and record these days of a table."""
        builds = [
            Build(name, day(n), "accepted", "r", "1", rows=rows, fingerprint="f", **fields)
            for n in numbers
        ]
        write_days(self.root, *builds)
        files = data_files(DeltaTable(str(self.root / name)), [b.day for b in builds])
        version = Lake(str(self.root)).version(name)
        now = datetime.now(UTC)
        built = [
            replace(b, delta_version=version, data_files=files.get(b.day, ""), at=now)
            for b in builds
        ]
        Ledger(str(self.root)).append(built)

    def fail(self, name: str, *numbers: int, **fields: Any) -> None:
        known = {"message": "no_nulls_n: 3 rows", "code_version": "1", **fields}
        Ledger(str(self.root)).append(
            [Build(name, day(n), "failed", "r", **known) for n in numbers]
        )

    def rewrite(self, name: str, number: int, rows: int = 2) -> None:
        """Another program writes other rows to a day."""
        write_days(self.root, Build(name, day(number), "accepted", "", "", rows=rows), ours=False)

    def start_plan(self, name: str, numbers: Iterable[int]) -> str:
        plan = Plan(
            {name: "1"},
            {name: {day(n): Reason(ReasonKind.MISSING) for n in numbers}},
            [],
            PlanOptions(),
        )
        plans = Plans(str(self.root))
        plans.keep(plan)
        start(plan, plans, datetime.now(UTC), "ada")
        return plan.id

    def end_plan(self, plan_id: str) -> None:
        Plans(str(self.root)).note(plan_id, "ended", datetime.now(UTC), ending="done")


def released_days(root: Path) -> BuiltLake:
    """Three days of both tables, released."""
    lake = BuiltLake(root)
    for name in (A, B):
        lake.build(name, 0, 1, 2)
    assert isinstance(decide(lake), Released)
    return lake


def decide(lake: BuiltLake, *runs: str) -> Any:
    """The decision of the sensor, with these runs of live."""
    return release_live(lake.workspace, who="the sensor", runs=lambda: dict.fromkeys(runs, ""))


MORNING = datetime(2019, 10, 14, 6, tzinfo=UTC)


@dataclass
class LateLake:
    root: Path
    accepted: dict = field(default_factory=dict)

    def arrive(self, number: int, rows: Mapping[int, int], at: datetime = MORNING) -> None:
        """Build an arrival day with this many rows about each event day."""
        parts = {str(day(about)): f"{count}-{number}-{count}" for about, count in rows.items()}
        text = "-".join(parts.values())
        self._add(
            outage_updates,
            Build(
                outage_updates.name,
                day(number),
                "accepted",
                "r",
                outage_updates.version,
                at=at,
                rows=1,
                fingerprint=f"f-{text}",
                day_fingerprints=parts,
                delta_version=0,
            ),
        )

    def build(self, *numbers: int) -> None:
        """Build these days of outages from the arrived rows."""
        for n in numbers:
            inputs = InputReader(outages, self.accepted, Calendar(day(0), day(59))).fingerprints(
                day(n)
            )
            made = Build(
                outages.name,
                day(n),
                "accepted",
                "r",
                outages.version,
                at=MORNING,
                rows=1,
                fingerprint=f"o{n}",
            )
            made.inputs = inputs
            self._add(outages, made)

    def fail(self, number: int) -> None:
        Ledger(str(self.root)).append(
            [Build(outages.name, day(number), "failed", "r", outages.version, message="no")]
        )

    def _add(self, table: Table, build: Build) -> None:
        write_days(self.root, build, columns=(table.partition_by, "n"))
        Ledger(str(self.root)).append([build])
        self.accepted[build.table, build.day] = build


def late_lake(root: Path) -> LateLake:
    """Twenty arrival days, outages of the first eighteen built; then one row about day 3 and two
    about day 14 arrived late, and three about day 1 arrived too late for any day.
    """
    copied_once("late-lake", _make_late_lake, root)
    names = (outage_updates.name, outages.name)
    return LateLake(root, latest(Ledger(str(root)), dict.fromkeys(names)).accepted)


def _make_late_lake(root: Path) -> None:
    lake = LateLake(root)
    for n in range(20):
        lake.arrive(n, {n: 9, **({n - 1: 2} if n else {})})
    lake.build(*range(18))
    lake.arrive(17, {17: 9, 16: 2, 3: 1})
    lake.arrive(18, {18: 9, 17: 2, 14: 2, 1: 3})


NAME = "raw/a"
DAYS = tuple(date(2019, 9, n) for n in range(1, 6))
FIRST, SECOND, THIRD, FOURTH, _ = DAYS
AT = datetime(2019, 9, 1, 12, 30, 15, 123456, tzinfo=UTC)
COLUMNS = (
    "n BIGINT, day DATE, at TIMESTAMP, note STRING, fields MAP<STRING, STRING>, names"
    " ARRAY<STRING>, share DOUBLE"
)


def row(day: date, n: int | None) -> tuple:
    return (
        n,
        day,
        AT,
        None if n is None else f"Ä{n}",
        {"a": f"{n}", "b": None},
        [None, "x"],
        float("nan"),
    )


def accepted(*days: date, outcome: str = "accepted", run: str = "a run") -> list[Build]:
    return [Build(NAME, day, outcome, run, "1") for day in days]  # type: ignore[arg-type]


class Given:
    """A lake with one table, written by the act."""

    def __init__(self, root: Path, spark):
        self.root, self.spark, self.folder = str(root), spark, f"{root}/{NAME}"

    def files(self, *rows: tuple, columns: str = COLUMNS) -> FileCommit:
        frame = self.spark.createDataFrame(list(rows), columns)
        return FileCommit(
            self.folder, "day", write_frame(frame, self.folder, "day"), frame.schema.json()
        )

    def commit(self, *rows: tuple, days: tuple[date, ...], columns: str = COLUMNS) -> list[Build]:
        made = self.files(*rows, columns=columns)
        return commit_and_record(self.root, NAME, lambda: accepted(*days), made)

    def assert_read_alike(self, version: int, rows: list[tuple[Any, ...]]) -> None:
        for read in (self.by_delta, self.by_slice, self.by_library, self.by_duckdb):
            assert read(version) == rows, (read.__name__, version)

    def by_delta(self, version: int | None = None) -> list[tuple]:
        reader = self.spark.read.format("delta")
        frame = (reader if version is None else reader.option("versionAsOf", version)).load(
            self.folder
        )
        return ordered(frame.select("day", "n").collect())

    def by_slice(self, version: int, days=DAYS, columns: str = "day, n") -> list[tuple]:
        frame = SliceReader(self.folder, Slice(NAME, "day", tuple(days), version), COLUMNS).rows(
            self.spark
        )
        return ordered(frame.selectExpr(*columns.split(", ")).collect())

    def by_library(self, version: int | None = None) -> list[tuple]:
        found = DeltaTable(self.folder, version=version).to_pyarrow_table()
        return ordered(zip(found["day"].to_pylist(), found["n"].to_pylist(), strict=True))

    def by_duckdb(self, version: int | None = None) -> list[tuple]:
        # With the library, because DuckDB's own Delta extension must be downloaded.
        held = DeltaTable(self.folder, version=version).to_pyarrow_dataset()
        with duckdb.connect() as database:
            database.register("held", held)
            return ordered(database.execute("SELECT day, n FROM held").fetchall())


def ordered(rows) -> list[tuple]:
    return sorted((tuple(r) for r in rows), key=repr)
