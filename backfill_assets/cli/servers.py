"""The commands that begin a project, and run servers: demo, init, up, down, reload."""

import re
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Literal

import typer

from backfill_assets.cli.options import with_flags
from backfill_assets.cli.output import Output
from backfill_assets.plan.request import argument, option
from backfill_assets.settings import LOOPBACK

app = typer.Typer()


@app.command()
@with_flags
def demo(
    partitions: str = option("", "Days of the sample, as A..B. Default: all sixty."),
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Port of the Dagster UI. Default: 3000, or else a free one."
        ),
    ] = None,
    exit_: bool = option(False, "Exit once the days are built; code 0 only if all are."),
    story: str = option(
        "", "Instead: show a story in a new folder, step by step: publish, late or outage."
    ),
    auto: bool = option(False, "Play the story without asking what to type."),
) -> None:
    """Build the bundled sample's days in audited Delta tables, and show them in the UI."""
    if auto and not story:
        raise typer.BadParameter("--auto plays a story; name it with --story")
    if not story:
        from backfill_assets.cli.demo import run_demo

        raise typer.Exit(run_demo(days=partitions, port=port, exits=exit_))
    if partitions:
        raise typer.BadParameter("a story has days of its own; leave out --partitions")
    from backfill_assets.cli.story import run_story

    raise typer.Exit(run_story(story, port=port, exits=exit_, auto=auto))


@app.command(rich_help_panel="Commands")  # as `guide`
@with_flags
def init(
    name: str = argument(MISSING, "A new folder, and the Python package in it.", "NAME"),
    from_delta: str = option("", "The folder or address of a Delta table to begin with."),
    from_csv: Annotated[
        Path | None, typer.Option(help="A CSV file to begin with. It is copied.")
    ] = None,
) -> None:
    """Lay out a new project that runs: two tables, a test and settings.

    Columns, days, key and dialect are guessed from the data, and marked. Without data, the project
    has a few rows of its own.
    """
    from backfill_assets.verbs.init import init as laid_out

    if from_delta and from_csv:
        raise typer.BadParameter("a project begins with --from-delta or --from-csv, not with both")
    Output(False).end(laid_out(name, Path.cwd(), from_delta, from_csv))


@app.command()
@with_flags
def up(
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port of the Dagster UI: 3000. With --only: code 4000, engine 15002.",
        ),
    ] = None,
    only: Literal["webserver", "daemon", "code", "engine"] | None = option(
        None, "Run one server here. The others run on other hosts, or as services."
    ),
    host: str = option(LOOPBACK, "The address to listen at: 0.0.0.0 for all."),
    path_prefix: str = option("", "The path of the Dagster UI behind a proxy, such as /dagster."),
) -> None:
    """Run Dagster's webserver and daemon and the warm engine on this lake, until Ctrl-C."""
    from backfill_assets.cli.demo import run_up
    from backfill_assets.servers.parts import USUAL_PORTS, Part, ServerPlace

    if only == "daemon" and (port or host != LOOPBACK):
        raise typer.BadParameter("the daemon does not listen; leave out --port and --host")
    if path_prefix and only not in (None, "webserver"):
        raise typer.BadParameter("only the webserver has pages; leave out --path-prefix")
    if not re.fullmatch(r"(/[\w.~-]+)*", path_prefix):
        raise typer.BadParameter("--path-prefix is written like /dagster or /data/dagster")
    part = Part(only) if only else None
    place = ServerPlace(port or USUAL_PORTS[part or Part.WEBSERVER], host, path_prefix, part)
    raise typer.Exit(run_up(place))


@app.command()
@with_flags
def deploy(
    kind: Literal["systemd", "compose", "helm-values", "dockerfile"] = argument(
        MISSING, "What runs the servers.", "KIND"
    ),
) -> None:
    """Print the files that run the servers under systemd, in containers or in Kubernetes."""
    from backfill_assets.cli.deploy import deployed

    print(deployed(kind), end="")


@app.command()
def down() -> None:
    """Stop the servers that `backfill up` runs for this BACKFILL_HOME, and wait for their end."""
    from backfill_assets.cli.demo import stop_servers

    raise typer.Exit(stop_servers())


@app.command()
def reload() -> None:
    """Reload the project's code in the running servers, after an edit. Rebuilds nothing."""
    from backfill_assets.cli.demo import run_reload

    raise typer.Exit(run_reload())
