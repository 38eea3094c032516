"""The errors of this package, and who must act on each.

BackfillError
├── UsageError              the request: change it
│   ├── SettingsError       a setting: change it
│   │   └── ProjectError    the project's code: correct it
│   └── NothingToBuild      nothing: everything requested is up to date
├── RefusedByGuard          a guard of this lake: change the request, or confirm it
├── SourceError             the delivery: fix it, then rebuild the day
│   └── NotDelivered        nothing was delivered
│       ├── IncompleteDelivery  not complete yet, or its server does not answer: wait
│       └── NotFetchedYet       a service was not asked yet: a run that builds the day asks it
├── Conflict                another writer was faster: run again
│   └── InputsChanged       an input or the code changed meanwhile: the step computes again
├── TableUnreadable         a table in the lake: restore it, or rebuild it
├── NotRecorded             the lake's disk or store: fix it, then run again
└── ServiceUnavailable      the server, the engine or the machine: start or fix it, then run again
    └── AnswerLost          a request without an answer: check whether it was done

An error has three facts as attributes, each a short sentence:

    raise UsageError(
        "Plan 4f2 was not found.",
        unchanged=NOTHING_CHANGED,
        next_step="`backfill list` shows the plans.",
    )

They are `what` happened, what was left `unchanged`, and the `next_step` to type. `str(error)` joins
them, and `--json` has each of them by name. Code that needs one fact reads the attribute and never
parses the text. The error of a single day may have only `what`.
"""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from backfill_assets.no_day import in_words

NOTHING_CHANGED = "Nothing was changed."
NOTHING_COMMITTED = "Nothing was committed."
NOTHING_COMPUTED = "Nothing was computed."


def error_text(what: str, unchanged: str = "", next_step: str = "") -> str:
    """The three sentences of an error as one text.

    A list of examples ends with a line break, so that the rest begins on a new line.
    """
    rest = " ".join(sentence for sentence in (unchanged, next_step) if sentence)
    if not rest:
        return what
    return f"{what}\n{rest}" if "\n" in what else f"{what} {rest}"


class BackfillError(Exception):
    """An error that the user can act on. Users see a message, never a stack trace."""

    def __init__(self, what: str, *, unchanged: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = in_words(what)
        self.unchanged = unchanged
        self.next_step = in_words(next_step)

    def __str__(self) -> str:
        return error_text(self.what, self.unchanged, self.next_step)

    def sentences_by_name(self) -> dict[str, str]:
        """The three sentences by name."""
        return {"what": self.what, "unchanged": self.unchanged, "next_step": self.next_step}


class UsageError(BackfillError):
    """The request cannot be carried out as it is. `unchanged` says what stayed as it was."""


class SettingsError(UsageError):
    """A setting has a value that is not allowed. Nothing was started."""


class ProjectError(SettingsError):
    """The project cannot be imported. Nothing was started.

    `place` is the file and line that raised the error, if they were found.
    """

    def __init__(
        self, what: str, place: str = "", *, unchanged: str = "", next_step: str = ""
    ) -> None:
        super().__init__(what, unchanged=unchanged, next_step=next_step)
        self.place = place


class NothingToBuild(UsageError):
    """Everything requested is up to date. Nothing was planned or started."""


class RefusedByGuard(BackfillError):
    """A guard refuses the request. `unchanged` says what stayed as it was."""


class SourceError(BackfillError):
    """A day's delivery is missing, incomplete or unreadable. The day's earlier version stays."""


class NotDelivered(SourceError):
    """Nothing was delivered for a day. The day's earlier version stays."""


class IncompleteDelivery(NotDelivered):
    """A delivery is not complete yet, or its server does not answer now.

    The day's earlier version stays.
    """


class NotFetchedYet(NotDelivered):
    """A service was not asked for a day yet, or has no answer yet.

    The day's earlier version stays.
    """


class Conflict(BackfillError):
    """Another writer committed to the same days first. Nothing was written."""


class InputsChanged(Conflict):
    """An input was built again, or a day by newer code, meanwhile. Nothing was written."""


class TableUnreadable(BackfillError):
    """The Delta log of a table cannot be read. Nothing was written to it."""


class NotAsWritten(BackfillError):
    """The commit of an act differs from its decision. The act has not ended."""


class BrokenFile(TableUnreadable):
    """A file of a table or of a record is empty, cut off or missing."""


class NotRecorded(BackfillError):
    """Rows were committed, but their builds were not written to the ledger.

    The next run records them.
    """


class ServiceUnavailable(BackfillError):
    """A required service is not running or not installed."""


class AnswerLost(ServiceUnavailable):
    """A request was sent, but no answer came. It may have been carried out."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes."""
    while error:
        yield error
        error = error.__cause__ or error.__context__


NAMES_SHOWN = 3


def named(names: Sequence[str], most: int = NAMES_SHOWN) -> str:
    """The first names, and the number of further names: `a, b, c and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def first_of(lines: Sequence[str], most: int) -> list[str]:
    """The first lines, and the number of further lines: `and 2 more`."""
    more = [f"and {len(lines) - most} more"] if len(lines) > most else []
    return [*lines[:most], *more]


def first_line(text: object, longest: int | None = None) -> str:
    """The first line of a message or of an error, cut if it is long."""
    return str(text).strip().partition("\n")[0][:longest]


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 day`, `1,200 days`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def nearest(name: str, candidates: Iterable[str]) -> str:
    """The candidate most similar to `name`, or "" if none is similar."""
    return next(iter(get_close_matches(name, sorted(candidates), n=1)), "")


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A question to append to a sentence, or "" if no candidate is similar."""
    candidate = nearest(name, candidates)
    return f" Did you mean {candidate}?" if candidate else ""
