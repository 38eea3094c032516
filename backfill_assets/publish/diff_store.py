"""Diffs in the lake: `_diffs/<id>.json`, each written whole or not at all. One that cannot be read is made again."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from backfill_assets.lake.paths import Paths, files_in
from backfill_assets.publish.diff import Diff, read_diff


@dataclass(frozen=True)
class Diffs:
    """The diffs of the lake at `root`, a directory or an object-store prefix."""

    root: str

    @property
    def path(self) -> str:
        return Paths(self.root).diffs

    def read(self, diff_id: str) -> Diff | None:
        """The diff of that id; None if there is none, or it is not what was kept any more."""
        try:
            with files_in(self.path).open_input_stream(f"{diff_id}.json") as file:
                diff = read_diff(bytes(file.read()))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return diff if diff.id == diff_id else None

    def keep(self, diff: Diff) -> None:
        """Write a diff, in place of one of the same id."""
        contents = diff.contents().encode()
        if not Paths(self.root).is_local:  # an object appears when it is complete
            # Unbuffered, the handler is given an Arrow buffer, which it does not take (deltalake 1.6).
            with files_in(self.path).open_output_stream(f"{diff.id}.json", buffer_size=2**16) as out:
                out.write(contents)
            return
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f"_{diff.id}.{secrets.token_hex(4)}.json"
        with unfinished.open("wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())  # after a power cut, a file that has its name has its contents
        unfinished.replace(folder / f"{diff.id}.json")
