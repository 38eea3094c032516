"""The bundled sample: thirty days of reports, each published version of each day.

    python -m backfill_assets.datasets.case_reports.sample deliveries [--until 2020-03-10]

A version's file is called `<n>_<published at, UTC>_<blob>.csv.gz`, in the folder of its day.
"""

import argparse
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

FIRST_DAY = date(2020, 2, 23)
LAST_DAY = date(2020, 3, 23)
SAMPLE = Path(__file__).resolve().parents[2] / "sample" / "case_reports"


@dataclass(frozen=True, order=True)
class Version:
    """One published version of the report of a day."""

    published_at: datetime
    day: date
    path: Path

    @property
    def target(self) -> Path:
        """The path of the day's report below the landing area."""
        return Path("case_reports", f"{self.day:%m-%d-%Y}.csv.gz")

    def deliver(self, landing: Path) -> Path:
        """Copy the version to `target`, in place of an earlier one."""
        target = landing / self.target
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f"_{target.name}")
        shutil.copyfile(self.path, unfinished)
        return unfinished.replace(target)


def versions(folder: Path = SAMPLE) -> Iterator[Version]:
    """Every version of every day, in order of publication."""
    found = [
        Version(
            datetime.strptime(path.name.split("_")[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC),
            date.fromisoformat(day.name),
            path,
        )
        for day in folder.iterdir()
        if day.is_dir()
        for path in day.glob("*.csv.gz")
    ]
    return iter(sorted(found))


def deliver(landing: Path, until: datetime | None = None) -> int:
    """Copy the version of each day valid at `until` (None: the last), and count the days."""
    latest = {each.day: each for each in versions() if until is None or each.published_at <= until}
    for each in latest.values():
        each.deliver(landing)
    return len(latest)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("landing", type=Path)
    parser.add_argument(
        "--until", type=datetime.fromisoformat, help="the versions that stood at this time (UTC)"
    )
    given = parser.parse_args()
    until = given.until and given.until.replace(tzinfo=given.until.tzinfo or UTC)
    print(
        f"{deliver(given.landing, until)} day(s) of reports delivered to"
        f" {given.landing}/case_reports."
    )


if __name__ == "__main__":
    main()
