"""`backfill`: arguments in, exit code out. Each verb imports what it needs when it is called, so
that help is instant.
"""

import gc
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated

import typer

from backfill_assets.cli import exit_codes, guide, rebuild_verbs, release_verbs, shadow_verbs
from backfill_assets.cli.options import Json, Port, Target
from backfill_assets.cli.terminal import refuse_bytes

app = typer.Typer(
    no_args_is_help=True,
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
            "--version", callback=show_version, is_eager=True, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    """Rebuild the history of daily tables safely."""
    # A long ledger is a million values that live until the command ends; collecting garbage among
    # them takes a third of the time.
    gc.set_threshold(100_000)


@app.command()
def up(port: Port = 3000) -> None:
    """Run Dagster's webserver and daemon and the warm engine on this lake, until Ctrl-C."""
    from backfill_assets.cli.servers import run_up

    raise typer.Exit(run_up(port))


@app.command()
def down() -> None:
    """Stop the servers that `backfill up` runs on this home, and wait until they have ended."""
    from backfill_assets.cli.servers import down

    raise typer.Exit(down())


@app.command()
def demo(
    days: Annotated[
        str, typer.Option(help="Days of the sample, as A..B; all sixty if not given.")
    ] = "",
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Port of the Dagster UI; 3000 if not given, or a free one."
        ),
    ] = None,
    exit_: Annotated[
        bool,
        typer.Option("--exit", help="End when the days are built; code 0 only if every one is."),
    ] = False,
    story: Annotated[
        str,
        typer.Option(help="Instead: play a story in a new folder, step by step: publish or late."),
    ] = "",
) -> None:
    """Build the bundled sample's days in audited Delta tables, and show them in the UI."""
    if story:
        from backfill_assets.cli.story import run as play

        if days:
            raise typer.BadParameter("a story has days of its own; leave out --days")
        raise typer.Exit(play(story, port=port, exit_when_played=exit_))
    from backfill_assets.cli.servers import run_demo

    raise typer.Exit(run_demo(days=days, port=port, exit_when_built=exit_))


@app.command()
def status(
    partitions: Annotated[
        str,
        typer.Option(help="Days: A, A..B, A,B..C or `last 7`; the whole calendar if not given."),
    ] = "",
    target: Target = "",
    why: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="TABLE DAY", help="Explain one day of one table."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="End with 1 unless every day that is due is up to date.")
    ] = False,
    json_: Json = False,
) -> None:
    """Show the status of every day of every table, and why it is not up to date. Starts nothing,
    changes nothing.
    """
    if why:
        from backfill_assets.cli.status import run_explain as explain

        raise typer.Exit(explain(*why, as_json=json_))
    from backfill_assets.cli.status import run_status

    raise typer.Exit(run_status(partitions, target, check=check, as_json=json_))


app.add_typer(rebuild_verbs.app)
app.add_typer(shadow_verbs.app)
app.add_typer(release_verbs.app)
app.add_typer(guide.app)


@app.command()
def log(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="A table, under its present or a former name; or all."
        ),
    ] = "",
    day: Annotated[
        str,
        typer.Argument(
            metavar="DAY", help="Days: A, A..B or `last 7`; their builds are printed in full."
        ),
    ] = "",
    target: Target = "",
    plan: Annotated[str, typer.Option(help="Builds of one plan.")] = "",
    of_run: Annotated[
        str, typer.Option("--run", help="Builds of one run, by its id or the beginning of it.")
    ] = "",
    last: Annotated[
        int, typer.Option(min=0, help="Only this many runs, the latest ones; 0 for all.")
    ] = 0,
    json_: Annotated[
        bool, typer.Option("--json", help="Print JSON: every build with all its fields.")
    ] = False,
) -> None:
    """Show who rebuilt what, when, why, from which code and inputs, and in which commit. Reads only
    the lake.
    """
    from backfill_assets.cli.log import run

    raise typer.Exit(
        run(table, day, target=target, plan=plan, of_run=of_run, last=last, as_json=json_)
    )


@app.command()
def audit(
    partitions: Annotated[
        str,
        typer.Option(help="Days: A, A..B, A,B..C or `last 7`; the whole calendar if not given."),
    ] = "",
    target: Target = "",
    json_: Json = False,
) -> None:
    """Judge the days that are built by today's rules, as they stand. Computes and writes no rows."""
    from backfill_assets.cli.audit import run_audit

    raise typer.Exit(run_audit(partitions, target, as_json=json_))


@app.command()
def reconcile(
    repair: Annotated[
        bool, typer.Option("--repair", help="Complete the ledger, and Dagster's record.")
    ] = False,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore",
            help="Put days that somebody else wrote to back as they were accepted, from the log.",
        ),
    ] = False,
    json_: Json = False,
) -> None:
    """Show where the ledger, the tables and Dagster differ on what was built, and what to do. Only
    --restore changes rows.
    """
    from backfill_assets.cli.reconcile import run

    raise typer.Exit(run(repair=repair, restore=restore, as_json=json_))


@app.command()
def doctor(json_: Json = False) -> None:
    """Check settings, Java, jars, disk, memory, lake, landing area and servers; each problem with
    its remedy.
    """
    from backfill_assets.cli.doctor import run

    raise typer.Exit(run(as_json=json_))


def main() -> None:
    with exit_codes.exit_on_error():
        refuse_bytes()
        exit_codes.run(app)


def command() -> None:
    """`main` as a process, which ends without running interpreter shutdown.

    Arrow's threads sometimes abort a process that shuts down soon after it read a table, although
    everything was done and printed (apache/arrow issues 34314, 39862).
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
