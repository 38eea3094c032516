"""The commands that only show something, such as status, log, blame and impact."""

import sys
from dataclasses import MISSING
from enum import StrEnum
from pathlib import Path

import typer

from backfill_assets.cli import exit_codes
from backfill_assets.cli.options import (
    DaysArgument,
    Html,
    Page,
    Partitions,
    PlanId,
    Svg,
    TableArgument,
    Target,
    table_and_days,
    with_flags,
)
from backfill_assets.cli.output import Output, workspace_of_command, workspace_of_records
from backfill_assets.plan.request import DAYS, argument, option
from backfill_assets.verbs.options import DiffOptions

app = typer.Typer()


@app.command()
@with_flags
def status(
    output: Output,
    table: TableArgument = "",
    days: DaysArgument = "",
    partitions: Partitions = "",
    target: Target = "",
    why: bool = option(False, "Explain one day of one table."),
    check: bool = option(False, "Exit 1 unless every day that is due is up to date."),
    svg: Svg = None,
) -> None:
    """Show the status of every day of every table, and why a day is not up to date.

    Reads the lake and the landing area. Changes no table.
    """
    from backfill_assets.verbs.explain import explain_day
    from backfill_assets.verbs.status import read_status

    workspace = workspace_of_command(only_reading=True)
    table, days = table_and_days(table, days, target=target, partitions=partitions)
    if why:
        output.end(explain_day(workspace, table, days))
    report = read_status(workspace, days, table, svg)
    output.end(report, None if check else exit_codes.DONE)


@app.command()
@with_flags
def late(output: Output) -> None:
    """List the built days that late rows have made outdated, and what to type.

    Changes nothing.
    """
    from backfill_assets.verbs.late import find_late

    output.end(find_late(workspace_of_command(only_reading=True)))


@app.command()
@with_flags
def report(
    output: Output,
    file: Page,
    partitions: Partitions = "",
    rows: bool = option(False, "Also show examples of rows, and messages that may quote them."),
) -> None:
    """Write one page about the lake: days, plans, releases, checks and who did what.

    The page is one file, and needs no server. Changes no table.
    """
    from backfill_assets.verbs.lake_report import write_report

    workspace = workspace_of_command(only_reading=True)
    output.end(write_report(workspace, file, partitions, rows=rows))


@app.command()
@with_flags
def log(
    table: str = argument(
        "",
        "A table, under its present or a former name. Default: all.",
        "TABLE",
    ),
    days: str = argument("", f"{DAYS} Their builds are printed in full.", "DAYS"),
    partitions: Partitions = "",
    target: Target = "",
    plan: str = option("", "Only builds of this plan."),
    run_: str = option("", "Only builds of this run: its id, or the beginning of it."),
    last: int = option(0, "Only the latest runs, as many as this. 0 for all.", least=0),
    json_: bool = option(False, "Print JSON: every build with all its fields."),
) -> None:
    """Show who rebuilt what, when, why, from which code and inputs, and in which commit.

    Reads only the lake.
    """
    from backfill_assets.verbs.log import BuildFilter, read_log

    workspace = workspace_of_command(only_reading=True) if target else workspace_of_records()
    table, days = table_and_days(table, days, target=target, partitions=partitions)
    wanted = BuildFilter(plan=plan, run=run_, last=last)
    report = read_log(workspace, table, days, wanted, target=target, every_column=json_)
    Output(json_).end(report)


@app.command()
@with_flags
def blame(
    output: Output,
    table: str = argument(MISSING, "The table.", "TABLE"),
    day: str = argument(MISSING, "One day of it, YYYY-MM-DD.", "DAY"),
    key: list[str] = option(
        list,
        "A value of the key, for the rows that have it; repeat for more columns. A table without a"
        " key takes any column.",
        metavar="COLUMN=VALUE",
    ),
    column: str = option("", "Show only the changes of this column, without --key in all rows."),
) -> None:
    """Show which build, plan, commit and release first had a day's rows, a row or a value.

    Without --key, lists the commits that changed the day, newest first. With --key, shows what the
    rows were before, and what a single row was made from, back to the delivered file. Reads only.
    """
    from backfill_assets.verbs.blame import blame as blame_rows

    workspace = workspace_of_command(only_reading=True)
    output.end(blame_rows(workspace, table, day, key, column))


@app.command("list")
@with_flags
def list_(
    output: Output,
    all_: bool = option(False, "All plans. Default: the newest twenty."),
) -> None:
    """List the newest plans of this lake, and what was launched outside a plan."""
    from backfill_assets.servers.home import dagster_of
    from backfill_assets.settings import read_settings
    from backfill_assets.verbs.plan import list_plans

    settings = read_settings()
    output.end(list_plans(settings.lake, dagster_of(settings), every=all_))


@app.command()
@with_flags
def show(output: Output, plan_id: PlanId = "", svg: Svg = None) -> None:
    """Show a plan: its contents, its events and its progress."""
    from backfill_assets.plan.lifecycle import resolve_plan_id
    from backfill_assets.plan.store import Plans
    from backfill_assets.verbs.plan import show_plan
    from backfill_assets.workspace import open_records

    # Only the project says which state a day has.
    workspace, not_imported = (
        (workspace_of_command(only_reading=True), "") if svg else open_records()
    )
    plan_id = resolve_plan_id(plan_id, Plans(workspace.lake.root))
    output.end(show_plan(plan_id, workspace, not_imported, svg))


