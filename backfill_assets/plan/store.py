"""Plans in the lake: `_plans/<id>.json`, and the events of each, one small file an event, in `_plans/<id>/`.

A file is written once and never changed, so no two writers can overwrite each other's.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyarrow import fs

from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.locks import Locked, file_lock
from backfill_assets.lake.paths import Paths


@dataclass(frozen=True)
class Event:
    """An event of a plan: `started`, `requested` (the launch of a chunk, before it is sent), `ended`, `cancelled`."""

    at: datetime
    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plans:
    """The plans of the lake at `root`, a directory or an object-store prefix."""

    root: str

    def keep(self, plan_id: str, contents: str) -> None:
        """Write a plan, whole or not at all; one of that id is already the same."""
        if plan_id not in self.ids():
            self._write("", plan_id, contents)

    def read(self, plan_id: str) -> str:
        """A plan's contents; UsageError, with the ids of the plans there are, for an unknown id."""
        system, folder = self._place()
        known = self.ids()
        if plan_id not in known:
            plans = f"Its plans are {', '.join(known)}" if known else "It has none yet: `backfill plan` makes one"
            raise UsageError(f"There is no plan {plan_id} in this lake. Nothing was started. {plans}.")
        with system.open_input_stream(f"{folder}/{plan_id}.json") as file:
            return bytes(file.read()).decode()

    def note(self, plan_id: str, kind: str, at: datetime, **facts: Any) -> Event:
        """Record an event of a plan."""
        event = Event(at.astimezone(UTC), kind, facts)
        contents = json.dumps({"at": event.at.isoformat(), "kind": kind, "facts": facts})
        self._write(plan_id, f"{event.at:%Y%m%dT%H%M%S%f}-{kind}-{secrets.token_hex(2)}", contents)
        return event

    def events(self, plan_id: str, kind: str = "") -> list[Event]:
        """The events of a plan, or those of one kind, oldest first."""
        system, folder = self._place()
        files = [f for f in _written(system, f"{folder}/{plan_id}") if f"-{kind}" in f.base_name]
        events = []
        for info in sorted(files, key=lambda f: f.base_name):
            with system.open_input_stream(info.path) as file:
                events.append(json.loads(bytes(file.read())))
        return [Event(datetime.fromisoformat(event["at"]), event["kind"], event["facts"]) for event in events]

    @contextmanager
    def exclusive(self, plan_id: str) -> Iterator[None]:
        """Hold the lock for launching a plan's chunks; Guarded if another command holds it.

        In an object store there is no lock: before each launch, the tags of the backfills that run already are looked up.
        """
        paths = Paths(self.root)
        if not paths.is_local:
            yield
            return
        try:
            with file_lock(paths.locks / f"plan.{plan_id}.lock"):
                yield
        except Locked:
            raise Guarded(
                f"Another command is carrying out plan {plan_id}. Nothing was launched. See `backfill watch {plan_id}`."
            ) from None

    def ids(self) -> list[str]:
        system, folder = self._place()
        return sorted(f.base_name.removesuffix(".json") for f in _written(system, folder))

    def _write(self, below: str, name: str, contents: str) -> None:
        system, top = self._place()
        folder = f"{top}/{below}".rstrip("/")
        system.create_dir(folder, recursive=True)
        # Read only under its last name; a local disk renames in one act, and an object appears when it is complete.
        unfinished = f"{folder}/_{name}.{secrets.token_hex(4)}.json"
        with system.open_output_stream(unfinished) as out:
            out.write(contents.encode())
        system.move(unfinished, f"{folder}/{name}.json")

    def _place(self) -> tuple[fs.FileSystem, str]:
        return fs.FileSystem.from_uri(Paths(self.root).plans)


def _written(system: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    """The finished files of a folder; none if there is no such folder."""
    files = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return [f for f in files if f.extension == "json" and not f.base_name.startswith("_")]
