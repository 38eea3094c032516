"""The commands that look after a lake: alerts, reconcile, maintain, backups, reproduce."""

from dataclasses import MISSING, replace
from typing import TYPE_CHECKING

import typer

from backfill_assets.cli import exit_codes
from backfill_assets.cli.options import (
    TableArgument,
    either,
    table_and_days,
    with_flags,
)
from backfill_assets.cli.output import Output, dagster_of_command, workspace_of_command
from backfill_assets.plan.request import argument, option
from backfill_assets.user import user_name
from backfill_assets.verbs.options import REPRODUCED_RELEASE, MaintainOptions, ReproduceOptions

if TYPE_CHECKING:
    from backfill_assets.verbs.reconcile import ReconcileReport

app = typer.Typer()


@app.command()
@with_flags
def alerts(
    output: Output,
    send: bool = option(False, "Send what is new, changed or over, as the sensor does."),
    test: bool = option(False, "Send a test message to each URL of BACKFILL_ALERTS."),
    check: bool = option(False, "Exit 1 if an incident is listed, apart from plans that are done."),
) -> None:
    """List what needs attention: since when, who is affected, and what to type.

    Changes no table. The sensor backfill_alerts sends it to the URLs of BACKFILL_ALERTS.
    """
    from backfill_assets.verbs.alerts import list_alerts, send_alerts

    workspace = workspace_of_command(only_reading=True)
    if send or test:
        output.end(send_alerts(workspace, is_test=test))
    output.end(list_alerts(workspace), None if check else exit_codes.DONE)


@app.command()
@with_flags
def reconcile(
    output: Output,
    repair: bool = option(
        False, "Complete the ledger and Dagster's record, and move broken files aside."
    ),
    restore: bool = option(
        False, "Restore days that others wrote to, as they were accepted, from the log."
    ),
) -> None:
    """Show where the ledger, the tables and Dagster's record differ, and what to do.

    --repair also finishes an interrupted publication or rollback. Only --restore changes rows that
    others wrote.
    """
    from backfill_assets.verbs.reconcile import reconcile as compare_records

    workspace = workspace_of_command(only_reading=not (repair or restore))
    dagster = dagster_of_command(workspace)
    who = user_name()
    report = compare_records(workspace, dagster, repair=repair, restore=restore, who=who)
    output.end(report, code_of(report))


def code_of(report: "ReconcileReport") -> int:
    """Return 0 if all records agree, 1 if they differ, 3 if Dagster's record is unknown."""
    if not report.is_agreed:
        return exit_codes.PARTIAL
    return exit_codes.DONE if report.is_compared else exit_codes.UNAVAILABLE


@app.command()
@with_flags
def maintain(options: MaintainOptions, output: Output, table: TableArgument = "") -> None:
    """Compact small files, retire old releases, remove files that nothing needs.

    Without --apply, this is a dry run.
    """
    from backfill_assets.lake.lake import Lake
    from backfill_assets.rebuild.launch import utc_now
    from backfill_assets.settings import read_settings
    from backfill_assets.verbs.maintain import maintain_lake

    options = replace(options, target=either(table, options.target, "--target"))
    settings = read_settings()
    report = maintain_lake(
        Lake(settings.lake), settings.rollback_days, options, who=user_name(), now=utc_now()
    )
    output.end(report)


@app.command()
@with_flags
def backup(
    output: Output,
    place: str = argument(MISSING, "A folder, or the address of a store.", "DEST"),
) -> None:
    """Copy the lake as it is at one moment. Runs and readers go on.

    Another backup to the same place copies only new files.
    """
    from backfill_assets.verbs.backup import back_up_lake

    output.end(back_up_lake(place))


@app.command()
@with_flags
def restore(
    output: Output,
    place: str = argument(MISSING, "The place of the backups.", "SRC"),
    backup: int = option(0, "A backup's number; 0: the newest."),
) -> None:
    """Restore a lake from a backup. BACKFILL_LAKE must name an empty place."""
    from backfill_assets.verbs.backup import restore_lake

    output.end(restore_lake(place, backup, who=user_name()))


@app.command()
@with_flags
def reproduce(
    output: Output,
    table: str = argument("", "One table.", "TABLE"),
    day: str = argument("", "One day.", "DAY"),
    partitions: str = option("", "The same as DAY."),
    target: str = option("", "The same as TABLE."),
    release: int | None = option(None, REPRODUCED_RELEASE, least=1),
) -> None:
    """Build a day again from its recorded code and inputs, and compare the rows.

    Nothing is written. The exit code is 0 if the day comes out the same, 1 if it differs, and 4 if
    it was not rebuilt.
    """
    from backfill_assets.verbs.audit import reproduce_on_server

    table, day = table_and_days(table, day, target=target, partitions=partitions)
    workspace = workspace_of_command(only_reading=True)
    note = Output(as_json=True).note
    options = ReproduceOptions(target=table, partitions=day, release=release)
    report = reproduce_on_server(workspace, options, who=user_name(), note=note)
    output.end(report, None if report.is_rebuilt else exit_codes.STOPPED)
