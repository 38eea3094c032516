"""A release: which version of every table readers get. A row of the Delta table `_releases`."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

# What readers get who name no channel, and the one that a few of them follow first.
STABLE, CANDIDATE = "stable", "candidate"
# The kind of a release that points a channel at an earlier one, and leaves the tables as they were released before.
POINTED = "channel"
# The kind of a release that retires earlier ones, and leaves the tables and the channels as they were.
RETIRED = "retired"
# The kind of a release that gives readers of a name another table, and leaves the tables as they were released before.
SWITCHED = "switch"
# The kind of a release that publishes a plan, or gives it to another channel.
PUBLISHED = "publish"
# The kind of a release of live as it stood, and its tables' own versions.
LIVE = "live"
# Releases of these kinds have the tables of the release before them.
WITHOUT_OWN_TABLES = frozenset({POINTED, RETIRED, SWITCHED})

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("who", pa.string()),
        ("reason", pa.string()),
        ("kind", pa.string()),
        ("tables", pa.string()),
        ("channels", pa.string()),
        ("token", pa.string()),
        ("retired", pa.string()),  # null in rows from before there was this column
        ("switches", pa.string()),  # as well
        ("recorded", pa.string()),  # as well
        ("plans", pa.string()),  # as well: then its reason names the plan
    ]
)


class TableVersion(NamedTuple):
    """A version of the Delta table at `path`, which is relative to the lake.

    `id`: Delta's id of the table ("": not known), which one that was deleted and made anew has not; its versions are others.
    """

    path: str
    version: int
    id: str = ""


@dataclass(frozen=True)
class Release:
    """The versions of all tables that belong together, and where the channels point since this release was added.

    `switches`: of a name that readers get another table under, that table's name; each table of a release that readers get so
    is in `tables`, under its own name too.
    Releases are numbered from 1 without gaps. `kind` says what made it, such as `live`; one of the kind `channel` has the
    tables of the release before it, and another `channels`: the number of the release that readers of each channel get.
    `recorded`: of each table when the newest build was recorded that was known when its tables were released.
    `plans` are those whose publication it is.
    `retired` are the releases of which files may be gone since this release was added, each with the day it was retired on.
    """

    number: int
    at: datetime
    who: str
    reason: str
    kind: str
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    channels: Mapping[str, int] = field(default_factory=dict)
    retired: Mapping[int, date] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, datetime] = field(default_factory=dict)
    plans: tuple[str, ...] = ()

    def version(self, name: str) -> TableVersion | None:
        """What readers get who read the table `name`; None if the release does not have it."""
        return self.tables.get(self.switches.get(name, name))

    @property
    def has_own_tables(self) -> bool:
        """Whether tables were released with it; else those of the release before it stayed."""
        return self.kind not in WITHOUT_OWN_TABLES

    def changed(self, before: "Release | None") -> list[str]:
        """The tables that are at another version, or in another place, than in the release `before`; None: all."""
        return [name for name in self.tables if before is None or before.version(name) != self.version(name)]


def to_arrow(releases: Sequence[Release], token: str) -> pa.Table:
    return pa.Table.from_pylist([_row(release, token) for release in releases], schema=SCHEMA)


def _row(release: Release, token: str) -> dict[str, Any]:
    return {
        "number": release.number,
        "at": release.at,
        "who": release.who,
        "reason": release.reason,
        "kind": release.kind,
        "tables": json.dumps(release.tables),
        "channels": json.dumps(dict(release.channels)),
        "token": token,
        "retired": json.dumps(_ranges(release.retired)),
        "switches": json.dumps(dict(release.switches)),
        "recorded": json.dumps({name: at.isoformat() for name, at in release.recorded.items()}),
        "plans": json.dumps(release.plans),
    }


def from_row(row: Mapping[str, Any]) -> Release:
    tables = {name: TableVersion(*version) for name, version in json.loads(row["tables"]).items()}
    known = {name: row[name] for name in ("number", "at", "who", "reason", "kind")}
    retired = {
        number: date.fromisoformat(on)
        for first, last, on in json.loads(row.get("retired") or "[]")
        for number in range(first, last + 1)
    }
    channels, switches = json.loads(row["channels"]), json.loads(row.get("switches") or "{}")
    recorded = {name: datetime.fromisoformat(at) for name, at in json.loads(row.get("recorded") or "{}").items()}
    plans = tuple(json.loads(row["plans"])) if row.get("plans") is not None else _plans_in(row["kind"], row["reason"])
    return Release(
        **known, tables=tables, channels=channels, retired=retired, switches=switches, recorded=recorded, plans=plans
    )


def _plans_in(kind: str, reason: str) -> tuple[str, ...]:
    """The plan whose publication a release is that was added before there was a column for it: its reason names it first."""
    named = re.match(r"plan (\w+)", reason) if kind == PUBLISHED else None
    return named.groups() if named else ()


def _ranges(retired: Mapping[int, date]) -> list[tuple[int, int, str]]:
    """The first and the last of consecutive numbers that were retired on the same day, and that day."""
    groups = groupby(enumerate(sorted(retired)), lambda entry: (entry[1] - entry[0], retired[entry[1]]))
    each = [([number for _, number in group], day) for (_, day), group in groups]
    return [(numbers[0], numbers[-1], day.isoformat()) for numbers, day in each]
