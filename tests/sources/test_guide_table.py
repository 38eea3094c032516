"""The table of the guide "Your own data": each file that it shows, read as it says.

A file has one line per code in its cell. Its rows have `n` = 1, 2 and so on, and `shop`.
"""

import re
from typing import Any

import pytest

from backfill_assets import Csv, JsonLines, Landing, Parquet, field
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import Field
from tests.worlds.command_line import guide
from tests.worlds.deliveries import day, delivery_of, put

TABLE = guide("your-own-data").table_below("## What your file looks like")


def landing(*_: Any, **options: Any) -> dict[str, Any]:
    return options


def source_of(code: str) -> Landing:
    """The source of a test with what the cell declares: a format, a field, or options."""
    written = eval(code, {"Csv": Csv, "JsonLines": JsonLines, "field": field, "Landing": landing})
    fields = {
        "n": field("n BIGINT", required=True),
        "shop": field("shop STRING"),
        "price": field("price DECIMAL(9, 2)"),
    }
    options: dict[str, Any] = {"format": Csv()}
    if isinstance(written, Field):
        fields[written.name] = written
    else:
        options |= written if isinstance(written, dict) else {"format": written}
    return Landing("sales", fields=list(fields.values()), **options)


@pytest.mark.parametrize(
    ("file", "write"), TABLE, ids=[file.partition(":")[0] for file, _ in TABLE]
)
def test_a_file_of_the_guide_is_read_with_what_the_guide_says(tmp_path, spark, file, write):
    (code,) = re.findall("`(.*)`", write)
    source = source_of(code)
    assert not isinstance(source.format, Parquet)
    lines = re.findall("`([^`]*)`", file)
    ending = "json" if isinstance(source.format, JsonLines) else "csv"
    text = "".join(f"{line}\n" for line in lines)
    assert not isinstance(source.format, Parquet)
    put(tmp_path, f"sales/{day(0)}.{ending}", text.encode(source.format.encoding))
    area = LandingArea(tmp_path, tmp_path / "cache", lake=str(tmp_path / "lake"))
    delivery = delivery_of(source, area)
    assert not delivery.doubts
    rows = source.read(area, spark, [day(0)]).orderBy("n").collect()
    assert [row["n"] for row in rows] == list(range(1, len(rows) + 1)) != []
    assert {row["arrival_day"] for row in rows} == {day(0)}
    assert len(rows) <= sum(delivery.files.values())
    assert "Zürich" in (rows[0].asDict().get("shop") or "Zürich")
    assert [(row["unparsed"], row["malformed"]) for row in rows] == [({}, None)] * len(rows)
