"""The ledger: one row per build of a partition, in the Delta table `_ledger`.

A `Build` is a row of the ledger and an entry of a commit's metadata. The ledger is written right
after the data commit. After a crash between the two, `history` adds the missing rows from the
commit.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import CommitFailedError

from backfill_assets.calendar import Partition
from backfill_assets.errors import NOTHING_CHANGED, UsageError
from backfill_assets.grouping import grouped
from backfill_assets.lake.record_table import RecordFile, RecordFiles, RecordTable
from backfill_assets.tries import again_after

# Outcomes of an audit of rows that are in the table. Neither changes the accepted build.
AuditOutcome = Literal["audited", "refused"]
Outcome = Literal["accepted", "unchanged", "failed", "restored", "removed", "audited", "refused"]
# The finding of an audit: the files hold other rows than were accepted, or cannot be read.
Finding = Literal["", "other_rows", "unreadable_files"]
AUDITS: tuple[AuditOutcome, ...] = ("audited", "refused")
# The act that recorded a build in live. A step has none.
ActKind = Literal["", "publish", "rollback", "restore", "adopt"]
WriteMode = Literal["overwrite", "merge"]
# With these outcomes the table does not have the rows of the build.
NOT_BUILT: tuple[Outcome, ...] = ("failed", "removed", *AUDITS)
# Builds with these outcomes are in a commit of the table. Other builds do not change the table.
COMMITTED: tuple[Outcome, ...] = ("accepted", "restored", "removed")


# The limit in characters for a reason or a list of files, because each build stores it.
LONGEST_TEXT = 5_000


def require_reason(reason: str, what: str) -> None:
    """Raise UsageError for an act that has no reason, or one that cannot be stored."""
    if not reason.strip():
        raise UsageError(
            f"{what}.",
            unchanged=NOTHING_CHANGED,
            next_step="Add --reason 'why'. It is recorded.",
        )
    refuse_unstorable_text("reason", reason)


def refuse_unstorable_text(name: str, text: str) -> None:
    """Raise UsageError if the text is too long to store with every build, or is not valid UTF-8."""
    if len(text) > LONGEST_TEXT:
        raise UsageError(
            f"{name} has {len(text):,} characters. It is stored with every build.",
            unchanged="Nothing was done.",
            next_step=f"Give at most {LONGEST_TEXT:,}.",
        )
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError(
            f"{name} {text!a} is not UTF-8.",
            unchanged="Nothing was done.",
            next_step="Give it as text.",
        )


# The delivery of a day on which nothing was due and nothing came.
CLOSED_DAY = "closed"
# The code version of an adopted day, if the code that made its rows is not known.
ADOPTED = "adopted"
# The fingerprint of an adopted day whose rows were not read begins so. A hash of its files follows.
BY_FILES = "files-"


def short_fingerprint(fingerprint: str) -> str:
    """Shorten a fingerprint to the digits that people need to tell two apart."""
    return fingerprint[:12]


# Never changed. Not frozen: creating a frozen one takes several times longer, and a long record has
# many.
@dataclass(slots=True)
class Build:
    """The result of one day of one table in one run. Times are UTC, durations are seconds.

    dropped          the rows for days around that the step of the build dropped, by these days
    inputs           the days of each table that was read, with their fingerprints
    delivered        the fingerprint of the day's source files; `CLOSED_DAY` for a closed day
    files, hashes    the number of lines of each source file, and the hash of its contents
    day_fingerprints the fingerprint of the rows about each event day
    checks, rules    the verdicts of the rules, and the version of the rules
    delta_version    the version of the table after the build
    data_files       a hash of the names of the day's files in that version
    mixed            whether the day also keeps rows of other code, deliveries or inputs (merge)
    spark_conf       the Spark settings of this request
    accept           the files, columns and rules that it accepted by name
    replace_foreign_rows  whether it could replace rows of another program
    accepted_code    the code version for which someone kept rows of other code ("": none)
    code_loaded_at   when the process of the build loaded its code, as text ("": not known)
    git_commit       that of the table's code, with `-dirty` if files had changed; "" without one
    act, undone_plan the act that recorded the build, and the plan that a rollback took back
    finding          the finding of an audit about the files
    """

    table: str
    day: date
    outcome: Outcome
    run: str
    code_version: str
    fingerprint: str = ""
    rows: int = 0
    nulls: Mapping[str, int] = field(default_factory=dict)
    measures: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    day_fingerprints: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    delivered: str = ""
    files: Mapping[str, int] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    input_versions: Mapping[str, int] = field(default_factory=dict)
    checks: Sequence[Mapping[str, Any]] = ()
    rules: str = ""
    delta_version: int = -1
    data_files: str = ""
    seconds: float = 0.0
    write_mode: str = "overwrite"
    mixed: bool = False
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""
    replace_foreign_rows: bool = False
    accepted_code: str = ""
    code_loaded_at: str = ""
    git_commit: str = ""
    plan: str = ""
    who: str = ""
    reason: str = ""
    act: ActKind = ""
    undone_plan: str = ""
    finding: Finding = ""
    message: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def succeeded(self) -> bool:
        """True if the table has the rows of this build, or equal rows (unchanged)."""
        return self.outcome not in NOT_BUILT

    @property
    def is_closed(self) -> bool:
        """True if the day was built empty, because nothing was due. It is not an input."""
        return self.delivered == CLOSED_DAY

    @property
    def is_foreign(self) -> bool:
        """True if a rollback put back files of another program."""
        return self.outcome == "removed" and bool(self.data_files)

    @property
    def is_adopted(self) -> bool:
        """True if the code and the inputs of the rows are not known."""
        return self.code_version == ADOPTED

    @property
    def is_known_by_files(self) -> bool:
        """True if the rows were never read: the fingerprint identifies the files."""
        return self.fingerprint.startswith(BY_FILES)

    def is_of_code(self, version: str) -> bool:
        """True if code of this version made the rows, or someone kept the rows for this version.

        True also if the code is not known.
        """
        return self.is_adopted or version in (self.code_version, self.accepted_code)

    @property
    def files_of(self) -> str | int:
        """Identify the files that hold the rows.

        A build that left these files, or restored them, has the same value.
        """
        return self.data_files or self.delta_version

    def to_json(self) -> dict[str, Any]:
        # Without copies of what is in the fields: a commit may have thousands of builds.
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"day": self.day.isoformat(), "at": self.at.isoformat()}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Build:
        values = {f.name: entry[f.name] for f in fields(cls) if f.name in entry}
        day = date.fromisoformat(entry["day"])
        at = datetime.fromisoformat(entry["at"])
        return cls(**values | {"day": day, "at": at})


_NESTED = (
    "nulls",
    "measures",
    "samples",
    "dropped",
    "day_fingerprints",
    "inputs",
    "files",
    "hashes",
    "input_versions",
    "checks",
    "spark_conf",
)
KINDS: dict[str, pa.DataType] = {
    "day": pa.date32(),
    "rows": pa.int64(),
    "delta_version": pa.int64(),
    "seconds": pa.float64(),
    "mixed": pa.bool_(),
    "replace_foreign_rows": pa.bool_(),
    "at": pa.timestamp("us", tz="UTC"),
}
BUILD_SCHEMA = pa.schema([(f.name, KINDS.get(f.name, pa.string())) for f in fields(Build)])
# Hashes for reading a long history (`hashed_builds.py`): of the day as an input, of the rows about
# each event day as inputs, and the sum of the hashes of the build's own inputs.
HASHES = pa.schema(
    [
        ("whole", pa.int64()),
        ("about", pa.list_(pa.date32())),
        ("about_hashes", pa.list_(pa.int64())),
        ("inputs_hash", pa.int64()),
    ]
)
_LEDGER_SCHEMA = pa.schema([*BUILD_SCHEMA, *HASHES])


def input_hash(table: str, day: str, fingerprint: str) -> int:
    """A hash of one input."""
    text = f"{table}\n{day}\n{fingerprint}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True)


def to_arrow(builds: Sequence[Build]) -> pa.Table:
    """The rows of the ledger with these builds."""
    rows = [{f.name: getattr(b, f.name) for f in fields(Build)} | _hashes_of(b) for b in builds]
    return pa.Table.from_pylist(
        [row | {n: json.dumps(row[n]) for n in _NESTED} for row in rows], schema=_LEDGER_SCHEMA
    )


def _hashes_of(build: Build) -> dict[str, Any]:
    """The hashes of a build as an input, and of its inputs."""

    def as_input(fingerprint: str) -> int:
        # Rows without a fingerprint, and closed days, are not inputs.
        is_input = fingerprint and not build.is_closed
        return input_hash(build.table, str(build.day), fingerprint) if is_input else 0

    about = {
        day: fingerprint
        for text, fingerprint in build.day_fingerprints.items()
        if (day := _as_date(text))
    }
    inputs = [
        input_hash(table, day, fingerprint)
        for table, days in build.inputs.items()
        for day, fingerprint in days.items()
    ]
    return {
        "whole": as_input(build.fingerprint),
        "about": list(about),
        "about_hashes": list(map(as_input, about.values())),
        # The sum has 64 bits, like the sum of a column.
        "inputs_hash": int(np.array(inputs, np.int64).sum()),
    }


def _as_date(text: str) -> date | None:
    """The event day; None for rows without one, and for days that Python lacks."""
    with suppress(ValueError):
        return date.fromisoformat(text)
    return None


def from_arrow(table: pa.Table) -> list[Build]:
    """The builds in the rows. A column that was not read has the default of `Build`."""
    blank = Build("", date.min, "failed", "", "")
    names = [f.name for f in fields(Build) if f.name in table.column_names]
    # Numpy converts to Python values several times faster than Arrow.
    columns = {name: table[name].to_numpy().tolist() for name in names}
    for name in (n for n in _NESTED if n in columns):
        # One call for all is twice as fast.
        columns[name] = json.loads(f"[{','.join(columns[name])}]")
    if "at" in columns:
        columns["at"] = [at.replace(tzinfo=UTC) for at in columns["at"]]
    every = [columns.get(f.name, [getattr(blank, f.name)] * table.num_rows) for f in fields(Build)]
    return [Build(*row) for row in zip(*every, strict=True)]


# The days of interest by table. None means all days.
Days = Mapping[str, Collection[date] | None]
# Such as the accepted build of each partition.
BuildByPartition = Mapping[Partition, Build]


class RecordedCommits(NamedTuple):
    """The recorded commits of a table: the newest `version` (-1: none) and all `versions`.

    `at` is the time of its last recorded build.
    """

    version: int = -1
    at: datetime = datetime.min.replace(tzinfo=UTC)
    versions: frozenset[int] = frozenset()


@dataclass(frozen=True)
class LedgerFiles:
    """The ledger's rows in these files."""

    files: RecordFiles

    @cached_property
    def by_table(self) -> dict[str, list[RecordFile]]:
        return grouped((file["partition.table"], file) for file in self.files.listed)

    def rows(
        self,
        columns: Sequence[str] | None = None,
        days: Days | None = None,
        after: datetime | None = None,
    ) -> pa.Table:
        """The rows of these tables and days (None: all), as Arrow.

        With `after`, only rows that were recorded later are read, from the files that have such
        rows.
        """
        later = pc.scalar(True)
        if after is not None:
            later = ds.field("at") > pa.scalar(after, BUILD_SCHEMA.field("at").type)
        wanted = dict.fromkeys(self.by_table) if days is None else days
        # One read of many files is several times as fast as one read per table.
        same_days = grouped(
            (None if of_days is None else frozenset(of_days), table)
            for table, of_days in wanted.items()
        )
        parts = [self.files.read((), columns)]
        for of_days, tables in same_days.items():
            chosen = later
            if of_days is not None:
                chosen &= ds.field("day").isin(pa.array(sorted(of_days), pa.date32()))
            files = [file for table in tables for file in self.by_table.get(table, ())]
            parts.append(self.files.read(files, columns, chosen))
        return pa.concat_tables(parts)

    def built_after(self, since: Mapping[str, datetime]) -> set[Partition]:
        """The partitions with a build or an audit after the time of their table in `since`."""
        return {
            (name, day)
            for name, at in since.items()
            for day in self.rows(["day"], {name: None}, after=at)["day"].to_pylist()
        }

    @cached_property
    def cached(self) -> dict[Any, Any]:
        """A cache for values that depend on this version of the ledger only."""
        log = self.files.log
        return log.cached if log else {}

    @property
    def committed_runs(self) -> frozenset[str]:
        """The runs that have committed rows of any table.

        Waiting processes call it several times a second, so the rows are read once for each
        version.
        """
        if "committed runs" not in self.cached:
            rows = self.rows(["run", "outcome"])
            committed = rows.filter(pc.is_in(rows["outcome"], pa.array(COMMITTED)))
            self.cached["committed runs"] = frozenset(committed["run"].unique().to_pylist())
        runs: frozenset[str] = self.cached["committed runs"]
        return runs

    def newest(self, tables: Iterable[str]) -> dict[str, RecordedCommits]:
        """The recorded commits of each table, and the time of its last build."""
        names = list(dict.fromkeys(tables))
        newest: dict[str, RecordedCommits] = self.cached.setdefault("newest", {})
        if unread := [name for name in names if name not in newest]:
            newest |= dict.fromkeys(unread, RecordedCommits()) | self._newest(unread)
        return {name: newest[name] for name in names}

    def _newest(self, tables: Iterable[str]) -> dict[str, RecordedCommits]:
        """Read the recorded commits of each table. Tables without builds are left out."""
        rows = self.rows(["table", "delta_version", "outcome", "at"], dict.fromkeys(tables))
        committed = rows.filter(pc.is_in(rows["outcome"], pa.array(COMMITTED)))
        distinct = committed.group_by("table").aggregate([("delta_version", "distinct")])
        versions = {
            row["table"]: frozenset(row["delta_version_distinct"]) for row in distinct.to_pylist()
        }
        latest = rows.group_by("table").aggregate([("at", "max")])
        return {
            row["table"]: RecordedCommits(max(of, default=-1), row["at_max"], of)
            for row in latest.to_pylist()
            for of in [versions.get(row["table"], frozenset())]
        }


