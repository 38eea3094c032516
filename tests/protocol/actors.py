"""The programs: publish, rollback, a nightly run, a release, maintenance, a foreign writer.

They are what the package has to do, step by step. Each safeguard can be left out, to prove that the
search finds what it is for.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from tests.protocol import world as store
from tests.protocol.explore import Operation
from tests.protocol.world import LOST, TABLES, Act, Change, Commit, Outcome, Release, Rows

Steps = Generator[Operation, Any, Any]
Logs = tuple[tuple[Commit, ...], ...]


@dataclass(frozen=True)
class Protocol:
    """How the actors work. `has_locks`: files can be locked. `has_lineage`: B is made from A."""

    has_locks: bool
    has_lineage: bool
    fences: bool = True
    links_before_decision: bool = True
    confirms: bool = True
    keeps_first_outcome: bool = True
    commits_once: bool = True
    night_reads_log_before_acts: bool = True
    release_looks_twice_at_acts: bool = True
    release_counts_first: bool = True
    act_release_must_be_settled: bool = True
    maintenance_lists_first: bool = True
    maintenance_reads_acts_last: bool = True
    acts_announce: bool = True
    acts_pass_all_locks: bool = True
    acts_wait_for_runs: bool = True
    acts_look_again: bool = True
    runs_wait_for_acts: bool = True
    runs_that_have_committed_go_on: bool = True
    release_waits_for_runs: bool = True
    release_looks_twice_at_tables: bool = True

    # Acts.

    def publish(self, plan: str, tables: tuple[str, ...] = TABLES) -> Steps:
        """Put day `d` of a plan into live. The plan was built when live held the first rows."""
        is_alone = yield from self._announce()
        if is_alone:
            yield from self._publish(plan, tables)
        yield from self._withdraw()

    def _publish(self, plan: str, tables: tuple[str, ...]) -> Steps:
        yield from self._lock()
        acts = yield from self._finish_all()
        logs = yield from self._read_logs()
        is_disturbed = yield from self._look_again()
        if is_disturbed:
            yield store.unlock_all()
            return "disturbed"
        changes: tuple[Change, ...] = ()
        for table in tables:
            log = logs[TABLES.index(table)]
            base = log[0].days[0][1]
            if store.rows_at(log, "d") != base:
                yield store.unlock_all()
                return "conflict"
            made_from = plan if "A" in tables else logs[0][0].days[0][1].by
            made = Rows(plan, made_from if table == "B" else "")
            made = made._replace(file=f"{table} d {plan}")
            changes = (*changes, Change(table, "d", base, made))
        yield from self._record_and_finish(Act(plan, "publish", plan, changes), len(acts))
        return "done"

    def rollback(self, plan: str) -> Steps:
        """Give the days of a published plan their earlier rows, if they still have the plan's."""
        is_alone = yield from self._announce()
        if is_alone:
            yield from self._roll_back(plan)
        yield from self._withdraw()

    def _roll_back(self, plan: str) -> Steps:
        yield from self._lock()
        acts = yield from self._finish_all()
        published: Act | None = None
        for n, act in enumerate(acts):
            outcome = yield store.read_outcome(n)
            if act.plan == plan and outcome.is_committed:
                published = act if act.kind == "publish" else None
        if published is None:
            yield store.unlock_all()
            return "not in live"
        logs = yield from self._read_logs()
        is_disturbed = yield from self._look_again()
        if is_disturbed:
            yield store.unlock_all()
            return "disturbed"
        changes = tuple(
            Change(change.table, change.day, change.after, change.before)
            for change in published.changes
            if store.rows_at(logs[TABLES.index(change.table)], change.day) == change.after
        )
        if changes:
            yield from self._record_and_finish(
                Act(f"rollback {plan}", "rollback", plan, changes), len(acts)
            )
        yield store.unlock_all()
        return "done"

    def _announce(self) -> Steps:
        """Announce an act, and wait for the runs that have committed. False if in vain.

        There are no announcements without locks.
        """
        if not self.has_locks:
            return True
        if self.acts_announce:
            yield store.announce()
        for table in TABLES if self.acts_pass_all_locks else ():
            yield store.lock(table)
            yield store.unlock_all()
        answer: object = True
        if self.acts_wait_for_runs:
            answer = yield store.wait_for_writers()
        return answer is True

    def _look_again(self) -> Steps:
        """True, and the act is refused, if a run has committed because its own patience ended."""
        if not self.has_locks or not self.acts_look_again:
            return False
        is_disturbed = yield store.read_writers()
        if is_disturbed:
            yield store.refuse()
        return is_disturbed

    def _withdraw(self) -> Steps:
        if self.has_locks:
            yield store.withdraw()

    def _record_and_finish(self, act: Act, n: int) -> Steps:
        recorded = yield store.put_act(n, act)
        if recorded == LOST:
            acts, _ = yield store.read_acts()
            recorded = len(acts) > n and acts[n].by == act.by
        if recorded:
            yield from self._finish(n)
        yield store.unlock_all()

    def _finish_all(self) -> Steps:
        """Finish acts that were begun, and return all acts."""
        acts, ended = yield store.read_acts()
        while len(ended) < len(acts):
            yield from self._finish(len(acts) - 1)
            acts, ended = yield store.read_acts()
        return acts

    def _finish(self, n: int) -> Steps:
        """Carry out act `n`. Several actors may do this at once, and each of them may stop."""
        acts, _ = yield store.read_acts()
        act = acts[n]
        tables = tuple(sorted({change.table for change in act.changes}))
        outcome = yield store.read_outcome(n)
        while outcome is None:
            outcome = yield from self._decide(n, act, tables)
        if outcome.is_committed:
            for table in tables:
                days = days_in(act, table)
                if not self.links_before_decision:
                    lost = yield store.link_files(frozenset(rows.file for _, rows in days))
                    if lost:
                        return
                    del lost
                yield from self._commit_once(table, Commit(act.by, days, f"act {n}"))
            yield from self._release_act(n, outcome)
        yield store.put_end(n)

    def _decide(self, n: int, act: Act, tables: tuple[str, ...]) -> Steps:
        lost: frozenset[str] = frozenset()
        for table in tables if self.links_before_decision else ():
            files = frozenset(rows.file for _, rows in days_in(act, table))
            lost = lost | (yield store.link_files(files))
        if self.fences and not self.has_locks:
            for table in tables:
                yield from self._commit_once(table, Commit(act.by, (), f"fence {n}"))
        logs = yield from self._read_logs()
        is_good = True
        if self.confirms:
            is_good = all(
                store.rows_at(logs[TABLES.index(change.table)], change.day) == change.before
                for change in act.changes
            )
            if act.kind == "publish":
                is_good = is_good and store.is_settled(logs, self.has_lineage)
        is_good = is_good and not lost
        versions = tuple(len(log) for log in logs)
        del logs
        yield store.put_outcome(n, Outcome(is_good, versions), self.keeps_first_outcome)
        return (yield store.read_outcome(n))

    def _commit_once(self, table: str, entry: Commit) -> Steps:
        while True:
            log = yield store.read_log(table)
            if self.commits_once and store.has_txn(log, entry.txn):
                return
            answer = yield store.commit(table, len(log), entry)
            if answer is True:
                return
            del log, answer

    def _release_act(self, n: int, outcome: Outcome) -> Steps:
        """Release the tables of the act as it committed them, and the others as confirmed."""
        while True:
            releases = yield store.read_releases()
            if any(release.by == f"act {n}" for release in releases):
                return
            logs = yield from self._read_logs()
            versions: tuple[int, ...] = ()
            for log, confirmed in zip(logs, outcome.versions, strict=True):
                txns = [commit.txn for commit in log]
                own = txns.index(f"act {n}") + 1 if f"act {n}" in txns else confirmed
                del txns
                versions = (*versions, own)
            shown = tuple(log[:version] for log, version in zip(logs, versions, strict=True))
            settled = store.is_settled(shown, self.has_lineage)
            if self.act_release_must_be_settled and not settled:
                return
            count = len(releases)
            del logs, shown, releases
            answer = yield store.add_release(count, Release(f"act {n}", versions))
            if answer is True:
                return

    # The other actors.

    def night(self, name: str, day: str = "d") -> Steps:
        """Build a day of A, and then of B, unless another builds it first."""
        if self.has_locks:
            yield store.begin_run(name)
        base = yield from self._read_logs()
        was = tuple(store.rows_at(log, day) for log in base)
        del base
        for n, table in enumerate(TABLES):
            while True:
                if self.has_locks:
                    yield from self._lock_when_free(name, table)
                log, acts, ended = yield from self._look(table)
                if len(ended) < len(acts):
                    yield from self._help()
                    continue
                del acts, ended
                made_from = ""
                if table == "B":
                    made_from = store.rows_at((yield store.read_log("A")), day).by
                rows = store.rows_at(log, day)
                if rows.by == name or (rows != was[n] and rows.by != "foreign"):
                    answer: object = True
                else:
                    file = f"{table} {day} {name}"
                    entry = Commit(name, ((day, Rows(name, made_from, file)),))
                    answer = yield store.commit(table, len(log), entry)
                if self.has_locks:
                    yield store.unlock_all()
                if answer is True:
                    break
                del log, rows
        if self.has_locks:
            yield store.end_run(name)

    def _lock_when_free(self, run: str, table: str) -> Steps:
        """Lock a table. Before the first commit of a run, wait for acts that are announced."""
        is_patient = self.runs_wait_for_acts
        while True:
            yield store.lock(table)
            must_wait = False
            if is_patient:
                although_committed = not self.runs_that_have_committed_go_on
                must_wait = yield store.must_wait(run, although_committed=although_committed)
            if not must_wait:
                return
            yield store.unlock_all()
            answer = yield store.wait_for_acts()
            is_patient = answer is True
            del answer

    def repair(self, name: str, day: str) -> Steps:
        """Finish acts that were begun. Build a foreign, lost or outdated day."""
        yield from self._lock()
        yield from self._finish_all()
        for table in TABLES:
            logs = yield from self._read_logs()
            log = logs[TABLES.index(table)]
            rows = store.rows_at(log, day)
            made_from = store.rows_at(logs[0], day).by if table == "B" else ""
            is_outdated = self.has_lineage and rows.made_from != made_from
            files = yield store.list_files()
            if rows.by == "foreign" or rows.file not in files or is_outdated:
                file = f"{table} {day} {name} {len(log)}"
                entry = Commit(name, ((day, Rows(name, made_from, file)),))
                yield store.commit(table, len(log), entry)
        yield store.unlock_all()

    def _look(self, table: str) -> Steps:
        if self.night_reads_log_before_acts:
            log = yield store.read_log(table)
            acts, ended = yield store.read_acts()
        else:
            acts, ended = yield store.read_acts()
            log = yield store.read_log(table)
        return log, acts, ended

    def _help(self) -> Steps:
        if self.has_locks:
            yield store.unlock_all()
        yield from self._lock()
        yield from self._finish_all()
        if self.has_locks:
            yield store.unlock_all()

    def release(self, name: str) -> Steps:
        """Release live as it is, if no act or run is unfinished and all days are settled."""
        while True:
            if self.has_locks:
                yield store.lock("lake")
            acts, ended = yield store.read_acts()
            if len(ended) < len(acts):
                yield from self._help()
                continue
            count = len((yield store.read_releases()))
            logs = yield from self._read_logs()
            is_running = False
            if self.has_locks and self.release_waits_for_runs:
                is_running = yield store.read_running()
            logs_again = logs
            if self.has_locks and self.release_looks_twice_at_tables:
                logs_again = yield from self._read_logs()
            again = acts
            if self.release_looks_twice_at_acts:
                again, _ = yield store.read_acts()
            if not self.release_counts_first:
                count = len((yield store.read_releases()))
            if again == acts and logs_again == logs:
                break
            del logs, logs_again, again, acts, ended, is_running, count
            if self.has_locks:
                yield store.unlock_all()
        if store.is_settled(logs, self.has_lineage) and not is_running:
            versions = tuple(len(log) for log in logs)
            yield store.add_release(count, Release(name, versions))
        yield store.unlock_all()

    def maintain(self) -> Steps:
        """Delete the files that live, a release, an act or a rollback does not need."""
        yield from self._lock()
        yield from self._finish_all()
        yield store.unlock_all()
        if self.maintenance_lists_first:
            listed = yield store.list_files()
        if not self.maintenance_reads_acts_last:
            acts, _ = yield store.read_acts()
        logs = yield from self._read_logs()
        releases = yield store.read_releases()
        if self.maintenance_reads_acts_last:
            acts, _ = yield store.read_acts()
        if not self.maintenance_lists_first:
            listed = yield store.list_files()
        yield store.delete_files(listed - needed_files(acts, releases, logs))

    def foreign(self, table: str, day: str) -> Steps:
        """A writer that knows nothing of acts and takes no locks."""
        while True:
            log = yield store.read_log(table)
            rows = Rows("foreign", "foreign", f"{table} {day} foreign")
            answer = yield store.commit(table, len(log), Commit("foreign", ((day, rows),)))
            if answer is True or answer == LOST:
                return

    def delete_shadow(self, plan: str) -> Steps:
        """Delete the files of a shadow, one by one."""
        for table in TABLES:
            yield store.delete_files(frozenset({store.in_shadow(f"{table} d {plan}")}))

    def vacuum(self, plan: str) -> Steps:
        """Delete files of a plan in live that are not committed, and its shadow."""
        yield from self.delete_shadow(plan)
        for table in TABLES:
            yield store.vacuum(table, frozenset({f"{table} d {plan}"}))

    # What they share.

    def _lock(self) -> Steps:
        if self.has_locks:
            for name in ("lake", *TABLES):
                yield store.lock(name)

    def _read_logs(self) -> Steps:
        logs: Logs = ()
        for table in TABLES:
            log = yield store.read_log(table)
            logs = (*logs, log)
        return logs


def days_in(act: Act, table: str) -> tuple[tuple[str, Rows], ...]:
    """The days of a table with the rows that an act gives them."""
    return tuple((change.day, change.after) for change in act.changes if change.table == table)


def needed_files(
    acts: tuple[Act, ...], releases: tuple[Release, ...], logs: Logs
) -> frozenset[str]:
    """Files that live holds, that a release holds, or that an act puts or may put back."""
    shown = [*logs]
    for release in releases:
        shown += [log[:version] for log, version in zip(logs, release.versions, strict=True)]
    in_logs = {store.rows_at(log, day).file for log in shown for day in store.days_of(log)}
    in_acts = {
        rows.file
        for act in acts
        for change in act.changes
        for rows in (change.before, change.after)
    }
    return frozenset(in_logs | in_acts)
