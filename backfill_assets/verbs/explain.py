"""One day of one table: the reason of its status, and all its records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from rich.text import Text

from backfill_assets.errors import SourceError
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.running import running_steps
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.no_day import in_words
from backfill_assets.plan.neighbours import StatusReader
from backfill_assets.plan.source_changes import changed_since
from backfill_assets.verbs.log import facts_of, input_lines
from backfill_assets.verbs.report import Line, Report
from backfill_assets.workspace import Workspace

# The requests of a build, by the field that has them.
REQUEST = ("run", "plan", "who", "reason", "spark_conf", "accept")


@dataclass(frozen=True)
class ExplainedBuild:
    """A build of the day. `files_changed` names changes from the previous files."""

    build: Build
    is_in_shadow: bool
    files_changed: str

    def as_json(self) -> Mapping[str, Any]:
        more = {"in_shadow": self.is_in_shadow, "files_changed": self.files_changed}
        return self.build.to_json() | more

    def lines(self) -> Iterator[Line]:
        build = self.build
        yield from build_lines(build, *["in the shadow of its plan"][: self.is_in_shadow])
        yield from input_lines(build, self.files_changed)
        for others, rows in build.dropped.items():
            yield f"    dropped: {rows:,} rows of {others}"
        if build.message:
            yield f"    {build.message}"


def build_lines(build: Build, *more: str) -> Iterator[str]:
    """Yield the outcome of a build with its facts and `more`, and its request."""
    facts = ", ".join([f"{build.rows} rows", *more, *facts_of(build)])
    yield f"  {build.at:%Y-%m-%d %H:%M:%S} UTC {build.outcome}: {facts}"
    request = {name.replace("_", " "): getattr(build, name) for name in REQUEST}
    yield f"    {_words(request)}"


@dataclass(frozen=True)
class Explanation(Report):
    table: str
    day: date
    state: str
    why: str
    running: Mapping[str, str]
    code_now: str
    files: Sequence[str]
    builds: Sequence[ExplainedBuild]

    def as_json(self) -> Mapping[str, Any]:
        return vars(self) | {"builds": [build.as_json() for build in self.builds]}

    def lines(self) -> Iterator[Line]:
        yield Text(f"{self.table} {in_words(self.day)}: {self.state}", style="bold")
        if self.running:
            yield f"  {_words(self.running)} UTC"
        elif self.why:
            yield f"  {self.why}"
        for file in self.files:
            yield f"  delivered: {file}"
        for build in self.builds:
            yield from build.lines()
        if not self.builds:
            yield "  no build of this day is recorded"


def explain_day(workspace: Workspace, name: str, day_text: str) -> Explanation:
    """Explain one day of one table. Raises UsageError for an unknown table or day."""
    table, day = workspace.only_partition(name, day_text)
    partition = (table.name, day)
    source = table.source()
    step = running_steps(workspace.lake.root).get(partition)
    runs = {partition: step.run} if step else {}
    found = StatusReader(workspace, runs).read([partition])[partition]
    try:
        files = source.described(workspace.area, day) if source else []
    except SourceError as error:
        files = [str(error)]
    running = {}
    if step:
        since = f"{step.since:%Y-%m-%d %H:%M:%S}"
        running = {"run": step.run, "plan": step.plan, "since": since}
    return Explanation(
        *partition,
        found.state,
        found.why,
        running,
        table.version,
        files,
        _builds(workspace, {table.name: [day]}),
    )


def _builds(workspace: Workspace, wanted: Mapping[str, list[date]]) -> list[ExplainedBuild]:
    """Return the builds in live and in shadows, oldest first."""
    shadows = ledgers_of_shadows(workspace.lake.root)
    in_shadows = [build for ledger in shadows.values() for build in ledger.builds(wanted)]
    builds = [*workspace.lake.ledger.builds(wanted), *in_shadows]
    builds.sort(key=lambda build: build.at)
    return [
        ExplainedBuild(build, build in in_shadows, changed_since(builds[:n], build))
        for n, build in enumerate(builds)
    ]


def _words(request: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in request.items() if value)
