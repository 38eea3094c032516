"""The record of one build of one (table, day): a row of the ledger, and an entry of a commit's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, date, datetime
from typing import Any, Literal

import pyarrow as pa

from backfill_assets.errors import UsageError

# Of an audit of rows that stood already: audited, or refused where they break a rule. Neither changes what is accepted.
AuditOutcome = Literal["audited", "refused"]
Outcome = Literal["accepted", "unchanged", "failed", "restored", "audited", "refused"]
# The message of an audit that finds other rows begins so: their files were changed behind the log.
ROWS_DIFFER = "the rows are not those that were accepted"
AUDITS: tuple[AuditOutcome, ...] = ("audited", "refused")
WriteMode = Literal["overwrite", "merge"]
# Of these the table has a commit that tells of them; the others leave it as it was.
COMMITTED: tuple[Outcome, ...] = ("accepted", "restored")


# Characters of a reason, or of a list of files: it is written with every day that is built.
LONGEST_TEXT = 5_000


def refuse_unkept(name: str, text: str) -> None:
    """UsageError for a text of a request that is not to be kept with every day of it: too long, or none that UTF-8 has."""
    if len(text) > LONGEST_TEXT:
        raise UsageError(
            f"{name} has {len(text):,} characters, and is kept with every day that is built. Nothing was done. Give at most "
            f"{LONGEST_TEXT:,}."
        )
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError(f"{name} {text!a} is not UTF-8. Nothing was done. Give it as text.")


def short(fingerprint: str) -> str:
    """As many digits of a fingerprint as people need to tell two apart."""
    return fingerprint[:12]


# Never changed once made. Not frozen, because that makes making one several times slower, and a long record has many.
@dataclass(slots=True)
class Build:
    """What became of one day of one table in one run. Times in UTC, durations in seconds.

    `inputs` maps each table that was read to its days and their fingerprints, `delivered` is the fingerprint of the day's
    source files, `files` the number of lines of each by name, `hashes` what tells its contents apart; `day_fingerprints`
    maps an event day to the fingerprint of the rows about it; `checks` holds the verdicts of the rules, `rules` is their
    version; `delta_version` is the table's version after the build, `data_files` a hash of the names of the day's files in
    it; a day is `mixed` if it also keeps rows (merge) that other code made, or that were made from another delivery or other
    inputs; `write_mode` may be append_once in records of older versions of this package; `spark_conf` are Spark settings that
    were this request's only, `accept` the files that it accepted by name; `git_commit` is that of the table's code, with
    `-dirty` where files had changed since, ""
    where no repository has it.
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
    git_commit: str = ""
    plan: str = ""
    who: str = ""
    reason: str = ""
    message: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def succeeded(self) -> bool:
        """Whether the day's rows in the table are this build's (unchanged: equal to it)."""
        return self.outcome not in ("failed", *AUDITS)

    @property
    def files_of(self) -> str | int:
        """Which files have its rows: the same for a build that left them as they were, or put them back."""
        return self.data_files or self.delta_version

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"day": self.day.isoformat(), "at": self.at.isoformat()}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Build:
        known = {f.name: entry[f.name] for f in fields(cls) if f.name in entry}
        return cls(**known | {"day": date.fromisoformat(entry["day"]), "at": datetime.fromisoformat(entry["at"])})


NESTED = (
    "nulls",
    "measures",
    "samples",
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
    "at": pa.timestamp("us", tz="UTC"),
}
SCHEMA = pa.schema([(f.name, KINDS.get(f.name, pa.string())) for f in fields(Build)])


def to_arrow(builds: Sequence[Build]) -> pa.Table:
    rows = [{f.name: getattr(b, f.name) for f in fields(Build)} for b in builds]
    return pa.Table.from_pylist([row | {n: json.dumps(row[n]) for n in NESTED} for row in rows], schema=SCHEMA)


def from_arrow(table: pa.Table) -> list[Build]:
    """The builds of the rows; what was not read of them, or not recorded in their time, is as if it had been empty."""
    blank = Build("", date.min, "failed", "", "")
    # By way of numpy, whose conversion to Python values is several times faster than Arrow's own.
    columns = {name: _filled(table[name], name, blank).to_numpy().tolist() for name in table.column_names}
    for name in (n for n in NESTED if n in columns):
        columns[name] = json.loads(f"[{','.join(columns[name])}]")  # one call for all is twice as fast
    if "at" in columns:
        columns["at"] = [at.replace(tzinfo=UTC) for at in columns["at"]]
    every = [columns.get(f.name, [getattr(blank, f.name)] * table.num_rows) for f in fields(Build)]
    return [Build(*row) for row in zip(*every, strict=True)]


def _filled(column: pa.ChunkedArray, name: str, blank: Build) -> pa.ChunkedArray:
    """`column` with the value of an empty build for rows of a ledger that had no such column."""
    if not column.null_count:
        return column
    value = getattr(blank, name)
    return column.fill_null(json.dumps(value) if name in NESTED else value)
