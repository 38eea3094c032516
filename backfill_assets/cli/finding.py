"""What `backfill doctor` finds: one line each."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "FAIL"]


@dataclass(frozen=True)
class Finding:
    level: Level
    what: str
    message: str
    remedy: str = ""

    def line(self) -> str:
        return f"{self.level:<5} {self.what:<9} {self.message}" + (f" Remedy: {self.remedy}" if self.remedy else "")