@app.command()
@with_flags
def diff(
    options: DiffOptions,
    output: Output,
    first: str = argument(
        "",
        "A plan that was run, a table, or a release. Default: the only plan in a shadow.",
        "PLAN|TABLE|RELEASE",
    ),
    second: str = argument(
        "",
        "A day of the table, or the table or release to compare with the first.",
        "DAY|TABLE|RELEASE",
    ),
    html: Html = None,
    check: bool = option(False, "Exit 1 if anything differs."),
) -> None:
    """Show which rows differ between two plans, builds, tables or releases.

    Compares before and after a plan, before and after a day's last build, two tables, or two
    releases. --target and --partitions limit a plan or releases.

    Shows rows added, removed and changed by key, per day and column, with examples. Reads the lake
    and saves the result there.
    """
    from backfill_assets.diff.sides import DiffRequest
    from backfill_assets.verbs.diff import diff_report

    request = DiffRequest(first, second, **vars(options))
    report = diff_report(request, workspace_of_command(), html)
    has_failed = check and report.diff.differs
    output.end(report, exit_codes.PARTIAL if has_failed else exit_codes.DONE)


@app.command()
@with_flags
def impact(
    output: Output,
    base: str = option(MISSING, "The commit before the edit: a branch, a tag, HEAD~1."),
    canary: int = option(
        0,
        "Also build this many of the newest days of each edited table in a temporary folder, and"
        " compare them with live. Starts Spark.",
        least=0,
    ),
    markdown: bool = option(False, "Print Markdown, for a comment on a pull request."),
    detailed_exitcode: bool = option(
        False, "Exit 2 if days need a build, and 1 for every error, as terraform plan does."
    ),
) -> None:
    """Show which days the edited code of a project makes outdated, and the time to build them.

    The edit is the working tree. Without a lake, days are those of the calendar. Changes nothing.
    """
    from backfill_assets.verbs.impact import read_impact

    workspace = workspace_of_command(only_reading=True)
    report = read_impact(workspace, base, Path.cwd(), canary)
    code = exit_codes.CHANGES if detailed_exitcode and report.impact.days else exit_codes.DONE
    if markdown:
        print(report.markdown())
        raise typer.Exit(code)
    output.end(report, code)


@app.command()
@with_flags
def evaluate(
    output: Output,
    table: str = argument(MISSING, "The table.", "TABLE"),
    day: str = argument(MISSING, "One day of it, YYYY-MM-DD.", "DAY"),
    limit: int = option(20, "Show at most this many rows.", least=0),
) -> None:
    """Compute a day with today's code: rows, verdicts of rules, and what would change.

    Needs no server, but starts Spark. Reads the built days of the inputs. Writes nothing to the
    lake. Exits 1 if the day cannot be computed, or if a rule refuses it.
    """
    workspace = workspace_of_command(only_reading=True)
    workspace.only_partition(table, day)  # refuses others before Spark starts
    spark = workspace.start_spark()
    # Imported while Spark starts.
    from backfill_assets.verbs.evaluate import evaluate as evaluated

    output.end(evaluated(workspace, table, day, limit, spark))


class Format(StrEnum):
    """How the rows of an answer are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@app.command()
@with_flags
def sql(
    query: str = argument(
        MISSING,
        "One query in DuckDB's SQL, such as 'SELECT count(*) FROM \"raw/a\"'. - reads it"
        " from standard input.",
        "QUERY",
    ),
    release: int | None = option(
        None, "A release's number. Default: the release of stable.", least=1
    ),
    plan: str = option("", "Instead, the preview of this plan."),
    live: bool = option(False, "Instead, the tables as they are now."),
    format_: Format | None = option(None, "Default: a table, or as --output ends."),
    output_: Path | None = option(None, "The file to write: .parquet, .csv or .json."),
    overwrite: bool = option(False, "Replace the file if it exists."),
) -> None:
    """Answer a query over the tables of a release, of a preview or of live.

    Type the query in single quotes, and the names of tables in double quotes. Changes nothing.
    """
    from backfill_assets.verbs.sql import answer_query, refuse_output, tables_of

    if query == "-":
        query = sys.stdin.read()
    if output_ and format_ == Format.TABLE:
        raise typer.BadParameter("a table is printed: leave out --output, or choose a format")
    kind = "" if format_ in (None, Format.TABLE) else str(format_)
    refuse_output(kind, output_, overwrite=overwrite)
    tables = tables_of(release, plan, live=live)
    if report := answer_query(query, tables, kind, output_, overwrite=overwrite):
        Output(False).end(report)


@app.command()
@with_flags
def doctor(
    output: Output,
    lake: bool = option(False, "Also write, overwrite and delete an object in the lake's store."),
) -> None:
    """Check settings, machine, lake and servers, and name the remedy of each problem."""
    from backfill_assets.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(as_json=output.as_json, probe=lake))
