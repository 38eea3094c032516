"""`backfill`: arguments in, exit code out. What a verb needs is imported when it is asked for, so that help is instant."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from backfill_assets import cli_rebuild, exit_codes
from backfill_assets.arguments import Json, Port
from backfill_assets.errors import BackfillError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Rebuild the history of daily tables safely.",
)


@app.callback()
def backfill() -> None:
    """Rebuild the history of daily tables safely."""


@app.command()
def up(port: Port = 3000) -> None:
    """Run Dagster's webserver and daemon and the warm engine on this lake, until Ctrl-C."""
    from backfill_assets.commands.up import run

    raise typer.Exit(run(port))


@app.command()
def demo(
    days: Annotated[str, typer.Option(help="Days of the sample, as A..B; all sixty if not given.")] = "",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the Dagster UI; 3000 if not given, or a free one.")
    ] = None,
    exit_: Annotated[bool, typer.Option("--exit", help="End when the days are built; code 0 only if every one is.")] = False,
) -> None:
    """Build the bundled sample's days in audited Delta tables, and show them in the UI."""
    from backfill_assets.commands.demo import run

    raise typer.Exit(run(days=days, port=port, leave=exit_))


@app.command()
def status(
    partitions: Annotated[str, typer.Option(help="Days: A, A..B, A,B..C or `last 7`; the whole calendar if not given.")] = "",
    target: Annotated[str, typer.Option(help="Tables, separated by commas; all if not given.")] = "",
    why: Annotated[tuple[str, str] | None, typer.Option(metavar="TABLE DAY", help="Explain one day of one table.")] = None,
    json_: Json = False,
) -> None:
    """Tell of every day of every table whether it is up to date, and why not. Starts nothing, changes nothing."""
    if why:
        from backfill_assets.commands.explain import run as explain

        raise typer.Exit(explain(*why, as_json=json_))
    from backfill_assets.commands.status import run

    raise typer.Exit(run(partitions, target, as_json=json_))


app.add_typer(cli_rebuild.app)


@app.command()
def doctor() -> None:
    """Check what this machine lacks: Java, jars, disk, ports, settings, servers; each with its remedy."""
    from backfill_assets.commands.doctor import run

    raise typer.Exit(run())


@contextmanager
def one_line() -> Iterator[None]:
    """The one place that turns errors into a line on stderr and an exit code."""
    try:
        yield
    except BackfillError as error:
        print(f"backfill: {error}", file=sys.stderr)
        sys.exit(exit_codes.of_error(error))


def main() -> None:
    with one_line():
        app()


if __name__ == "__main__":
    main()
