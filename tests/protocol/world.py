"""A store with two tables, acts, releases and locks, and the operations on it.

Each operation is atomic. A write may lose its answer: the writer gets `LOST`, and the write was
carried out or was not.
"""

from typing import NamedTuple

from tests.protocol.explore import GAVE_UP, Answers, Operation

TABLES = ("A", "B")
LOST = "lost"


class Rows(NamedTuple):
    """The rows of a day: who built them, from which rows of A, and their file."""

    by: str
    made_from: str = ""
    file: str = ""


class Commit(NamedTuple):
    """An entry of a table's log. It replaces days. `txn` makes it happen once."""

    by: str
    days: tuple[tuple[str, Rows], ...] = ()
    txn: str = ""


class Change(NamedTuple):
    """What an act does to one day: the rows it expects there, and the rows it puts there."""

    table: str
    day: str
    before: Rows
    after: Rows


class Act(NamedTuple):
    """A recorded decision. Its number is its place in the list."""

    by: str
    kind: str
    plan: str
    changes: tuple[Change, ...]


class Outcome(NamedTuple):
    """What an act came to, with the version of each table when that was decided."""

    is_committed: bool
    versions: tuple[int, ...]


class Release(NamedTuple):
    by: str
    versions: tuple[int, ...]


class World(NamedTuple):
    logs: tuple[tuple[Commit, ...], ...]
    acts: tuple[Act, ...] = ()
    outcomes: tuple[Outcome | None, ...] = ()
    ended: frozenset[int] = frozenset()
    releases: tuple[Release, ...] = ()
    files: frozenset[str] = frozenset()
    locks: frozenset[tuple[str, str]] = frozenset()
    # The actors that have announced an act, and the runs at work with their actors.
    announced: frozenset[str] = frozenset()
    running: frozenset[tuple[str, str]] = frozenset()
    # Whether the patience of anyone ended, and whether an act was refused because of a run.
    gave_up: bool = False
    refused: bool = False
    answers_to_lose: int = 0
    # Files that a foreign vacuum may have taken from a day.
    lost: frozenset[str] = frozenset()

    def log(self, table: str) -> tuple[Commit, ...]:
        return self.logs[TABLES.index(table)]

    def with_log(self, table: str, log: tuple[Commit, ...]) -> "World":
        n = TABLES.index(table)
        return self._replace(logs=(*self.logs[:n], log, *self.logs[n + 1 :]))


def rows_at(log: tuple[Commit, ...], day: str) -> Rows:
    """The rows of a day after the last commit of `log`."""
    return next(rows for commit in reversed(log) for d, rows in commit.days if d == day)


def days_of(log: tuple[Commit, ...]) -> tuple[str, ...]:
    return tuple(sorted({day for commit in log for day, _ in commit.days}))


def is_settled(logs: tuple[tuple[Commit, ...], ...], lineage: bool) -> bool:
    """True if no day has rows of a foreign writer, and no day of B was made from other rows."""
    log_of_a, log_of_b = logs
    for day in days_of(log_of_a):
        in_a = rows_at(log_of_a, day)
        in_b = rows_at(log_of_b, day)
        if "foreign" in (in_a.by, in_b.by):
            return False
        if lineage and in_b.made_from != in_a.by:
            return False
    return True


def in_shadow(file: str) -> str:
    """The name of a file of live while it is in the shadow of its plan."""
    return f"shadow {file}"


def has_txn(log: tuple[Commit, ...], txn: str) -> bool:
    return any(commit.txn == txn for commit in log)


# Reading.


def read_log(table: str) -> Operation:
    return Operation(f"read log of {table}", lambda world, _: [(world.log(table), world)])


def read_acts() -> Operation:
    """All acts, with the numbers of those that ended."""
    return Operation("read acts", lambda world, _: [((world.acts, world.ended), world)])


def read_outcome(n: int) -> Operation:
    return Operation(f"read outcome {n}", lambda world, _: [(world.outcomes[n], world)])


def read_releases() -> Operation:
    return Operation("read releases", lambda world, _: [(world.releases, world)])


def list_files() -> Operation:
    """The files in the folders of live."""

    def answers(world: World, _: str) -> Answers:
        return [(frozenset(file for file in world.files if not file.startswith("shadow")), world)]

    return Operation("list files", answers)


# Writing.


def commit(table: str, version: int, entry: Commit) -> Operation:
    """Add `entry` as the commit after `version` commits. False if another one is there."""

    def answers(world: World, _: str) -> Answers:
        log = world.log(table)
        if len(log) != version:
            return [(False, world)]
        files = frozenset(rows.file for _, rows in entry.days if rows.file)
        # The rows of an act have their files linked before: a commit adds none.
        written = world if entry.txn else world._replace(files=world.files | files)
        return _lossy(world, True, written.with_log(table, (*log, entry)))

    return Operation(f"commit {entry.txn or entry.by} to {table} at {version}", answers)


def put_act(n: int, act: Act) -> Operation:
    """Record an act under a number, if there is none. False if there is."""

    def answers(world: World, _: str) -> Answers:
        if len(world.acts) != n:
            return [(False, world)]
        after = world._replace(acts=(*world.acts, act), outcomes=(*world.outcomes, None))
        return _lossy(world, True, after)

    return Operation(f"put act {n} ({act.kind} {act.plan})", answers)