class UsualSeconds(NamedTuple):
    """The mean seconds of the builds of a table, and their standard deviation."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Ledger:
    """The record of every build in the lake at `root`.

    Grain: (table, day, run, at). Partitioned by table. The days are days of `zone` ("": of any).
    """

    root: str
    zone: str = ""

    @property
    def path(self) -> str:
        return self.records.path

    @property
    def records(self) -> RecordTable:
        return RecordTable(self.root, _LEDGER_SCHEMA, self.zone)

    # In an object store a lock can be lost. If two writers create the ledger, this append fails
    # because of the metadata of the second.
    @again_after(CommitFailedError, 5).wraps
    def append(self, builds: Sequence[Build]) -> None:
        if not builds:
            return
        with self.records.to_write() as table:
            self.records.append(table, to_arrow(builds))
            self.records.compact(table)

    def begin(self) -> None:
        """Create the ledger before the first commit, so that the lake keeps its zone."""
        if self.files().files.log is None:
            self.records.create()
            self.files()  # another process may have created it, in another zone

    def files(self) -> LedgerFiles:
        """The current ledger; empty before the first build.

        Raises SettingsError if its days are of another zone.
        """
        return LedgerFiles(self.records.files())

    def rows(self, columns: Sequence[str] | None = None, days: Days | None = None) -> pa.Table:
        """The rows of these tables and days (None: all), as Arrow."""
        return self.files().rows(columns, days)

    def builds(self, days: Days | None = None, columns: Sequence[str] | None = None) -> list[Build]:
        """Every build of these tables and days (None: all), oldest first, without duplicates."""
        builds = from_arrow(self.rows(columns, days))
        return sorted(
            {(b.table, b.day, b.run, b.outcome, b.at): b for b in builds}.values(),
            key=lambda b: b.at,
        )

    def has_committed(self, run: str) -> bool:
        """True if a run has committed rows of any table."""
        return run in self.files().committed_runs

    def next_time(self, table: str) -> datetime:
        """The time of a new build: now, but later than every earlier build of the table.

        The clocks of hosts may differ.
        """
        return max(datetime.now(UTC), self.newest([table])[table].at + timedelta(microseconds=1))

    def newest(self, tables: Iterable[str]) -> dict[str, RecordedCommits]:
        """The recorded commits of each table, and the time of its last build."""
        return self.files().newest(tables)

    def usual_seconds(self, tables: Iterable[str]) -> dict[str, UsualSeconds]:
        """The duration of each table's computed builds. Tables without such builds are left out."""
        rows = self.rows(["table", "outcome", "seconds"], dict.fromkeys(tables))
        is_built = pc.invert(pc.is_in(rows["outcome"], pa.array(NOT_BUILT)))
        # A restored build took no time.
        computed = rows.filter(pc.and_(is_built, pc.greater(rows["seconds"], 0.0)))
        figures = computed.group_by("table").aggregate([("seconds", "mean"), ("seconds", "stddev")])
        return {
            row["table"]: UsualSeconds(row["seconds_mean"], row["seconds_stddev"])
            for row in figures.to_pylist()
        }
