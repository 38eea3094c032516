"""How a command ends: it prints its report, for people or as JSON, and exits with a code."""

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

import typer

from backfill_assets.cli import exit_codes
from backfill_assets.cli.terminal import terminal
from backfill_assets.errors import RefusedByGuard
from backfill_assets.no_day import in_words, values_in_words
from backfill_assets.settings import read_settings

if TYPE_CHECKING:
    from backfill_assets.dagster_client.client import Dagster
    from backfill_assets.lake.lake import Lake
    from backfill_assets.verbs.report import Line, Report
    from backfill_assets.workspace import Workspace


class Output:
    """Prints the report of a command: lines for people, or one JSON object for programs."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        # Notes of a running command must not mix with JSON.
        self.notes = terminal(stderr=as_json)

    def end(self, report: "Report", code: int | None = None) -> NoReturn:
        """Print the report, and exit. Without `code`, the code is 0 for a complete report, else 1.

        The JSON contains the code.
        """
        if code is None:
            code = exit_codes.DONE if report.is_complete else exit_codes.PARTIAL
        if self.as_json:
            values = json.loads(json.dumps({**report.as_json(), "exit_code": code}, default=str))
            print(json.dumps(values_in_words(values)))
        self.preview(report.lines())
        raise typer.Exit(code)

    def preview(self, lines: "Iterable[Line]") -> None:
        """Print lines. With --json, only the report is printed."""
        if not self.as_json:
            console = terminal()
            for line in lines:
                console.print(in_words(line) if isinstance(line, str) else line)

    def note(self, text: str) -> None:
        self.notes.print(in_words(text))

    def confirm(
        self, question: str, *, unchanged: str, next_step: str = "", default: bool = False
    ) -> None:
        """Ask, and exit with 1 if the answer is no.

        Raises RefusedByGuard if there is no terminal to ask on. With --yes, the question is
        skipped.
        """
        if self.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            where = "--json asks no question" if self.as_json else "there is no terminal to ask on"
            raise RefusedByGuard(
                f'"{question}" needs an answer, and {where}.',
                unchanged=unchanged,
                next_step=" ".join(filter(None, ("Add --yes to answer yes.", next_step))),
            )
        if not typer.confirm(question, default=default):
            self.note(" ".join(filter(None, (unchanged, next_step))))
            raise typer.Exit(exit_codes.PARTIAL)


def workspace_of_command(*, only_reading: bool = False) -> "Workspace":
    """Return the workspace of the folder in which the command was typed.

    The project is imported when a command needs it, so that help is instant.
    """
    from backfill_assets.verbs.materialized import asking_dagster
    from backfill_assets.workspace import open_workspace

    return asking_dagster(open_workspace(only_reading=only_reading))


def lake_of_command() -> "Lake":
    """Return the lake of the settings. The project is not imported."""
    from backfill_assets.lake.lake import Lake

    return Lake(read_settings().lake)


def dagster_of_command(workspace: "Workspace") -> "Dagster":
    """Return the webserver of a workspace, as `dagster_of` does."""
    from backfill_assets.servers.home import dagster_of

    return dagster_of(workspace.settings)


def workspace_of_records() -> "Workspace":
    """Return the workspace of a command that shows records.

    If the project cannot be imported, it has no tables, and stderr says why.
    """
    from backfill_assets.workspace import open_records

    workspace, not_imported = open_records()
    if not_imported:
        terminal(stderr=True).print(f"{not_imported}\nThe records are shown without it.")
    return workspace
