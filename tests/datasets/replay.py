"""Publications of the case reports played again: what status named, what was rebuilt, and what the files themselves say.

    python -m tests.datasets.replay ../shared/data/case_reports [--seed 7]

plays all of them, one a step, on a Spark of its own; with a seed, those of one day of publication arrive in any order.
"""

import argparse
import gzip
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.case_reports.sample import Version, versions
from backfill_assets.datasets.case_reports.tables import FIRST_DAY, LAST_DAY
from backfill_assets.lake.session import start
from backfill_assets.settings import read_settings
from tests.datasets.reports import FEATURES, RAW, STAGING, Reports, oracle
from tests.environment import SMALL

Days = Sequence[date]


def published_on(version: Version) -> date:
    return version.published_at.date()


def shuffled(order: Sequence[Version], seed: int, together: Callable[[Version], object] = published_on) -> list[Version]:
    """The versions of one day of publication in any order, but those of one file in theirs: the last one stands."""
    chance, played = random.Random(seed), list[Version]()
    for _, group in groupby(order, key=together):
        of_day = list(group)
        by_file = {version.day: [v for v in of_day if v.day == version.day] for version in of_day}
        played += [by_file[version.day].pop(0) for version in chance.sample(of_day, len(of_day))]
    return played


@dataclass(frozen=True)
class Played:
    """One step. `named`: the days that status called due before it; `other_bytes`: those whose files hold other bytes than when
    they were built last, `other_lines` those that do not hold the same lines in another order. By table, the days that the step
    recorded as `rebuilt`, those with `other_files` in the Delta log, and those with `other_rows`, as DuckDB makes them."""

    named: Days
    other_bytes: Days
    other_lines: Days
    rebuilt: Mapping[str, Days]
    other_files: Mapping[str, Days]
    other_rows: Mapping[str, Days]

    def wrong(self) -> Iterator[str]:
        """What status named or the step rebuilt and should not have, or the other way round."""
        if self.named != self.other_bytes:
            yield f"status named {self.named}, and other bytes have {self.other_bytes}"
        # Of 2020-04-12 all lines are others once, and hold the same: their times are written in another way.
        if not set(self.other_rows[STAGING]) <= set(self.rebuilt[RAW]) <= set(self.other_lines):
            yield f"{RAW}: other lines {self.other_lines}, rebuilt {self.rebuilt[RAW]}"
        if self.other_files != self.rebuilt:
            yield f"other files in the log: {self.other_files}, rebuilt: {self.rebuilt}"
        # `updated_at` of staging is not compared: a day may have changed in it alone.
        if not set(self.other_rows[STAGING]) <= set(self.rebuilt[STAGING]) <= set(self.named):
            yield f"{STAGING}: other rows {self.other_rows[STAGING]}, rebuilt {self.rebuilt[STAGING]}"
        if self.other_rows[FEATURES] != self.rebuilt[FEATURES]:
            yield f"{FEATURES}: other rows {self.other_rows[FEATURES]}, rebuilt {self.rebuilt[FEATURES]}"


@dataclass
class Replay:
    """Steps on `reports`, each held against the files."""

    reports: Reports
    texts: dict[date, bytes] = field(default_factory=dict)
    rows: dict[str, dict[date, list]] = field(default_factory=lambda: {STAGING: {}, FEATURES: {}})

    def play(self, arriving: Sequence[Version], build: Callable[[], None] = lambda: None) -> Played:
        """Deliver these versions, one after the other, and build what is due: by `build`, and what that leaves."""
        reports = self.reports
        for version in arriving:
            version.deliver(reports.landing)
        named, texts, files = reports.due(RAW)[RAW], self._texts(), self._files()
        before = {name: reports.fingerprints(name) for name in files}
        build()
        reports.run()
        rows, now = self._rows(), {name: reports.fingerprints(name) for name in files}
        step = Played(
            named,
            _other(self.texts, texts),
            _other(_lines(self.texts), _lines(texts)),
            {name: _other(before[name], now[name]) for name in files},
            {name: _other(files[name], of_days) for name, of_days in self._files().items()},
            {name: _other(self.rows[name], rows[name]) for name in rows},
        )
        self.texts, self.rows = texts, rows
        return step

    def landed(self) -> list[Path]:
        return sorted((self.reports.landing / "case_reports").iterdir())

    def _files(self) -> dict[str, dict[date, set[str]]]:
        return {name: self.reports.files(name) for name in (RAW, STAGING, FEATURES)}

    def _texts(self) -> dict[date, bytes]:
        paths = {day: self.reports.landing / f"case_reports/{day:%m-%d-%Y}.csv.gz" for day in self.reports.calendar.days()}
        return {day: gzip.decompress(path.read_bytes()) for day, path in paths.items() if path.exists()}

    def _rows(self) -> dict[str, dict[date, list]]:
        """The rows of each day, as DuckDB makes them of the files; of features, where no day of the week lacks."""
        calendar, made = self.reports.calendar, dict[str, dict[date, list]]()
        with oracle(self.landed(), calendar.first, calendar.last) as database:
            for name, table in {STAGING: "staging", FEATURES: "features"}.items():
                made[name] = {}
                for row in database.execute(f"SELECT * FROM {table} ORDER BY ALL").fetchall():
                    made[name].setdefault(row[0], []).append(row)
        there = made[STAGING].keys()
        complete = {day for day in there if there >= {*calendar.clip(day - timedelta(days=n) for n in range(8))}}
        return made | {FEATURES: {day: rows for day, rows in made[FEATURES].items() if day in complete}}


