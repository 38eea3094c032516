"""What readers saw while writers were killed: `python -m tests.drills.reader_history`.

Processes of two kinds work on one lake with two tables. Writers build nights, publish plans, roll
them back and maintain the lake. They are killed with SIGKILL at random moments, and others take
their places. Readers use the public functions of the package alone, and write down all they see.

Every writer gives both tables the same values. So the checker needs only what the readers wrote:

- a release has the same rows whenever and by whomever it is read,
- both tables have the same values in it, so that no release has half a night or half a plan,
- no reader goes back to an earlier release.

Options: `--observations`, `--seed`.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path

from backfill_assets import open_release, read
from backfill_assets.errors import BackfillError
from backfill_assets.lake.maintenance import maintain
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import release_live
from tests.worlds.small_lake import (
    DAYS,
    RELEASE_WINDOW,
    A,
    B,
    SmallLake,
    approved,
    released_lake,
)

READERS = 2
WRITERS = 2
# How long a writer lives at most before it is killed: so many publications, as one takes on this
# machine now. On a busy one, writers that lived for seconds ended before their first act.
LIFE = 15
# The fewest writers that are killed, and releases that are made, and the file that says that they
# were.
KILLS = 10
RELEASES = 10
ENOUGH = "enough"
# Processes are forked from one that has imported what they need.
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.drills.reader_history"])
# The kinds of acts, with how often each is chosen.
KINDS = ["night", "night", "publish", "publish", "publish", "rollback", "maintain"]


@dataclass(frozen=True)
class Observation:
    """A release as a reader saw it: the rows of each day of both tables."""

    reader: int
    release: int
    a: dict[str, list[int]]
    b: dict[str, list[int]]


@dataclass(frozen=True)
class History:
    """All observations, each reader's in order; how many writers were killed; what acts ended."""

    observations: Sequence[Observation]
    kills: int
    acts: Counter[str]

    def of_reader(self, reader: int) -> list[Observation]:
        return [each for each in self.observations if each.reader == reader]


def problems(history: History) -> Iterator[str]:
    """What no reader may ever see."""
    first: dict[int, Observation] = {}
    for seen in history.observations:
        before = first.setdefault(seen.release, seen)
        if (seen.a, seen.b) != (before.a, before.b):
            yield f"release {seen.release} has other rows than before: {seen}, {before}"
        if seen.a != seen.b:
            yield f"release {seen.release} has other values in one table: {seen}"
        for rows in (seen.a, seen.b):
            if any(values != [len(values)] * len(values) for values in rows.values()):
                yield f"release {seen.release} has a day that was never written: {rows}"
    for reader in {seen.reader for seen in history.observations}:
        numbers = [seen.release for seen in history.of_reader(reader)]
        if numbers != sorted(numbers):
            yield f"reader {reader} went back"


def observed(reader: int) -> Observation:
    """The release that readers get now."""
    release = open_release()
    tables = []
    for name in (A.name, B.name):
        rows = read(name, release=release).to_table(columns=["day", "n"]).to_pydict()
        values: dict[str, list[int]] = {}
        for day, value in zip(rows["day"], rows["n"], strict=True):
            values.setdefault(str(day), []).append(value)
        tables.append(dict(sorted(values.items())))
    return Observation(reader, release.number, *tables)


def keep_reading(root: Path, reader: int, observations: int) -> None:
    """Read until this reader's file has so many observations, and enough has happened."""
    os.environ["BACKFILL_LAKE"] = str(root / "lake")
    seen = 0
    with (root / f"reader-{reader}.jsonl").open("w") as file:
        while seen < observations or not (root / ENOUGH).exists():
            print(json.dumps(vars(observed(reader))), file=file, flush=True)
            seen += 1
    # Arrow's threads sometimes abort a process that shuts down soon after it read a table.
    os._exit(0)


def keep_writing(root: Path, seed: int) -> None:
    """One act after another, until the process is killed."""
    dice = random.Random(seed)
    (root / f"writer-{seed}").touch()
    lake = SmallLake(root / "lake", runs=Counter(run=seed * 1000))
    with (root / "acts.txt").open("a") as file:
        while True:
            kind = dice.choice(KINDS)
            try:
                ACTS[kind](lake, dice)
            except BackfillError as refused:
                print("refused", kind, str(refused).splitlines()[0], file=file, flush=True)
            else:
                print("done", kind, file=file, flush=True)