def put_outcome(n: int, outcome: Outcome, only_if_absent: bool) -> Operation:
    def answers(world: World, _: str) -> Answers:
        if world.outcomes[n] is not None and only_if_absent:
            return [(False, world)]
        outcomes = (*world.outcomes[:n], outcome, *world.outcomes[n + 1 :])
        return _lossy(world, True, world._replace(outcomes=outcomes))

    return Operation(f"put outcome {n}: {outcome}", answers)


def put_end(n: int) -> Operation:
    def answers(world: World, _: str) -> Answers:
        return _lossy(world, True, world._replace(ended=world.ended | {n}))

    return Operation(f"end act {n}", answers)


def add_release(n: int, release: Release) -> Operation:
    """Add a release under a number, if there is none. False if there is."""

    def answers(world: World, _: str) -> Answers:
        if len(world.releases) != n:
            return [(False, world)]
        return _lossy(world, True, world._replace(releases=(*world.releases, release)))

    return Operation(f"add release {n}: {release.versions}", answers)


def link_files(files: frozenset[str]) -> Operation:
    """Put files of a shadow into the folder of live. Answers with those that are nowhere."""

    def answers(world: World, _: str) -> Answers:
        lacking = files - world.files
        lost = frozenset(file for file in lacking if in_shadow(file) not in world.files)
        return [(lost, world._replace(files=world.files | (lacking - lost)))]

    return Operation(f"link {sorted(files)}", answers)


def delete_files(files: frozenset[str]) -> Operation:
    return Operation(
        f"delete {sorted(files)}",
        lambda world, _: [(True, world._replace(files=world.files - files))],
    )


def vacuum(table: str, files: frozenset[str]) -> Operation:
    """Delete those of the files that the log of a table does not have now."""

    def answers(world: World, _: str) -> Answers:
        deleted = files - {rows.file for commit in world.log(table) for _, rows in commit.days}
        return [(True, world._replace(files=world.files - deleted, lost=world.lost | deleted))]

    return Operation(f"vacuum {sorted(files)}", answers)


def _lossy(before: World, answer: object, after: World) -> Answers:
    if not before.answers_to_lose:
        return [(answer, after)]
    left = before.answers_to_lose - 1
    return [
        (answer, after),
        (LOST, after._replace(answers_to_lose=left)),
        (LOST, before._replace(answers_to_lose=left)),
    ]


# Locks, which end with the process that holds them.


def lock(name: str) -> Operation:
    def answers(world: World, actor: str) -> Answers:
        if any(locked == name for locked, _ in world.locks):
            return []
        return [(True, world._replace(locks=world.locks | {(name, actor)}))]

    return Operation(f"lock {name}", answers)


def unlock_all() -> Operation:
    def unlocked(world: World, actor: str) -> World:
        return world._replace(locks=frozenset(held for held in world.locks if held[1] != actor))

    return Operation("unlock", lambda world, actor: [(True, unlocked(world, actor))])


# Markers, which end with their process too.


def announce() -> Operation:
    """Announce an act, so that runs that have committed nothing wait."""

    def answers(world: World, actor: str) -> Answers:
        return [(True, world._replace(announced=world.announced | {actor}))]

    return Operation("announce", answers)


def withdraw() -> Operation:
    def answers(world: World, actor: str) -> Answers:
        return [(True, world._replace(announced=world.announced - {actor}))]

    return Operation("withdraw the announcement", answers)


def begin_run(run: str) -> Operation:
    def answers(world: World, actor: str) -> Answers:
        return [(True, world._replace(running=world.running | {(run, actor)}))]

    return Operation(f"begin run {run}", answers)


def end_run(run: str) -> Operation:
    def answers(world: World, actor: str) -> Answers:
        return [(True, world._replace(running=world.running - {(run, actor)}))]

    return Operation(f"end run {run}", answers)


def has_committed(world: World, run: str) -> bool:
    return any(commit.by == run for log in world.logs for commit in log)


def writers(world: World) -> tuple[str, ...]:
    """The runs at work that have committed something."""
    return tuple(sorted(run for run, _ in world.running if has_committed(world, run)))


def read_running() -> Operation:
    return Operation("read runs", lambda world, _: [(bool(world.running), world)])


def read_writers() -> Operation:
    return Operation("read the runs that have committed", lambda w, _: [(bool(writers(w)), w)])


def wait_for_writers() -> Operation:
    """Wait until no run is at work that has committed something, or until patience ends."""

    def answers(world: World, _: str) -> Answers:
        if writers(world):
            return [(GAVE_UP, world._replace(gave_up=True))]
        return [(True, world)]

    return Operation("wait for runs", answers)


def refuse() -> Operation:
    """Refuse an act because a run has committed."""
    return Operation("refuse", lambda world, _: [(True, world._replace(refused=True))])


def must_wait(run: str, *, although_committed: bool = False) -> Operation:
    """True if an act is announced, and the run has committed nothing."""

    def answers(world: World, _: str) -> Answers:
        is_free = has_committed(world, run) and not although_committed
        return [(bool(world.announced) and not is_free, world)]

    return Operation(f"look whether {run} must wait", answers)


def wait_for_acts() -> Operation:
    """Wait until no act is announced, or until patience ends."""

    def answers(world: World, _: str) -> Answers:
        if world.announced:
            return [(GAVE_UP, world._replace(gave_up=True))]
        return [(True, world)]

    return Operation("wait for acts", answers)


def killed(world: World, actor: str) -> World:
    """The world after an actor was killed: its locks are free, and its markers are gone."""
    return world._replace(
        locks=frozenset(held for held in world.locks if held[1] != actor),
        announced=world.announced - {actor},
        running=frozenset(each for each in world.running if each[1] != actor),
    )
