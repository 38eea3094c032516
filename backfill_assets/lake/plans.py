"""Plans in the lake: `_plans/<id>.json`, written once and never changed."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from pyarrow import fs

from backfill_assets.errors import UsageError


@dataclass(frozen=True)
class Plans:
    """The plans of the lake at `root`, a directory or an object-store prefix."""

    root: str

    def keep(self, plan_id: str, contents: str) -> None:
        """Write a plan, whole or not at all; one that is there already is the same."""
        system, folder = self._place()
        if plan_id in self.ids():
            return
        system.create_dir(folder, recursive=True)
        # Read only under its last name; a local disk renames in one act, and an object appears when it is complete.
        beside = f"{folder}/_{plan_id}.{secrets.token_hex(4)}.json"
        with system.open_output_stream(beside) as out:
            out.write(contents.encode())
        system.move(beside, f"{folder}/{plan_id}.json")

    def read(self, plan_id: str) -> str:
        """A plan's contents; UsageError for one that is not there, naming those that are."""
        system, folder = self._place()
        known = self.ids()
        if plan_id not in known:
            there = f"The plans here are {', '.join(known)}" if known else "There is none here yet: `backfill plan` makes one"
            raise UsageError(f"There is no plan {plan_id}. Nothing was started. {there}.")
        with system.open_input_stream(f"{folder}/{plan_id}.json") as file:
            return bytes(file.read()).decode()

    def ids(self) -> list[str]:
        system, folder = self._place()
        found = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return sorted(f.base_name.removesuffix(".json") for f in found if f.extension == "json" and f.base_name[0] != "_")

    def _place(self) -> tuple[fs.FileSystem, str]:
        system, path = fs.FileSystem.from_uri(self.root)
        return system, f"{path}/_plans"
