"""The verbs of releases and of what is kept for them: releases, release, switch, export, maintain;
and diff, reproduce.
"""

from pathlib import Path
from typing import Annotated

import typer

from backfill_assets.cli.options import Json

app = typer.Typer()
Number = Annotated[
    int | None,
    typer.Option("--release", min=1, help="A release's number; the channel's if not given."),
]


@app.command()
def releases(
    number: Annotated[
        int | None,
        typer.Argument(metavar="N", min=1, help="A release's number, to show all of it."),
    ] = None,
    json_: Json = False,
) -> None:
    """List the releases of this lake, or show one: its tables and versions, channels, who, when and
    why.
    """
    from backfill_assets.cli.releases import run_releases

    raise typer.Exit(run_releases(number, as_json=json_))


@app.command()
def release(
    reason: Annotated[
        str, typer.Option(help="Why live is released now, in spite of days that failed.")
    ],
    json_: Json = False,
) -> None:
    """Release live as it stands, in spite of failed days and open plans; refused while steps are
    running.
    """
    from backfill_assets.cli.status import run_release

    raise typer.Exit(run_release(reason, as_json=json_))


@app.command()
def switch(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table that readers name.")],
    to: Annotated[
        str, typer.Option(help="The table whose rows they get; the same one to switch back.")
    ],
    channel: Annotated[
        str, typer.Option(help="Whose readers get it: stable, candidate.")
    ] = "stable",
    reason: Annotated[str, typer.Option(help="Why; kept in the release.")] = "",
    allow_breaking: Annotated[
        bool, typer.Option("--allow-breaking", help="Although readers lose columns or days by it.")
    ] = False,
    json_: Json = False,
) -> None:
    """Give readers of a table's name another table, such as a new version of it, in one release.
    Both are built as before.
    """
    from backfill_assets.cli.releases import run_switch
    from backfill_assets.publish.switch import Switch

    raise typer.Exit(
        run_switch(
            Switch(table, to, channel), reason=reason, allow_breaking=allow_breaking, as_json=json_
        )
    )


@app.command()
def export(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="One table.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write: .parquet or .csv.")
    ],
    partitions: Annotated[
        str, typer.Option(help="Days: A, A..B, A,B..C or `last 7`; every day if not given.")
    ] = "",
    number: Number = None,
    channel: Annotated[
        str, typer.Option(help="Whose release is read, if none is named: stable, candidate.")
    ] = "stable",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if there is one.")
    ] = False,
    json_: Json = False,
) -> None:
    """Write the rows of a released table to a Parquet or CSV file, whole or not at all."""
    from backfill_assets.cli.releases import run_export

    raise typer.Exit(
        run_export(
            table,
            file,
            partitions,
            number=number,
            channel=channel,
            overwrite=overwrite,
            as_json=json_,
        )
    )


@app.command()
def reproduce(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="One table.")],
    day: Annotated[str, typer.Argument(metavar="DAY", help="One day.")],
    release: Annotated[
        int | None,
        typer.Option(min=1, help="A release's number: the build whose rows its readers get."),
    ] = None,
    json_: Json = False,
) -> None:
    """Build a day again from its recorded code and inputs, and compare: the same, or what differs,
    or what is gone.

    Nothing is written.
    """
    from backfill_assets.cli.audit import run_reproduce

    raise typer.Exit(run_reproduce(table, day, release, as_json=json_))


@app.command()
def maintain(
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it; without it, nothing is changed.")
    ] = False,
    table: Annotated[
        str, typer.Option(help="One table; then no release is retired. All if not given.")
    ] = "",
    json_: Json = False,
) -> None:
    """Compact days of many small files, retire old releases, remove files that nobody can need. A
    dry run without --apply.
    """
    from backfill_assets.cli.lake import run_maintain

    raise typer.Exit(run_maintain(table, apply=apply, as_json=json_))


@app.command()
def diff(
    first: Annotated[
        str,
        typer.Argument(
            metavar="PLAN|TABLE|RELEASE",
            help=(
                "A plan that was run, a table, or a release; if not given, the only plan that is in"
                " a shadow."
            ),
        ),
    ] = "",
    second: Annotated[
        str,
        typer.Argument(
            metavar="DAY|TABLE|RELEASE",
            help="The table's days, or the table or release that is compared with the first.",
        ),
    ] = "",
    table: Annotated[
        str, typer.Option(help="Of a plan or releases only these tables, by names or patterns.")
    ] = "",
    days: Annotated[
        str,
        typer.Option(help="Of a plan or releases only these days: A, A..B, A,B..C or `last 7`."),
    ] = "",
    html: Annotated[
        Path | None, typer.Option(help="Write it to this .html file too, as one page.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="End with 1 if anything differs.")] = False,
    json_: Json = False,
) -> None:
    """Show which rows differ: before and after a plan, a day before its last build and after it, in
    two tables or releases.

    Rows added, removed and changed by key, per day and column, with examples. Reads the lake, and
    keeps the answer in it.
    """
    from backfill_assets.cli.publish import run_diff
    from backfill_assets.diff.sides import DiffRequest

    raise typer.Exit(
        run_diff(DiffRequest(first, second, table, days), html=html, check=check, as_json=json_)
    )
