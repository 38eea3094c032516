"""A correction on running servers, from the delivery until readers have it, against building
everything: `python -m tests.benchmarks.correction`.

Builds all days of the sample. Then days are delivered again and corrected, with everything made
from them: `run --only outdated --downstream --into shadow`, `diff`, `verify`, `publish`,
`rollback`. The corrections are three days (8 and 20 days apart), one day, and twenty single days.
The other side is the hand-written script over all days, without audits. DuckDB computes the right
rows from the files.

Options: `--memory` of the engine, `--picture` a file for the picture, `--only` some corrections.
"""

import argparse
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.datasets.outages.sample import FIRST_DAY, LAST_DAY
from backfill_assets.verify.checklist import CheckOutcome
from backfill_assets.verify.verify import Verdicts
from tests.benchmarks.compare import Bench
from tests.worlds.outages import ORACLE_TABLES, differences, oracle_of
from tests.worlds.servers import deliver, environment, servers_of
from tests.worlds.station import Station

DAYS = (LAST_DAY - FIRST_DAY).days + 1
CORRECTIONS = {
    "three days": [12, 20, 40],
    "one day": [20],
    "twenty days": list(range(1, DAYS, 3)),
}
STEPS = ("run", "diff", "verify", "publish", "rollback")
UNTIL_READ = ("run", "verify", "publish")
RUNS = """query ($tags: [ExecutionTag!]) {
  runsOrError(filter: {tags: $tags}) { ... on Runs { results {
    creationTime startTime endTime assetSelection { path } } } }
}"""


@dataclass
class Corrected:
    """The seconds of each command, the runs of the plan, and the number of wrong rows."""

    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    runs: int = 0
    waited: float = 0.0
    wrong: int = 0

    @property
    def until_read(self) -> float:
        return sum(self.seconds[step] for step in UNTIL_READ)


def file_of(landing: Path, day: date) -> Path:
    folder = f"outage_events/year={day:%Y}/month={day:%m}/day={day:%d}"
    return landing / folder / "events.jsonl.gz"


def deliver_again(file: Path) -> bytes:
    """Deliver a day with other numbers of customers in every tenth event. Return what was there."""
    before = file.read_bytes()
    lines = gzip.decompress(before).splitlines()
    for n in range(0, len(lines), 10):
        event = json.loads(lines[n])
        event["estCustAffected"] = str(int(event.get("estCustAffected") or 0) + 1)
        lines[n] = json.dumps(event).encode()
    file.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    return before


def timed(station: Station, *arguments: str, codes: Iterable[int] = (0,)) -> tuple[float, str]:
    """The seconds and the output of a command that ends with one of these codes."""
    began = time.monotonic()
    process = station.started(*arguments)
    printed, _ = process.communicate()
    if process.returncode not in codes:
        sys.exit(f"backfill {' '.join(arguments)} ended with {process.returncode}:\n{printed}")
    return time.monotonic() - began, printed


def wrong_rows(station: Station) -> int:
    """The number of rows of live that DuckDB, which reads the files, does not find, or misses."""
    with oracle_of(station.landing, FIRST_DAY, LAST_DAY) as oracle:
        return sum(
            len(differences(oracle, name, DeltaTable(station.lake.path(name)).to_pyarrow_table()))
            for name in ORACLE_TABLES
        )


def correct(station: Station, name: str, numbers: Sequence[int]) -> Corrected:
    """Correct these days and take the correction back. Then the files are as they were."""
    files = [file_of(station.landing, FIRST_DAY + timedelta(days=n)) for n in numbers]
    before = {file: deliver_again(file) for file in files}
    found = Corrected(name)
    plan = ("--only", "outdated", "--downstream", "--into", "shadow", "--yes")
    found.seconds["run"], _ = timed(station, "run", "--partitions", "all", *plan)
    (open_plan,) = [p["plan"] for p in station.asked_json("list")["plans"] if p["in_shadow"]]
    found.seconds["diff"], _ = timed(station, "diff", open_plan)
    found.seconds["verify"], _ = timed(station, "verify", open_plan, codes=(0, 4))
    verdict = Verdicts(station.lake.root).newest(open_plan)
    assert verdict
    undecided = [line.name for line in verdict.lines if line.outcome == CheckOutcome.DECISION]
    if undecided:
        accepted = [word for check in undecided for word in ("--accept", check)]
        reason = ("--reason", "the delivery was corrected")
        found.seconds["verify"] += timed(station, "verify", open_plan, *accepted, *reason)[0]
    found.seconds["publish"], _ = timed(station, "publish", open_plan)
    found.wrong = wrong_rows(station)
    found.seconds["rollback"], _ = timed(station, "rollback", open_plan, "--yes")
    tags = [{"key": "backfill/plan", "value": open_plan}]
    runs = [run for run in station.ask(RUNS, tags=tags)["results"] if run["assetSelection"]]
    found.runs = len(runs)
    found.waited = sum(run["startTime"] - run["creationTime"] for run in runs) / len(runs)
    for file, contents in before.items():
        file.write_bytes(contents)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--memory", default="4g", help="the memory of each Spark driver")
    parser.add_argument("--picture", type=Path, help="where the picture is written")
    parser.add_argument("--only", choices=CORRECTIONS, nargs="*", default=list(CORRECTIONS))
    given = parser.parse_args()
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="correction") as folder:
        root = Path(folder)
        home = root / "home"
        deliver(home / "landing", [FIRST_DAY + timedelta(days=n) for n in range(DAYS)])
        by_hand = Bench(root, home / "landing", {"spark.driver.memory": given.memory})
        script = by_hand.hand_written(FIRST_DAY, LAST_DAY).seconds
        conf = {"BACKFILL_SPARK_CONF": json.dumps({"spark.driver.memory": given.memory})}
        with servers_of(home, environment(home, LAST_DAY) | conf) as station:
            live = ("--into", "live", "--canary", "0", "--yes")
            everything, _ = timed(station, "run", "--partitions", "all", *live)
            found = [correct(station, name, CORRECTIONS[name]) for name in given.only]
    console.print(table_of(found, everything, script))
    if given.picture:
        draw(found, everything, script, given.picture)


def table_of(found: Sequence[Corrected], everything: float, script: float) -> Drawn:
    drawn = Drawn(
        "correction", *STEPS, "until readers have it", "of everything", "of the script", "runs",
        "waited", "wrong rows",
        title=f"everything {everything:.0f} s, the hand-written script {script:.0f} s",
    )  # fmt: skip
    for each in found:
        until = each.until_read
        drawn.add_row(
            each.name,
            *(f"{each.seconds[step]:.1f}" for step in STEPS),
            f"{until:.0f} s",
            f"{until / everything:.2f}",
            f"{until / script:.2f}",
            str(each.runs),
            f"{each.waited:.1f} s",
            str(each.wrong),
        )
    return drawn


def draw(found: Sequence[Corrected], everything: float, script: float, picture: Path) -> None:
    """Draw the seconds until readers have each correction, and those of building everything."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1 + 0.5 * (len(found) + 2)), layout="constrained")
    axes = figure.subplots()
    names = [*(each.name for each in found), "everything", "everything, by the script"]
    left = [0.0] * len(found)
    for step in UNTIL_READ:
        seconds = [each.seconds[step] for each in found]
        axes.barh(names[: len(found)], seconds, left=left, label=step)
        left = [a + b for a, b in zip(left, seconds, strict=True)]
    axes.barh(names[len(found) :], [everything, script], color="0.7")
    axes.invert_yaxis()
    axes.set_xlabel("seconds until readers have it")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main()
