"""The exit code of each command, and how errors are printed.

0 everything done, 1 partly done, 2 wrong usage, 3 a service or the disk cannot be used or nothing
could be launched, 4 stopped by a budget, the canary or a guard, or a check needs a decision.

With --detailed-exitcode, the codes are those of `terraform plan`: 2 if days need a build, 1 for
every error.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

from backfill_assets.cli.terminal import escaped_controls
from backfill_assets.errors import (
    NOTHING_CHANGED,
    BackfillError,
    RefusedByGuard,
    ServiceUnavailable,
    UsageError,
)

DONE = 0
PARTIAL = 1
WRONG_USAGE = 2
UNAVAILABLE = 3
STOPPED = 4
# Only with --detailed-exitcode.
CHANGES = 2

# How a command's work on a plan ended. A `refused` ending has launched something before; otherwise
# the refusal itself is the error.
OF_ENDING = {
    "done": DONE,
    "partial": PARTIAL,
    "cancelled": PARTIAL,
    "refused": PARTIAL,
    "stopped": STOPPED,
}


# How the checks of a plan ended. A publication is refused with the same code for an open decision.
OF_VERDICT = {"passed": DONE, "failed": PARTIAL, "needs a decision": STOPPED}


def of_error(error: BackfillError) -> int:
    if isinstance(error, UsageError):
        return WRONG_USAGE
    if isinstance(error, RefusedByGuard):
        return STOPPED
    return UNAVAILABLE if isinstance(error, ServiceUnavailable) else PARTIAL


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn an error into its message on stderr and an exit code. No other place does."""
    try:
        yield
    except BackfillError as error:
        _end(error, of_error(error))
    except BrokenPipeError:  # the reader of the output has closed the pipe
        sys.exit(DONE)
    except OSError as error:
        _end(_of_files(error), UNAVAILABLE)


def _of_files(error: OSError) -> BackfillError:
    """The error of a disk or of an object store, with its remedy."""
    # The libraries are loaded here, because `--help` does without them.
    from backfill_assets.lake.delta import one_line
    from backfill_assets.lake.object_store import STORE_REMEDY, store_reason

    place = f": {error.filename}" if error.filename else ""
    # The error of a library has no number, and lists its causes on further lines.
    what = f"{error.strerror}{place}" if error.strerror else one_line(error)
    remedy = (
        "Free some space, correct the permissions, or set BACKFILL_HOME or"
        " BACKFILL_LAKE to another place; see `backfill doctor`."
    )
    return BackfillError(
        f"{what}.",
        unchanged="Earlier work is kept.",
        next_step=STORE_REMEDY if store_reason(str(error)) else remedy,
    )


def run_commands(commands: Callable[..., Any]) -> NoReturn:
    """Run the typed command, or show the help if there is none.

    Raises UsageError for wrong arguments.
    """
    arguments = sys.argv[1:] or ["--help"]
    try:
        sys.exit(commands(arguments, prog_name="backfill", standalone_mode=False) or DONE)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        # An error about an option without a value does not know the command.
        command = context.command_path if context else " ".join(["backfill", *arguments[:1]])
        said = error.format_message().replace(": Value error, ", ": ")
        raise UsageError(
            said if said.endswith((".", "?")) else f"{said}.",
            unchanged=NOTHING_CHANGED,
            next_step=f"`{command} -h` shows what it takes.",
        ) from None
    except typer.Abort:
        sys.exit(PARTIAL)


def _end(error: BackfillError, code: int) -> NoReturn:
    """Print the error on stderr, with --json also its facts on stdout, and exit."""
    code = PARTIAL if "--detailed-exitcode" in sys.argv[1:] else code
    if "--json" in sys.argv[1:]:
        print(json.dumps({"error": str(error), **error.sentences_by_name(), "exit_code": code}))
    print(escaped_controls(f"backfill: {error}"), file=sys.stderr)
    sys.exit(code)
