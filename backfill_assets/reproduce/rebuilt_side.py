"""The rows of a day that were computed again, as a side of a comparison; they are in no table."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa

from backfill_assets.diff.side import Side
from backfill_assets.lake.columns import delta_schema


@dataclass(frozen=True)
class RebuiltSide(Side):
    """The `held` rows of one day, without the day column; `schema`: their columns as JSON, the day's too."""

    held: pa.Table = field(default_factory=lambda: pa.table({}), compare=False)
    schema: str = ""

    @property
    def exists(self) -> bool:
        return True

    @property
    def types(self) -> dict[str, Any]:
        fields = json.loads(delta_schema(self.schema).to_json())["fields"]
        return {field["name"]: field["type"] for field in fields if field["name"] != self.column}

    def files(self, days: Collection[date]) -> dict[date, str]:
        return {}

    def rows(self, days: Collection[date]) -> dict[date, int | None]:
        return dict.fromkeys(days, self.held.num_rows)

    def day(self, day: date) -> pa.Table:
        return self.held
