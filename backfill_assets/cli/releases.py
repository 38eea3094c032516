"""`backfill export`: the rows of a released table as a Parquet or CSV file. No server, no Spark.

`backfill releases`: the releases of the lake, or one of them. Reads only the lake's small records.

`backfill rollback`: what a plan changed is put back as it was before, or readers go back to a
release. No server is needed.

The exit code is 0 if nothing of the plan is left in the tables, and 1 if some of it stays, or the
answer was no.

`backfill switch`: readers of a table's name get another table. No server is needed.
"""

import getpass
import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

from backfill_assets.cli import exit_codes
from backfill_assets.cli.terminal import is_answered, records, terminal
from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import STABLE, Release, Releases
from backfill_assets.lake.storage import replacing
from backfill_assets.plan.remaining import Readers, outdated_lines, readers_left
from backfill_assets.plan.store import Plans
from backfill_assets.publish import text
from backfill_assets.publish.channels import behind
from backfill_assets.publish.publish import left_with_plan
from backfill_assets.publish.rollback import Kind, roll_back, rollback_of
from backfill_assets.publish.switch import Switch
from backfill_assets.publish.text import switched_line
from backfill_assets.rebuild.carry_out import after_publication
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import read_settings
from backfill_assets.workspace import open_workspace

WRITERS: dict[str, Callable[[Path, pa.Schema], AbstractContextManager[Any]]] = {
    ".parquet": lambda path, schema: pq.ParquetWriter(path, schema),
    ".csv": lambda path, schema: csv.CSVWriter(path, schema),
}


def run_export(
    table: str,
    file: Path,
    partitions: str,
    *,
    number: int | None,
    channel: str,
    overwrite: bool,
    as_json: bool,
) -> int:
    refuse_file(file, overwrite)
    if number is not None and channel != STABLE:
        raise UsageError(
            "--release and --channel exclude each other. Nothing was written. Leave one out."
        )
    workspace = records()
    days = workspace.calendar.select(partitions) if partitions else None
    releases = workspace.lake.releases
    release = releases.of_channel(channel) if number is None else releases.readable(number)
    released = ReleasedTable(workspace.lake.root, release, table)
    key = next((each.key for each in workspace.tables if each.name == table), ())
    rows = write(
        released.dataset(days).schema, released.batches(key, days), file, overwrite=overwrite
    )
    if as_json:
        print(
            json.dumps({"file": str(file), "rows": rows, "table": table, "release": release.number})
        )
    else:
        print(f"{file}: {rows:,} rows of {table}, release {release.number}.")
    return exit_codes.DONE


def refuse_file(file: Path, overwrite: bool) -> None:
    """UsageError for a file of another kind, one that is there, or one in a folder that is not
    there.
    """
    if file.suffix not in WRITERS:
        raise UsageError(
            f"{file} does not end in {' or '.join(WRITERS)}. Nothing was written. Name such a file."
        )
    if file.is_dir() or (file.exists() and not overwrite):
        raise UsageError(
            f"{file} is there already. Nothing was written. Name another file, or type --overwrite."
        )
    if not file.parent.is_dir():
        raise UsageError(
            f"There is no folder {file.parent}. Nothing was written. Make it, or name another file."
        )


