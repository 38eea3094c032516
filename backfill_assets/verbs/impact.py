"""Show what an edit makes outdated: in a terminal, or as a comment on a pull request.

There are counts of rows, and no rows, because many people may read a comment. Of a day that was not
built, the first line of its message is shown.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from backfill_assets.calendar import ranges
from backfill_assets.errors import NOTHING_CHANGED, UsageError, counted, first_line, named
from backfill_assets.impact.declared import read_edit
from backfill_assets.impact.impact import Impact, find_impact
from backfill_assets.settings import BUNDLED, project_at
from backfill_assets.verbs.diff import SUMMARY_COLUMNS, summary_row
from backfill_assets.verbs.report import Line, Report, TableContents, markdown_table, table_of
from backfill_assets.workspace import Workspace

_READERS = "Made from them"


@dataclass(frozen=True)
class ImpactReport(Report):
    """The effect of an edit of a project.

    `compared` and `failed` are of the canary: the tables compared with live (None: no canary), and
    the days that were not built.
    """

    project: str
    base: str
    commit: str
    is_dirty: bool
    impact: Impact
    compared: Sequence[tuple[str, ...]] | None
    failed: Sequence[tuple[str, ...]]

    def sentences(self) -> Iterator[str]:
        """Yield the answer, what was compared, and what the canary built."""
        impact = self.impact
        tables = counted(len(impact.days), "table")
        days = counted(sum(map(len, impact.days.values())), "day")
        if not impact.days:
            yield "The edit makes no day outdated"
        elif impact.expected:
            yield f"{tables} and {days} need a build: {impact.expected.text()}"
        else:
            yield f"{tables} and up to {days} need a build: minutes are unknown without a lake"
        dirty = ", with uncommitted changes" if self.is_dirty else ""
        yield f"From {self.base} ({self.commit[:12]}) to the working tree{dirty}."
        if impact.earlier:
            yield f"Outdated without the edit: {counted(impact.earlier, 'day')}."
        if self.compared is not None:
            built = counted(len(self.compared), "table")
            failed = counted(len(self.failed), "day")
            yield (
                f"Canary: {built} compared with live; {failed} not built."
                if self.compared or self.failed
                else "Canary: nothing was built, because live has no day of an edited table."
            )

    def tables(self) -> Mapping[str, TableContents]:
        """The tables of the report with rows, by title."""
        which = {
            name: (str(len(days)), named(ranges(days).split(", ")))
            for name, days in self.impact.days.items()
        }
        edited = []
        for name, facts in self.impact.changes.items():
            # The hash of a version says no more than the other facts.
            shown = [fact for fact in facts if fact != "version" or len(facts) == 1]
            what = "; ".join(f"{fact} {facts[fact]}" for fact in shown)
            edited.append((name, what, *which.pop(name, ("0", ""))))
        readers = [(name, *days) for name, days in which.items()]
        tables = {
            "Edited": (("table", "what changed", "days", "which"), edited),
            "Canary, compared with live": (SUMMARY_COLUMNS, self.compared or ()),
            "Canary, not built": (("table", "day", "why"), self.failed),
            _READERS: (("table", "days", "which"), readers),
        }
        return {title: table for title, table in tables.items() if table[1]}

    def lines(self) -> Iterator[Line]:
        yield from self.sentences()
        for title, table in self.tables().items():
            yield table_of(*table, title=title)

    def markdown(self) -> str:
        """The text of a comment. Its first line finds the comment again, to update it."""
        heading, *notes = map(_escaped, self.sentences())
        parts = [f"<!-- backfill impact of {self.project} -->\n### {heading}", *notes]
        for title, (columns, rows) in self.tables().items():
            table = markdown_table(columns, [list(map(_escaped, row)) for row in rows])
            is_open = "" if title == _READERS else " open"
            parts.append(f"<details{is_open}><summary>{title}</summary>\n\n{table}\n\n</details>")
        return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """Escape the characters that Markdown or HTML would act on. No user is notified."""
    quiet = " ".join(text.replace("@", "@\u200b").split())
    return re.sub(r"[^\w\s.,:;()/+-]|_", lambda found: f"&#{ord(found[0])};", quiet)


def read_impact(workspace: Workspace, base: str, start: Path, canary: int) -> ImpactReport:
    """Compare the project around the folder `start` with a revision.

    With `canary`, this many of the newest built days of each edited table are built in a temporary
    folder, by a Spark session of this process. Raises UsageError for a project or a revision that
    cannot be compared, and if executors do not see that folder.
    """
    settings = workspace.settings
    if settings.project == BUNDLED:
        raise UsageError(
            "The bundled example is not edited.",
            unchanged=NOTHING_CHANGED,
            next_step="Type this in the folder of your project.",
        )
    spark = workspace.start_spark() if canary else None
    edit = read_edit(base, settings.project, project_at(start)[0])
    impact = find_impact(edit, workspace)
    report = partial(ImpactReport, settings.project, base, edit.commit, edit.is_dirty, impact)
    if not spark:
        return report(None, ())
    # Spark is loaded here, because other commands do without it.
    from backfill_assets.impact.canary import build_canary

    diff, failed = build_canary(workspace, [*impact.changes], canary, spark)
    rows = [(name, ranges([day]), first_line(why)) for (name, day), why in failed.items()]
    return report([summary_row(table) for table in diff.tables], rows)
