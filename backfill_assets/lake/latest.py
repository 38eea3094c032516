"""The latest builds of every partition, read in bulk and changing nothing."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.calendar import Partition
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.ledger_files import Days
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.record import AUDITS, COMMITTED, ROWS_DIFFER, Build, from_arrow
from backfill_assets.lake.recovery import lacking_builds

# Figures and verdicts are left out: reading them would take most of the time, and only one day's are ever wanted.
COLUMNS = (
    "table", "day", "outcome", "run", "code_version", "fingerprint", "day_fingerprints", "inputs", "delivered", "files",
    "hashes", "delta_version", "data_files", "seconds", "rows", "mixed", "plan", "rules", "message", "at",
)  # fmt: skip


@dataclass(frozen=True)
class Latest:
    """Of each partition the last build, the last `accepted` one, whose rows are in the table, and the last audit of its rows.

    `computed`: the last build of which is known how long it took, which one that was put back is not.
    `compared`: the last audit that held the rows against those that were accepted; not every audit can.
    `rewritten`, where it was looked for: the accepted partitions that somebody else wrote to since, and what happened.
    `plans`: by plan, the partitions that it has built, whoever built them since; whole for the plan that was asked for.
    `of_live`: in a shadow, the accepted partitions that it has not built, whose rows are those of live.
    """

    last: dict[Partition, Build] = field(default_factory=dict)
    accepted: dict[Partition, Build] = field(default_factory=dict)
    rewritten: dict[Partition, str] = field(default_factory=dict)
    audits: dict[Partition, Build] = field(default_factory=dict)
    compared: dict[Partition, Build] = field(default_factory=dict)
    plans: dict[str, set[Partition]] = field(default_factory=dict)
    computed: dict[Partition, Build] = field(default_factory=dict)
    of_live: Collection[Partition] = frozenset()

    def add(self, builds: Iterable[Build]) -> None:
        """Take in builds that may be later than those known."""
        for build in builds:
            partition = (build.table, build.day)
            if build.plan and build.succeeded:
                self.plans.setdefault(build.plan, set()).add(partition)
            of_builds = [self.last, self.accepted] if build.succeeded else [self.last]
            of_builds += [self.computed] if build.succeeded and build.seconds > 0 else []
            of_audits = [self.audits, self.compared] if build.fingerprint else [self.audits]
            for known in of_audits if build.outcome in AUDITS else of_builds:
                if partition not in known or known[partition].at <= build.at:
                    known[partition] = build

    def built_by(self, plan: str) -> set[Partition]:
        """The partitions that a plan has built, whoever built them since."""
        return self.plans.get(plan, set())

    def audit_of(self, partition: Partition) -> Build | None:
        """The last audit of the rows that are accepted now; None if they were not audited since."""
        return self._of_accepted(partition, self.audits)

    def differing(self) -> dict[Partition, str]:
        """The accepted partitions in which an audit found other rows than were accepted, and what it said.

        That stands, whatever later audits judge by, until the day's rows are committed anew, or held against them again.
        """
        compared = {partition: self._of_accepted(partition, self.compared) for partition in self.compared}
        return {p: audit.message for p, audit in compared.items() if audit and audit.message.startswith(ROWS_DIFFER)}

    def _of_accepted(self, partition: Partition, audits: Mapping[Partition, Build]) -> Build | None:
        accepted, audit = self.accepted.get(partition), audits.get(partition)
        return audit if accepted and audit and accepted.files_of == audit.files_of else None

    def refused(self) -> set[Partition]:
        """The accepted partitions whose last audit refused them."""
        return {partition for partition in self.audits if (audit := self.audit_of(partition)) and audit.outcome == "refused"}


def latest(
    ledger: Ledger,
    days: Days,
    columns: Iterable[str] = COLUMNS,
    plan: str = "",
    *,
    until: Mapping[str, int] | None = None,
    recorded: Mapping[str, datetime] | None = None,
) -> Latest:
    """The latest builds of these tables and days (None: all), and what `plan` has built, whether a crash left them out of the
    ledger or not. With `until`, only those whose rows are in these versions of the tables, and of those that made no commit of
    their own only what was `recorded` by then."""
    files = ledger.files()
    rows = files.rows(list(columns), days)
    if until is not None:
        rows = rows.filter(_not_after(rows, until, recorded or {}))
    builds = Latest(plans={plan: set(_built_by(plan, rows))} if plan else {})
    builds.add(from_arrow(rows.take(_last_rows(rows))))
    for name, newest in files.newest(days).items():
        of_table = days[name]
        with suppress(TableUnreadable):  # `rewritten` names its days; other tables have nothing to do with it
            lacking = lacking_builds(Paths(ledger.root).table(name), newest)
            last = until.get(name, -1) if until is not None else None
            builds.add(
                build
                for build in lacking
                if (of_table is None or build.day in of_table) and (last is None or build.delta_version <= last)
            )
    return builds


def _not_after(rows: pa.Table, until: Mapping[str, int], recorded: Mapping[str, datetime]) -> pa.ChunkedArray:
    names = pa.array(list(until), pa.string())
    of_table = pc.fill_null(pc.index_in(rows["table"], names), len(until))
    last = pc.take(pa.array([*until.values(), -1], pa.int64()), of_table)
    times = [recorded.get(name, datetime.max.replace(tzinfo=UTC)) for name in until]
    at = pc.take(pa.array([*times, datetime.min.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")), of_table)
    committed = pc.is_in(rows["outcome"], pa.array(sorted(COMMITTED)))
    return pc.and_(pc.less_equal(rows["delta_version"], last), pc.or_(committed, pc.less_equal(rows["at"], at)))


def _built_by(plan: str, rows: pa.Table) -> Iterator[Partition]:
    unbuilt = pc.is_in(rows["outcome"], pa.array(["failed", *AUDITS]))
    of_plan = rows.select(["table", "day"]).filter(pc.and_(pc.equal(rows["plan"], plan), pc.invert(unbuilt)))
    return zip(*of_plan.to_pydict().values(), strict=True)


def _last_rows(rows: pa.Table) -> pa.Array:
    """Where the last build of each partition is, the last accepted one, the last that took some time, and of its audits the
    last, and the last that compared its rows; oldest first."""
    by_time = pc.sort_indices(rows["at"])
    others = pc.is_in(rows["outcome"], pa.array(["failed", *AUDITS]))
    kind = pc.if_else(others, pc.replace_substring(rows["outcome"], "refused", "audited"), "accepted")
    timed = [name for name in rows.column_names if name == "seconds"]
    builds = rows.select(["table", "day", "fingerprint", *timed]).append_column("kind", kind).take(by_time)
    numbered = builds.append_column("number", pa.array(range(len(by_time)), pa.int64()))  # typed: of no rows, too
    comparing = numbered.filter(pc.and_(pc.equal(numbered["kind"], "audited"), pc.greater(numbered["fingerprint"], "")))
    accepted = numbered.filter(pc.equal(numbered["kind"], "accepted"))
    computed = accepted.filter(pc.greater(accepted["seconds"], 0.0)) if timed else accepted
    last = [
        each.group_by(["table", "day", "kind"]).aggregate([("number", "max")])["number_max"].combine_chunks()
        for each in (numbered, comparing, computed)
    ]
    return by_time.take(pc.unique(pa.concat_arrays(last)).sort())
