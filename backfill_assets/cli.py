"""`backfill`: arguments in, exit code out. What a verb needs is imported when it is asked for, so that help is instant.

Exit codes: 0 everything done, 1 partly or not done, 2 wrong usage, 3 a service is missing or nothing could be launched,
4 stopped by a guard.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

from backfill_assets.errors import BackfillError, Guarded, ServiceUnavailable, UsageError

DONE, PARTIAL, WRONG_USAGE, UNAVAILABLE, STOPPED = 0, 1, 2, 3, 4

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Rebuild the history of daily tables safely.",
)

Port = Annotated[int, typer.Option(min=1, max=65535, help="Port of the Dagster UI.")]


@app.callback()
def backfill() -> None:
    """Rebuild the history of daily tables safely."""


@app.command()
def up(port: Port = 3000) -> None:
    """Run Dagster's webserver and daemon and the warm engine on this lake, until Ctrl-C."""
    from backfill_assets.commands.up import run

    _ends_with(run(port))


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

    _ends_with(run(days=days, port=port, leave=exit_))


@app.command()
def status(
    partitions: Annotated[str, typer.Option(help="Days: A, A..B, A,B..C or `last 7`; the whole calendar if not given.")] = "",
    target: Annotated[str, typer.Option(help="Tables, separated by commas; all if not given.")] = "",
    why: Annotated[tuple[str, str] | None, typer.Option(metavar="TABLE DAY", help="Explain one day of one table.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell of every day of every table whether it is up to date, and why not. Starts nothing, changes nothing."""
    if why:
        from backfill_assets.commands.explain import run as explain

        _ends_with(explain(*why, as_json=json_))
    from backfill_assets.commands.status import run

    _ends_with(run(partitions, target, as_json=json_))


@app.command()
def plan(
    partitions: Annotated[str, typer.Option(help="Days: A, A..B, A,B..C, `last 7`, or a file of them.")] = "",
    target: Annotated[str, typer.Option(help="Tables, separated by commas; all if not given.")] = "",
    only: Annotated[str, typer.Option(help="Days in these states only: missing, failed, outdated.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Days that are up to date too; with --only, just those.")] = False,
    upstream: Annotated[bool, typer.Option("--upstream", help="And what these days need and lack.")] = False,
    downstream: Annotated[bool, typer.Option("--downstream", help="And what is made from these days.")] = False,
    order: Annotated[Literal["asc", "desc"], typer.Option(help="Oldest days first, or newest.")] = "asc",
    days_per_run: Annotated[int | None, typer.Option(min=1, help="The most days launched together.")] = None,
    max_parallel: Annotated[int, typer.Option(min=1, help="The most chunks at work at once.")] = 1,
    write_mode: Annotated[
        Literal["overwrite", "merge"], typer.Option(help="Replace the days, or update them by key.")
    ] = "overwrite",
    canary: Annotated[int, typer.Option(min=0, help="So many days first, judged before the rest is started.")] = 2,
    budget: Annotated[str, typer.Option(help="Start nothing new after this: 30m, 2h.")] = "",
    spark_conf: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A Spark setting for this plan only.")] = None,
    reason: Annotated[str, typer.Option(help="Why; kept with every day that is built.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="It is meant, however many days it is.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell what a rebuild would build, why, in which order and how long it takes, and keep it as a plan. Starts nothing."""
    from backfill_assets.commands.flags import how
    from backfill_assets.commands.plan import run

    asked = how(
        force=force, order=order, days_per_run=days_per_run, max_parallel=max_parallel, write_mode=write_mode, canary=canary,
        budget=budget, spark_conf=spark_conf or [], reason=reason,
    )  # fmt: skip
    _ends_with(run(partitions, target, only=only, upstream=upstream, downstream=downstream, how=asked, yes=yes, as_json=json_))


@app.command()
def log(
    table: Annotated[str, typer.Argument(help="One table; all if not given. One that was renamed since, too.")] = "",
    day: Annotated[str, typer.Argument(help="Days: A, A..B, A,B..C or `last 7`; each build of them in full.")] = "",
    plan: Annotated[str, typer.Option(help="Builds of one plan.")] = "",
    of_run: Annotated[str, typer.Option("--run", help="Builds of one run; its first digits will do.")] = "",
    last: Annotated[int, typer.Option(min=0, help="The so many last runs; all if not given.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON: every build, with everything recorded of it.")] = False,
) -> None:
    """Tell who rebuilt what, when, why, from which code and inputs, and in which commit. Reads the lake alone."""
    from backfill_assets.commands.log import run

    _ends_with(run(table, day, plan=plan, of_run=of_run, last=last, as_json=json_))


@app.command()
def reconcile(
    repair: Annotated[bool, typer.Option("--repair", help="Mend the ledger from commits, and tell Dagster of days.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell where the ledger, the tables and Dagster differ on what was built, and what to do. Never touches rows."""
    from backfill_assets.commands.reconcile import run

    _ends_with(run(repair=repair, as_json=json_))


@app.command()
def doctor() -> None:
    """Check what this machine lacks: Java, jars, disk, ports, settings, servers; each with its remedy."""
    from backfill_assets.commands.doctor import run

    _ends_with(run())


def _ends_with(code: int) -> None:
    raise typer.Exit(code)


@contextmanager
def exit_codes() -> Iterator[None]:
    """The one place that turns errors into a line on stderr and an exit code."""
    try:
        yield
    except BackfillError as error:
        print(f"backfill: {error}", file=sys.stderr)
        sys.exit(code_of(error))


def code_of(error: BackfillError) -> int:
    if isinstance(error, UsageError):
        return WRONG_USAGE
    if isinstance(error, Guarded):
        return STOPPED
    return UNAVAILABLE if isinstance(error, ServiceUnavailable) else PARTIAL


def main() -> None:
    with exit_codes():
        app()


if __name__ == "__main__":
    main()
