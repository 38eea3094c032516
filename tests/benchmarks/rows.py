"""From 0.2 to 50 million rows, with this package and by hand: `python -m tests.benchmarks.rows`.

    python -m tests.benchmarks.rows --times 1 10 50 250 --results rows.json --chart rows.png

Builds all days of the sample, amplified so many times, with the hand-written script and with this
package, in turn. Each run is added to `--results`, so that sizes can be measured at different
hours. The table and the chart are made of all runs that are there; `--times` without a number
measures nothing. Of several runs of one kind, the one with the median of seconds counts.

Seconds, peak memory, and bytes read and written are given for `raw`, `staging` and `features`. A
table's time ends with its last commit, and begins with the commit before it. `start` is the time
until Spark is there, for which its jars are copied, and `end` what follows the last table.
Bytes are those of system calls of all processes, so shuffles are among them.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from backfill_assets.datasets.outages.sample import FIRST_DAY, LAST_DAY
from tests.benchmarks.compare import SAMPLE, Bench, amplify
from tests.benchmarks.processes import Sample

TIMES = (1, 10, 50, 250)
SCRIPT = "by hand"
PACKAGE = "this package"
LAYERS = ("raw", "staging", "features")
PHASES = ("start", *LAYERS, "end")
GB = 2**30
# It says when Spark started. Both sides write one.
EVENT_LOG = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
COLORS = ("#cccccc", "#33658a", "#86bbd8", "#f6ae2d", "#888888")


@dataclass
class Phase:
    """What was used in a phase; memory and bytes in bytes."""

    seconds: float = 0.0
    memory: int = 0
    read: int = 0
    written: int = 0


@dataclass(frozen=True)
class Measured:
    """One run of all days, by whom."""

    rows: int
    by: str
    at: str
    phases: Mapping[str, Phase]

    @property
    def whole(self) -> Phase:
        phases = self.phases.values()
        return Phase(
            sum(phase.seconds for phase in phases),
            max(phase.memory for phase in phases),
            sum(phase.read for phase in phases),
            sum(phase.written for phase in phases),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--times", type=int, nargs="*", default=TIMES, help="amplify the sample so many times"
    )
    parser.add_argument("--pairs", type=int, default=1, help="how often each is run, in turn")
    parser.add_argument("--by", nargs="*", choices=(SCRIPT, PACKAGE), default=(SCRIPT, PACKAGE))
    parser.add_argument("--memory", default="4g", help="the Spark driver's memory")
    parser.add_argument("--results", type=Path, default=Path("rows.json"))
    parser.add_argument("--chart", type=Path, help="draw this PNG file")
    given = parser.parse_args()
    for times in given.times:
        measure(times, given.pairs, given.by, given.memory, given.results)
    runs = medians(read(given.results))
    console = Console(width=120)
    console.print(table(runs))
    print(guide_table(runs))
    if given.chart:
        given.chart.write_bytes(chart(runs))


def measure(times: int, pairs: int, by: Sequence[str], memory: str, results: Path) -> None:
    """Run each so often on the amplified sample, and add what was measured to `results`."""
    with tempfile.TemporaryDirectory(prefix="rows") as folder:
        root = Path(folder)
        landing = root / "landing"
        rows = amplify(SAMPLE, landing, times)
        events = root / "events"
        events.mkdir()
        conf = {"spark.driver.memory": memory, "spark.eventLog.dir": f"file://{events}"}
        bench = Bench(root, landing, conf | EVENT_LOG)
        for _ in range(pairs):
            for name in by:
                timing = (
                    bench.hand_written(FIRST_DAY, LAST_DAY)
                    if name == SCRIPT
                    else bench.one_run(name, FIRST_DAY, LAST_DAY)
                )
                (log,) = events.iterdir()
                ends = {"start": spark_started(log), **last_commits(Path(timing.lake))}
                at = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
                add(results, Measured(rows, name, at, phases(timing.samples, ends)))
                log.unlink()
                shutil.rmtree(timing.lake)


def spark_started(log: Path) -> float:
    """When an application with this event log had its executor, in seconds since the epoch."""
    with log.open() as lines:
        events = map(json.loads, lines)
        return next(
            event["Timestamp"] / 1000
            for event in events
            if event["Event"] == "SparkListenerExecutorAdded"
        )


def last_commits(lake: Path) -> dict[str, float]:
    """By table, when its last commit was made, in seconds since the epoch."""
    folders = [folder for layer in LAYERS for folder in sorted((lake / layer).iterdir())]
    return {
        str(folder.relative_to(lake)): DeltaTable(str(folder)).history(1)[0]["timestamp"] / 1000
        for folder in folders
    }


def phases(samples: Sequence[Sample], ends: Mapping[str, float]) -> dict[str, Phase]:
    """What was used until Spark started, in each layer, and after the last commit."""
    used = {name: Phase() for name in PHASES}
    begin = 0
    for name, at in [*sorted(ends.items(), key=lambda end: end[1]), ("end", samples[-1].at)]:
        end = max(n for n, sample in enumerate(samples) if sample.at <= at)
        phase = used[name.split("/")[0]]
        phase.seconds += samples[end].at - samples[begin].at
        phase.memory = max(phase.memory, *(sample.memory for sample in samples[begin : end + 1]), 0)
        phase.read += samples[end].read - samples[begin].read
        phase.written += samples[end].written - samples[begin].written
        begin = end
    return used


def add(results: Path, run: Measured) -> None:
    results.write_text(json.dumps([*map(asdict, read(results)), asdict(run)], indent=1) + "\n")


def read(results: Path) -> list[Measured]:
    if not results.exists():
        return []
    return [_measured(**document) for document in json.loads(results.read_text())]


def _measured(phases: Mapping[str, Mapping[str, Any]], **facts: Any) -> Measured:
    return Measured(phases={name: Phase(**phase) for name, phase in phases.items()}, **facts)


def medians(runs: Iterable[Measured]) -> dict[int, dict[str, Measured]]:
    """By rows and kind, the run with the median of seconds."""
    of_kind: dict[int, dict[str, list[Measured]]] = {}
    for run in runs:
        of_kind.setdefault(run.rows, {}).setdefault(run.by, []).append(run)
    return {
        rows: {by: _median(several) for by, several in kinds.items()}
        for rows, kinds in sorted(of_kind.items())
    }


def _median(runs: list[Measured]) -> Measured:
    return sorted(runs, key=lambda run: run.whole.seconds)[(len(runs) - 1) // 2]


def table(runs: Mapping[int, Mapping[str, Measured]]) -> Table:
    shown = Table("rows", "", "phase", "seconds", "peak memory", "read", "written", "measured")
    for rows, kinds in runs.items():
        for by, run in kinds.items():
            for name, phase in {"all": run.whole, **run.phases}.items():
                first = (f"{rows:,}", by) if name == "all" else ("", "")
                at = run.at if name == "all" else ""
                shown.add_row(*first, name, f"{phase.seconds:.1f}", *_sizes(phase), at)
        shown.add_section()
    return shown


def guide_table(runs: Mapping[int, Mapping[str, Measured]]) -> str:
    """The table of the guide `speed`, in Markdown: by hand, and with this package."""
    lines = ["| rows | seconds | ratio | peak memory | read | written |", "| --- |" + " --- |" * 5]
    for rows, (script, package) in _pairs(runs).items():
        sides = (script.whole, package.whole)
        cells = [
            f"{rows:,}",
            " / ".join(f"{side.seconds:.0f} s" for side in sides),
            f"{package.whole.seconds / script.whole.seconds:.2f}",
            *map(" / ".join, zip(*map(_sizes, sides), strict=True)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _pairs(runs: Mapping[int, Mapping[str, Measured]]) -> dict[int, tuple[Measured, Measured]]:
    """The sizes that both were measured with: by hand, and with this package."""
    return {
        rows: (kinds[SCRIPT], kinds[PACKAGE])
        for rows, kinds in runs.items()
        if {SCRIPT, PACKAGE} <= kinds.keys()
    }


def _sizes(phase: Phase) -> list[str]:
    return [f"{size / GB:.1f} GB" for size in (phase.memory, phase.read, phase.written)]


def chart(runs: Mapping[int, Mapping[str, Measured]]) -> bytes:
    """A PNG file: shares of what the script uses, by phase, and peak memory."""
    from io import BytesIO

    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), dpi=110, layout="constrained")
    axes: Any = figure.subplots(2, 2).flat
    pairs = _pairs(runs)
    for axis, what, title in zip(
        axes,
        ("seconds", "memory", "read", "written"),
        ("Seconds", "Peak memory, GB", "Bytes read", "Bytes written"),
        strict=True,
    ):
        _bars(axis, pairs, what)
        axis.set_title(title if what == "memory" else f"{title}, the script's are 1", fontsize=11)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(PHASES)
    )
    figure.suptitle("60 days of eight tables: left bar by hand, right bar this package")
    png = BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


def _bars(axis: Any, pairs: Mapping[int, tuple[Measured, Measured]], what: str) -> None:
    """Two bars for each size, each of them a pile of phases; of memory, the peak."""
    for place, (script, package) in enumerate(pairs.values()):
        for run, left in ((script, place - 0.19), (package, place + 0.19)):
            absolute = getattr(run.whole, what)
            if what == "memory":
                top = absolute / GB
                axis.bar(left, top, 0.34, color="#5d707f")
            else:
                top = 0.0
                for name, color in zip(PHASES, COLORS, strict=True):
                    height = getattr(run.phases[name], what) / getattr(script.whole, what)
                    label = name if run is script and place == 0 else None
                    axis.bar(left, height, 0.34, bottom=top, color=color, label=label)
                    top += height
            words = f"{absolute:.0f} s" if what == "seconds" else f"{absolute / GB:.1f} GB"
            axis.text(left, top, words, ha="center", va="bottom", fontsize=8)
    axis.set_xticks(range(len(pairs)), [f"{rows / 1e6:.1f} million rows" for rows in pairs])
    axis.margins(y=0.12)


if __name__ == "__main__":
    main()