def write(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], file: Path, *, overwrite: bool
) -> int:
    """Write the rows to `file` as they come; it appears when it is complete. How many they are."""
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if file.suffix == ".csv" and nested:
        raise UsageError(
            f"CSV has no lists and maps, which {', '.join(nested)} holds. Nothing was written. Name"
            " a .parquet file."
        )
    count = 0
    with replacing(file) as draft:
        with WRITERS[file.suffix](draft, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                count += batch.num_rows
        refuse_file(file, overwrite)  # another process may have written it meanwhile
    return count


COLUMNS = ("release", "at (UTC)", "kind", "who", "channels", "changed tables", "reason")
NONE_YET = (
    "There is no release here yet. `backfill up` releases live by itself once days are built and"
    " nothing is running; `backfill release --reason ...` does it now."
)


def run_releases(number: int | None, *, as_json: bool) -> int:
    releases = Releases(read_settings().lake)
    if number is not None:
        release = releases.get(number)
        value = as_values(
            release, releases.get(number - 1) if number > 1 else None, releases.newest()
        )
        if as_json:
            print(json.dumps(value))
        else:
            show_releases(terminal(), value)
        return 0
    every = releases.all()
    values = [
        as_values(release, before, every[-1])
        for before, release in pairwise([None, *every])
        if release
    ]
    if as_json:
        print(json.dumps({"releases": values}))
    else:
        show_all(terminal(), values)
    return 0


def as_values(
    release: Release, before: Release | None, newest: Release | None = None
) -> dict[str, Any]:
    """A release as plain values, and which of its tables are not as in the one `before`. The
    `newest` says if it is retired.
    """
    retired = newest.retired.get(release.number) if newest else None
    return {
        "release": release.number,
        "at": release.at.isoformat(),
        "who": release.who,
        "reason": release.reason,
        "kind": release.kind,
        "channels": dict(release.channels),
        "retired": retired.isoformat() if retired else None,
        "tables": {
            name: version._asdict() for name in release.tables if (version := release.version(name))
        },
        "switches": dict(release.switches),
        "changed_tables": release.changed(before),
    }


def show_all(console: Console, values: list[dict[str, Any]]) -> None:
    table = Table(*COLUMNS)
    newest = values[-1]["channels"] if values else {}
    for value in reversed(values):
        # Where the channels point now, not where they pointed then: what readers get is looked for
        # here.
        channels = [channel for channel, number in newest.items() if number == value["release"]]
        channels += [f"retired {value['retired']}"] if value["retired"] else []
        changed = f"{len(value['changed_tables'])} of {len(value['tables'])}"
        table.add_row(
            str(value["release"]),
            _at(value),
            value["kind"],
            value["who"],
            ", ".join(channels),
            changed,
            value["reason"],
        )
    console.print(table if values else NONE_YET)


def show_releases(console: Console, value: dict[str, Any]) -> None:
    console.print(
        f"release {value['release']} ({value['kind']}), {_at(value)} UTC, by {value['who']}:"
        f" {value['reason']}"
    )
    for channel, number in value["channels"].items():
        console.print(f"  {channel}: release {number}")
    if value["retired"]:
        console.print(
            f"  retired on {value['retired']}: its files may be gone, and it cannot be read"
        )
    table = Table("table", "version", "changed", "path")
    for name, version in value["tables"].items():
        changed = "yes" if name in value["changed_tables"] else ""
        table.add_row(name, str(version["version"]), changed, version["path"])
    console.print(table)


def _at(value: dict[str, Any]) -> str:
    return str(value["at"])[:19].replace("T", " ")


NEXT_RELEASE = (
    "Readers get these rows with the next release of live: by itself while `backfill up` runs, or"
    " at once by `backfill release --reason ...`."
)


def run_rollback(plan_id: str, *, reason: str, force: bool, yes: bool, as_json: bool) -> int:
    workspace = open_workspace()
    console = terminal(stderr=as_json)
    plans = Plans(workspace.lake.root)
    plan = plans.read(plans.full_id(plan_id))
    if not as_json:
        decisions = rollback_of(plan, workspace, force=force)
        show_rollback(decisions)
        restoring = any(decision.kind == Kind.RESTORE for decision in decisions.values())
        if (
            restoring
            and not yes
            and is_answered()
            and not typer.confirm("Put these days back?", default=False)
        ):
            print("Nothing was restored.")
            return exit_codes.PARTIAL
    decisions, restored = roll_back(
        plan, workspace, who=getpass.getuser(), now=utc_now, reason=reason, force=force
    )
    not_reported = ""
    left = readers_left(plan, workspace) if restored else Readers({})
    try:
        after_publication(plan, restored, left, workspace, dagster_of(workspace.settings))
    except BackfillError as error:
        not_reported = text.not_reported(error)
    code = exit_codes.DONE if text.is_complete(decisions.values()) else exit_codes.PARTIAL
    if as_json:
        values = {
            "plan": plan.id,
            "state": plans.state(plan.id),
            "exit_code": code,
            "not_reported": not_reported,
        }
        values["still_read"] = left_with_plan(plan, workspace)
        print(json.dumps(values | text.days_by_kind(decisions)))
        return code
    released_next = NEXT_RELEASE if restored and workspace.lake.releases.newest() else ""
    newest = workspace.lake.releases.newest()
    staying = "; ".join(f"The channel {each}" for each in behind(workspace.lake.root, newest))
    readers = left_with_plan(plan, workspace) or staying or released_next
    outdated = outdated_lines(left.outdated, workspace.settings.ask_above_days)
    for line in [*text.ending_lines(plan.id, decisions), readers, not_reported, *outdated]:
        if line:
            console.print(line)
    return code


def to_release(number: int, channel: str, *, reason: str, as_json: bool) -> int:
    """Point a channel at an earlier release. UsageError for an unknown number, Conflict if
    something was released meanwhile.
    """
    releases = Releases(read_settings().lake)
    releases.refuse_unknown(channel)
    target = releases.get(number)
    newest = releases.newest()
    assert newest is not None, "there is a release of that number"
    if newest.channels.get(channel) == number:
        said = f"Readers of {channel} get release {number} already. Nothing was changed."
        pointed = newest
    else:
        why = reason or f"back to release {number}"
        pointed = releases.point(newest, channel, number, who=getpass.getuser(), reason=why)
        said = (
            f"Readers of {channel} get release {number} ({len(target.tables)} table(s), of"
            f" {target.at:%Y-%m-%d %H:%M} UTC) from now on. No row was changed."
            f" {_then(releases, channel)}"
        )
    print(
        json.dumps({"release": pointed.number, "channels": dict(pointed.channels)})
        if as_json
        else said
    )
    return exit_codes.DONE


def _then(releases: Releases, channel: str) -> str:
    for each in behind(releases.root, releases.newest()):
        if each.channel == channel:
            return f"Releases of live do not change that{each.way_out}."
    return "They get every release of live from now on."


def show_rollback(decisions: text.Decisions) -> None:
    """What would be put back, and what stays."""
    console = terminal()
    for line in (*text.decision_lines(decisions), *text.lines_of_left(decisions)):
        console.print(line)


def run_switch(switch: Switch, *, reason: str, allow_breaking: bool, as_json: bool) -> int:
    """The exit code is 0 if readers of the channel get the other table, also if they did before."""
    release = switch.carry_out(
        open_workspace(), getpass.getuser(), reason, allow_breaking=allow_breaking
    )
    if as_json:
        number, channels = (release.number, dict(release.channels)) if release else (None, {})
        values = {
            "table": switch.name,
            "to": switch.to,
            "channel": switch.channel,
            "release": number,
            "channels": channels,
        }
        print(json.dumps(values | {"exit_code": exit_codes.DONE}))
    else:
        terminal().print(switched_line(switch, release))
    return exit_codes.DONE