def _other(before: Mapping[date, object], now: Mapping[date, object]) -> list[date]:
    return sorted(day for day in {*before, *now} if before.get(day) != now.get(day))


def _lines(texts: Mapping[date, bytes]) -> dict[date, list[bytes]]:
    return {day: sorted(text.removeprefix(b"\xef\xbb\xbf").splitlines()) for day, text in texts.items()}


def differences(reports: Reports, files: Sequence[Path]) -> list[str]:
    """The tables whose rows are not those that DuckDB makes of `files`."""
    first, last = reports.calendar.first, reports.calendar.last
    with oracle(files, first, last) as database:
        different = []
        for name, table in {STAGING: "staging", FEATURES: "features"}.items():
            expected = database.execute(f"SELECT * FROM {table}")
            columns = [column[0] for column in expected.description]
            if reports.rows(name, *columns) != sorted(expected.fetchall(), key=repr):
                different.append(name)
        (cells,) = database.execute("SELECT count(*) FROM cells").fetchone() or (0,)
        return different + ([] if cells == len(reports.rows(RAW, "report_day")) else [RAW])


def other_than_built_once(
    reports: Reports, to: Path, files: Sequence[Path], names: Sequence[str] = (RAW, STAGING, FEATURES)
) -> list[str]:
    """The tables with other rows or fingerprints than a new lake gets that is built in one run from `files`, which land."""
    fresh = Reports(to, reports.calendar, reports.spark)
    (fresh.landing / "case_reports").mkdir(parents=True)
    for file in files:
        name, text = file.name.removesuffix(".gz"), file.read_bytes()
        text = text if file.name.endswith(".gz") else gzip.compress(text)
        (fresh.landing / "case_reports" / f"{name}.gz").write_bytes(text)
    fresh.run()
    return [
        name
        for name in names
        if fresh.fingerprints(name) != reports.fingerprints(name) or fresh.every_row(name) != reports.every_row(name)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder with `versions` and `final`")
    parser.add_argument("--seed", type=int, help="shuffle the versions that were published on one day")
    given = parser.parse_args()
    order = list(versions(given.data / "versions"))
    order = order if given.seed is None else shuffled(order, given.seed)
    with tempfile.TemporaryDirectory(prefix="replay") as folder:
        spark = start(read_settings(spark_remote="", home=folder, spark_conf=SMALL))
        reports = Reports(Path(folder, "reports"), Calendar(FIRST_DAY, LAST_DAY), lambda: spark)
        replay, began, faults, rebuilt = Replay(reports), time.monotonic(), 0, Counter[str]()
        for number, version in enumerate(order, 1):
            step = replay.play([version])
            rebuilt.update({name: len(days) for name, days in step.rebuilt.items()})
            for what in step.wrong():
                faults += 1
                print(f"{version.path.name} of {version.day}: {what}")
            if number % 20 == 0:
                print(f"{number} published states, {time.monotonic() - began:.0f} s")
        final = sorted((given.data / "final").iterdir())
        print(f"{len(order)} published states in {time.monotonic() - began:.0f} s; days rebuilt: {dict(rebuilt)}")
        print(f"steps that were wrong: {faults}")
        print(f"other than DuckDB makes of final/: {differences(reports, final) or 'none'}")
        once = other_than_built_once(reports, Path(folder, "new"), final)
        print(f"other than a new lake built once from final/: {once or 'none'}")


if __name__ == "__main__":
    main()
