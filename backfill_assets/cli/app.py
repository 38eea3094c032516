"""`backfill`: assembles the commands, which live in one module per group of the help.

Each command imports its verb when it is called, so that help is instant.
"""

import gc
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.main import get_command

from backfill_assets.cli import (
    exit_codes,
    guide,
    inspect,
    maintain,
    publish,
    rebuild,
    servers,
)
from backfill_assets.cli.terminal import refuse_bytes

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Rebuild the history of daily tables safely.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(asked: bool) -> None:
    if asked:
        print(f"backfill-assets {version('backfill-assets')}")
        raise typer.Exit


@app.callback()
def backfill(
    version_: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Rebuild the history of daily tables safely."""
    # A long ledger is a million values that live until the command ends. Garbage collection among
    # them takes a third of the time.
    gc.set_threshold(100_000)


for panel, group in (
    ("Inspect", inspect),
    ("Rebuild", rebuild),
    ("Publish", publish),
    ("Maintain", maintain),
    ("Servers", servers),
    (None, guide),
):
    app.add_typer(group.app)
    for each in group.app.registered_commands:
        each.rich_help_panel = each.rich_help_panel or panel


def main() -> None:
    with exit_codes.exit_on_error():
        refuse_bytes()
        exit_codes.run_commands(command_line())


def command_line() -> Any:
    """Return the commands as Typer runs them. In their help, a flag has no type."""
    commands: Any = get_command(app)
    for each in [commands, *commands.commands.values()]:
        for option in each.params:
            if getattr(option, "is_flag", False):
                option.metavar = ""
    return commands


def command() -> None:
    """Run `main` as a process that ends without interpreter shutdown.

    Arrow's threads sometimes abort a process that shuts down soon after it read a table, even if
    all work is done (apache/arrow issues 34314, 39862).
    """
    code: int | str | None = exit_codes.DONE
    try:
        main()
    except SystemExit as end:
        code = end.code
    with suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(
        code if isinstance(code, int) else exit_codes.DONE if code is None else exit_codes.PARTIAL
    )


if __name__ == "__main__":
    command()
