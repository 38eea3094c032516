"""Where everything in a lake is: live tables at `<lake>/<layer>/<table>`; what begins with an underscore is our own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Paths:
    """The places below `root`, a directory or an object-store prefix."""

    root: str

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def table(self, name: str) -> str:
        return f"{self.root}/{name}"

    @property
    def ledger(self) -> str:
        return f"{self.root}/_ledger"

    @property
    def plans(self) -> str:
        return f"{self.root}/_plans"

    @property
    def locks(self) -> Path:
        """Only where the lake is local: object stores have no file locks."""
        return Path(self.root) / "_locks"

    @property
    def running_steps(self) -> Path:
        """As for locks."""
        return self.locks / "running"
