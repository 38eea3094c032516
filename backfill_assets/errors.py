"""What can go wrong, and who has to act.

BackfillError
├── UsageError           the request: change it
│   ├── SettingsError    a setting: change it
│   │   └── ProjectError the project's code: correct it
│   └── NothingToBuild   nothing: all that was asked for is up to date
├── Guarded              a guard set for this lake: change the request, or say that it is meant
├── SourceError          the delivery: mend it, then rebuild the day
│   └── NotDelivered     there is none
│       ├── StillWritten it is not complete yet, or its server does not answer: wait
│       └── Awaited      a service has not given it yet: a run that builds the day asks
├── Conflict             someone else wrote meanwhile: run again
│   └── InputsChanged    what was read is not what stands there now: the step computes again by itself
├── TableUnreadable      a table in the lake: restore it, or rebuild it
├── NotRecorded          the disk or store of the lake: rows were committed and not recorded; mend it, then run again
└── ServiceUnavailable   the server, the engine or the machine: start or mend it, then run again
    └── AnswerLost       asked, and no answer came: it may have been done

A message says what happened, what was left as it was, and what to do next.

Names in a sentence: the first of them, and how many more there are.

The name that was probably meant where another one was typed.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class BackfillError(Exception):
    """Something the user can act on; shown as its message, never as a stack trace."""


class UsageError(BackfillError):
    """The request cannot be carried out as asked; nothing was started."""


class SettingsError(UsageError):
    """A setting has a value that is not allowed; nothing was started."""


class ProjectError(SettingsError):
    """The project cannot be imported; nothing was started. `place`: the file and the line that
    raised, if it is known.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class NothingToBuild(UsageError):
    """Everything asked for is up to date; nothing was planned or started."""


class Guarded(BackfillError):
    """A guard refuses what was asked for; nothing was started."""


class SourceError(BackfillError):
    """A day's delivery is missing, incomplete or cannot be read; the day's earlier version stays."""


class NotDelivered(SourceError):
    """Nothing was delivered for a day; the day's earlier version stays."""


class StillWritten(NotDelivered):
    """A day's delivery is not complete yet, or cannot be asked for now; the day's earlier version
    stays.
    """


class Awaited(NotDelivered):
    """A service was not asked for a day yet, or has not given it; the day's earlier version stays."""


class Conflict(BackfillError):
    """Another writer committed to the same days meanwhile; nothing was written."""


class InputsChanged(Conflict):
    """An input was built again after it was read; nothing was written."""


class TableUnreadable(BackfillError):
    """The Delta log of a table cannot be read; nothing was written to it."""


class NotRecorded(BackfillError):
    """Rows were committed, and their builds could not be written to the ledger; the next run brings
    them in.
    """


class ServiceUnavailable(BackfillError):
    """Something this needs is not running or not installed."""


class AnswerLost(ServiceUnavailable):
    """A request was sent and its answer never came: whether it was carried out is not known."""


NAMED = 3


def named(names: Sequence[str], most: int = NAMED) -> str:
    """`a, b, c and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The one of `known` that is most like `name`; "" if none is."""
    return next(iter(get_close_matches(name, sorted(known), n=1)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question, as a sentence that follows another; "" if no name is like this one."""
    meant = nearest(name, known)
    return f" Did you mean {meant}?" if meant else ""
