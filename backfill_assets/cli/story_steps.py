"""What a story of `backfill demo --story` is made of."""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backfill_assets.lake.documents import write_whole


@dataclass(frozen=True)
class Command:
    """A command as it is typed: `says` is what it shows, `code` what it ends with. `{plan}` is the plan that was made last."""

    says: str
    typed: str
    code: int = 0


@dataclass(frozen=True)
class Edit:
    """An edit of the project: `before` stands once in `file`, and becomes `after`. `says`: why it is made."""

    says: str
    file: str
    before: str
    after: str


@dataclass(frozen=True)
class Arrival:
    """A file arrives: a copy of `source` at `file`, below the landing area, over what lies there; of a packed text the first
    `lines` only, if they are given. `says`: what it is; "" for one more of the same."""

    says: str
    file: str
    source: Path
    lines: int | None = None

    def deliver(self, landing: Path) -> str:
        """Write the file, whole or not at all; what arrived, in words."""
        contents, target = self.source.read_bytes(), landing / self.file
        kept = ""
        if self.lines is not None:
            whole = gzip.decompress(contents).splitlines(keepends=True)
            contents, kept = gzip.compress(b"".join(whole[: self.lines])), f", its first {self.lines} of {len(whole)} lines"
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, contents)
        return f"{self.file} arrives{kept}."


Step = Command | Edit | Arrival


@dataclass(frozen=True)
class Story:
    """Steps that are played in order in a new folder, whose `.env` has these settings. `opening` says what will be seen.

    `project`: the package of the bundled tables of which the folder gets a copy.
    """

    name: str
    project: str
    opening: str
    settings: Mapping[str, str]
    steps: Sequence[Step]
