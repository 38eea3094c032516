"""The story `late`: a source that is late, republishes a day and delivers half a file; each is found, explained, and rebuilt or
refused. The files are case reports as they were published."""

from backfill_assets.cli.story_steps import Arrival, Command, Story
from backfill_assets.datasets.case_reports import sample

FIRST, LAST, REPUBLISHED, CUT = "2020-03-08", "2020-03-14", "2020-03-13", "2020-03-12"
DAYS = f"{FIRST}..{LAST}"
# Enough of a report's lines to look whole.
KEPT_LINES = 40


def arrival(says: str, day: str, version: int = 0, lines: int | None = None) -> Arrival:
    """The report of a day arrives as it was published for the first time, or later; or its first `lines` only."""
    published = [each for each in sample.versions() if str(each.day) == day]
    return Arrival(says, str(published[version].target), published[version].path, lines)


LATE = Story(
    name="late",
    project=sample.__package__ or "",
    opening="The story of a source that misbehaves. A file comes late, a day is published again, and a file is cut short.",
    settings={"BACKFILL_FIRST_DAY": FIRST, "BACKFILL_LAST_DAY": LAST},
    steps=(
        *(arrival("The first files of the week arrive, one a day." if n == 0 else "", f"2020-03-{8 + n:02}") for n in range(6)),
        Command("The days that have arrived are built.", f"backfill run --partitions {FIRST}..2020-03-13 --canary 0 --yes"),
        Command("One day of the week has no file yet.", "backfill status"),
        arrival("It comes, late.", LAST),
        Command(
            "What is missing is built; nothing else is touched.",
            f"backfill run --partitions {DAYS} --only missing --into live --yes",
        ),
        arrival("Four hours after its first report, a day is published again.", REPUBLISHED, version=7),
        Command(
            "Its own rows are outdated, and why is said. What is made from them follows once they are built anew.",
            f"backfill status --why raw/case_reports {REPUBLISHED}",
        ),
        Command(
            "The day is rebuilt, with the days of other tables that read it.",
            f"backfill run --partitions {DAYS} --only outdated --downstream --into live --yes",
        ),
        Command("Which rows the new report has changed.", f"backfill diff staging/case_counts {REPUBLISHED}"),
        arrival("A file is written over by its own first lines: every line of it is fine.", CUT, lines=KEPT_LINES),
        Command(
            "It has far fewer rows than the day was built from: it is refused, with the figures.",
            f"backfill run --partitions {CUT} --target raw/case_reports --into live --yes",
            code=1,
        ),
        Command("The rows of the day are those of before, and status names what is wrong with its file.", "backfill status"),
        arrival("The whole file is delivered again.", CUT),
        Command("Everything is up to date: nothing has to be built.", "backfill status --check"),
        Command("What was built, when and why.", "backfill log --target raw/case_reports"),
    ),
)
