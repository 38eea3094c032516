"""Plans in the lake: `_plans/<id>.json`, and beside it what happened to it, a small file an event: `_plans/<id>/`.

All are written once and never changed, so that no two writers can spoil each other's.
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
    """Something that happened to a plan: `started`, `asked` (a chunk was launched, or may have been), `ended`, `cancelled`."""

    at: datetime
    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plans:
    """The plans of the lake at `root`, a directory or an object-store prefix."""

    root: str

    def keep(self, plan_id: str, contents: str) -> None:
        """Write a plan, whole or not at all; one that is there already is the same."""
        if plan_id not in self.ids():
            self._write("", plan_id, contents)

    def read(self, plan_id: str) -> str:
        """A plan's contents; UsageError for one that is not there, naming those that are."""
        system, folder = self._place()
        known = self.ids()
        if plan_id not in known:
            there = f"The plans here are {', '.join(known)}" if known else "There is none here yet: `backfill plan` makes one"
            raise UsageError(f"There is no plan {plan_id}. Nothing was started. {there}.")
        with system.open_input_stream(f"{folder}/{plan_id}.json") as file:
            return bytes(file.read()).decode()

    def note(self, plan_id: str, kind: str, at: datetime, **facts: Any) -> Event:
        """Write down that something happened to a plan, before it is done or after."""
        event = Event(at.astimezone(UTC), kind, facts)
        told = {"at": event.at.isoformat(), "kind": kind, "facts": facts}
        self._write(plan_id, f"{event.at:%Y%m%dT%H%M%S%f}-{kind}-{secrets.token_hex(2)}", json.dumps(told))
        return event

    def events(self, plan_id: str, kind: str = "") -> list[Event]:
        """What happened to a plan, or what of one kind, oldest first."""
        system, folder = self._place()
        found = system.get_file_info(fs.FileSelector(f"{folder}/{plan_id}", allow_not_found=True))
        told = []
        written = (f for f in found if f.extension == "json" and f.base_name[0] != "_" and f"-{kind}" in f.base_name)
        for info in sorted(written, key=lambda f: f.base_name):
            with system.open_input_stream(info.path) as file:
                told.append(json.loads(bytes(file.read())))
        return [Event(datetime.fromisoformat(each["at"]), each["kind"], each["facts"]) for each in told]

    @contextmanager
    def at_work(self, plan_id: str) -> Iterator[None]:
        """Hold the right to launch a plan's chunks; Guarded if another command on this machine's disk has it.

        In an object store nothing is held: there, the tags of what was launched already are looked up before each launch.
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
                f"Another command carries out plan {plan_id}. Nothing was launched. See it with `backfill watch {plan_id}`."
            ) from None

    def ids(self) -> list[str]:
        system, folder = self._place()
        found = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return sorted(f.base_name.removesuffix(".json") for f in found if f.extension == "json" and f.base_name[0] != "_")

    def _write(self, below: str, name: str, contents: str) -> None:
        system, top = self._place()
        folder = f"{top}/{below}".rstrip("/")
        system.create_dir(folder, recursive=True)
        # Read only under its last name; a local disk renames in one act, and an object appears when it is complete.
        beside = f"{folder}/_{name}.{secrets.token_hex(4)}.json"
        with system.open_output_stream(beside) as out:
            out.write(contents.encode())
        system.move(beside, f"{folder}/{name}.json")

    def _place(self) -> tuple[fs.FileSystem, str]:
        return fs.FileSystem.from_uri(Paths(self.root).plans)
