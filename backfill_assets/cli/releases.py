"""`backfill releases`: the releases of the lake, or one of them. Reads only the lake's small records."""

import json
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.table import Table

from backfill_assets.cli.rendering import terminal
from backfill_assets.lake.release import Release
from backfill_assets.lake.releases import Releases
from backfill_assets.settings import read_settings

COLUMNS = ("release", "at (UTC)", "kind", "who", "channels", "changed tables", "reason")
NONE_YET = (
    "There is no release here yet. `backfill up` releases live by itself once days are built and nothing is running; "
    "`backfill release --reason ...` does it now."
)


def run(number: int | None, *, as_json: bool) -> int:
    releases = Releases(read_settings().lake)
    if number is not None:
        release = releases.get(number)
        value = as_values(release, releases.get(number - 1) if number > 1 else None, releases.newest())
        if as_json:
            print(json.dumps(value))
        else:
            show(terminal(), value)
        return 0
    every = releases.all()
    values = [as_values(release, before, every[-1]) for before, release in pairwise([None, *every]) if release]
    if as_json:
        print(json.dumps({"releases": values}))
    else:
        show_all(terminal(), values)
    return 0


def as_values(release: Release, before: Release | None, newest: Release | None = None) -> dict[str, Any]:
    """A release as plain values, and which of its tables are not as in the one `before`. The `newest` says if it is retired."""
    retired = newest.retired.get(release.number) if newest else None
    return {
        "release": release.number,
        "at": release.at.isoformat(),
        "who": release.who,
        "reason": release.reason,
        "kind": release.kind,
        "channels": dict(release.channels),
        "retired": retired.isoformat() if retired else None,
        "tables": {name: version._asdict() for name in release.tables if (version := release.version(name))},
        "switches": dict(release.switches),
        "changed_tables": release.changed(before),
    }


def show_all(console: Console, values: list[dict[str, Any]]) -> None:
    table = Table(*COLUMNS)
    newest = values[-1]["channels"] if values else {}
    for value in reversed(values):
        # Where the channels point now, not where they pointed then: what readers get is looked for here.
        channels = [channel for channel, number in newest.items() if number == value["release"]]
        channels += [f"retired {value['retired']}"] if value["retired"] else []
        changed = f"{len(value['changed_tables'])} of {len(value['tables'])}"
        table.add_row(
            str(value["release"]), _at(value), value["kind"], value["who"], ", ".join(channels), changed, value["reason"]
        )
    console.print(table if values else NONE_YET)


def show(console: Console, value: dict[str, Any]) -> None:
    console.print(f"release {value['release']} ({value['kind']}), {_at(value)} UTC, by {value['who']}: {value['reason']}")
    for channel, number in value["channels"].items():
        console.print(f"  {channel}: release {number}")
    if value["retired"]:
        console.print(f"  retired on {value['retired']}: its files may be gone, and it cannot be read")
    table = Table("table", "version", "changed", "path")
    for name, version in value["tables"].items():
        changed = "yes" if name in value["changed_tables"] else ""
        table.add_row(name, str(version["version"]), changed, version["path"])
    console.print(table)


def _at(value: dict[str, Any]) -> str:
    return str(value["at"])[:19].replace("T", " ")