def night(lake: SmallLake, dice: random.Random) -> None:
    values = {day: dice.randint(1, 9) for day in dice.sample(DAYS, 2)}
    # As steps of one run do: markers say that it is at work, until it has ended or was killed. Two
    # nights at once would write one table each between the two of the other.
    run = f"night-{dice.random()}"
    with lake.plans.exclusive("night"), ExitStack() as markers:
        for table in (A.name, B.name):
            step = RunningStep(table, list(values), run)
            markers.enter_context(mark_running(str(lake.root), step))
        for table in (A.name, B.name):
            lake.write(values, table=table, of_run=run)
    release_live(lake.workspace, who="sensor")


def publish(lake: SmallLake, dice: random.Random) -> None:
    values = {day: dice.randint(1, 9) for day in dice.sample(DAYS, 2)}
    plan = lake.shadow_plan({A.name: list(values), B.name: list(values)}, reason=str(dice.random()))
    for table in (A.name, B.name):
        lake.write(values, table=table, into=plan)
    Publication(plan, lake.workspace, "ada").publish(approved)


def roll_back(lake: SmallLake, dice: random.Random) -> None:
    """Roll back one of the newest plans, also of other writers."""
    published = [id_ for release in Releases(str(lake.root)).all() for id_ in release.plans]
    if published:
        lake.roll_back(lake.plans.read(dice.choice(published[-3:])))
        release_live(lake.workspace, who="sensor")


def keep_up(lake: SmallLake, dice: random.Random) -> None:
    maintain(lake.workspace.lake, RELEASE_WINDOW, datetime.now(UTC), "ada")


ACTS: dict[str, Callable[[SmallLake, random.Random], None]] = {
    "night": night,
    "publish": publish,
    "rollback": roll_back,
    "maintain": keep_up,
}


def history_of(root: Path, observations: int, seed: int) -> History:
    """Let readers and writers work below `root` until there are so many observations or more."""
    lake = released_lake(root)
    dice = random.Random(seed)
    began = time.monotonic()
    publish(lake, dice)
    life = LIFE * (time.monotonic() - began)
    releases = Releases(str(lake.root))
    each = -(-observations // READERS)
    with (
        processes([started(keep_reading, root, n, each) for n in range(READERS)]) as readers,
        processes([started(keep_writing, root, n) for n in range(WRITERS)]) as writers,
    ):
        kills = 0
        numbers = list(range(WRITERS))
        deaths: dict[int, float] = {}
        while any(reader.is_alive() for reader in readers):
            for n, writer in enumerate(writers):
                assert writer.is_alive(), f"a writer ended with code {writer.exitcode}"
                if (root / f"writer-{numbers[n]}").exists():  # it has imported what it needs
                    deaths.setdefault(numbers[n], time.monotonic() + dice.uniform(0, life))
                if time.monotonic() > deaths.get(numbers[n], math.inf):
                    writer.kill()
                    writer.join()
                    kills += 1
                    if kills >= KILLS and len(releases.all()) >= RELEASES:
                        (root / ENOUGH).touch()
                    numbers[n] = WRITERS - 1 + kills
                    writers[n] = started(keep_writing, root, numbers[n])
            next((each for each in readers if each.is_alive()), readers[0]).join(0.05)
        assert [reader.exitcode for reader in readers] == [0] * READERS
    seen = [
        Observation(**json.loads(line))
        for n in range(READERS)
        for line in (root / f"reader-{n}.jsonl").read_text().splitlines()
    ]
    lines = (root / "acts.txt").read_text().splitlines()
    return History(seen, kills, Counter(" ".join(line.split()[:2]) for line in lines))


@contextmanager
def processes(running: list[BaseProcess]) -> Iterator[list[BaseProcess]]:
    """Processes that are killed at the end, whatever they do."""
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.join()


def started(role: Callable[..., None], *arguments: object) -> BaseProcess:
    process = FORKED.Process(target=role, args=arguments)
    process.start()
    return process


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--observations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        history = history_of(Path(folder), given.observations, given.seed)
    found = list(problems(history))
    releases = len({seen.release for seen in history.observations})
    print(f"{len(history.observations):,} observations of {releases:,} releases;", end=" ")
    print(f"{history.kills} writers killed; {dict(history.acts)}; {len(found)} problems")
    print(*found[:5], sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
