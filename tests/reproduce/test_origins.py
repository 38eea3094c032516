"""What a row was made from, back to the file that was delivered."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest

from backfill_assets.lake.ledger import Build
from backfill_assets.reproduce.origins import Input, Origin
from backfill_assets.tables.declaration import SliceDays, Table, itself, same_day, window
from backfill_assets.verbs.blame import BlameReport, blame
from tests.worlds.deliveries import day
from tests.worlds.keyed_lake import KeyedLake
from tests.worlds.outages import OUTAGES, RAW, UPDATES, World
from tests.worlds.small_lake import DAYS

D0, D1, *_ = DAYS


def declared(name: str, columns: str, **fields: Any) -> Table:
    return Table(name, lambda: None, "day", f"day DATE, {columns}", rules=(), version="1", **fields)


EVENTS = declared(
    "raw/events",
    "shopId STRING, cents BIGINT, source_file STRING",
    reads={"days": SliceDays()},
    lineage=["source_file"],
)
SALES = declared(
    "staging/sales",
    "shop_id STRING, n BIGINT, cents BIGINT",
    reads={"events": same_day(EVENTS)},
    key=["shop_id", "n"],
)
DAILY = declared(
    "features/daily",
    "shop_id STRING, cents BIGINT",
    reads={"sales": window(SALES, first=-1, last=0), "before": itself()},
    key=["day", "shop_id"],
)
ALL = declared("features/all", "cents BIGINT", reads={"daily": same_day(DAILY)}, key=["day"])


@pytest.fixture
def lake(tmp_path: Path) -> KeyedLake:
    """Two days: an event of each of two shops, typed, and added up with those of the day before."""
    lake = KeyedLake(tmp_path / "lake", (EVENTS, SALES, DAILY, ALL))
    built: dict[tuple[str, date], Build] = {}
    for at in (D0, D1):
        events = [
            {"shopId": shop, "cents": n, "source_file": f"{at}.csv"}
            for n, shop in enumerate("ab", start=1)
        ]
        built[EVENTS.name, at] = lake.write(EVENTS, at, events)
        sales = [{"shop_id": e["shopId"], "n": 0, "cents": e["cents"]} for e in events]
        built[SALES.name, at] = lake.write(SALES, at, sales, **read(built, (EVENTS, at)))
        daily = [{"shop_id": shop, "cents": 2 * n} for n, shop in enumerate("ab", start=1)]
        inputs = [(SALES, before) for before in (D0, at)]
        if at == D1:
            inputs.append((DAILY, D0))
        built[DAILY.name, at] = lake.write(DAILY, at, daily, **read(built, *inputs))
        lake.write(ALL, at, [{"cents": 6}], **read(built, (DAILY, at)))
    return lake


def read(
    built: dict[tuple[str, date], Build], *inputs: tuple[Table, date]
) -> dict[str, dict[str, Any]]:
    """The inputs of a build, as fields of it."""
    fingerprints: dict[str, dict[str, str]] = {}
    for table, at in inputs:
        fingerprints.setdefault(table.name, {})[str(at)] = built[table.name, at].fingerprint
    versions = {table.name: built[table.name, at].delta_version for table, at in inputs}
    return {"inputs": fingerprints, "input_versions": versions}


def asked(lake: KeyedLake, table: Table, *typed: str) -> BlameReport:
    return blame(lake.workspace, table.name, str(D1), typed, "")


def inputs_of(report: BlameReport) -> Any:
    """By input: the columns that tell its rows, their number, and each row with its inputs."""

    def of(origin: Any) -> Any:
        return {
            each["table"]: (
                each["by"],
                each["count"],
                [(row["row"], of(row)) for row in each["origins"]],
            )
            for each in origin["inputs"]
        }

    return of(json.loads(json.dumps(report.as_json(), default=str))["origin"])


def test_a_row_is_followed_by_its_key_to_the_file_that_was_delivered(lake, golden):
    def sale(at: date) -> Any:
        event = {"day": str(at), "shopId": "b", "cents": 2, "source_file": f"{at}.csv"}
        return ({"shop_id": "b", "n": 0}, {EVENTS.name: (["shopId"], 1, [(event, {})])})

    report = asked(lake, DAILY, "shop_id=b")
    assert inputs_of(report) == {
        SALES.name: (["shop_id"], 2, [sale(D0), sale(D1)]),
        # A table that reads itself is not followed into its own earlier days.
        DAILY.name: (["shop_id"], 1, []),
    }
    *_, first = (n for n, line in enumerate(report.lines()) if "from staging" in str(line))
    golden("\n".join(map(str, [*report.lines()][first:])))


def test_the_rows_that_were_read_are_told_not_those_of_now(lake):
    other = [{"shopId": "b", "cents": 9, "source_file": "other.csv"}]
    lake.write(EVENTS, D1, other)
    (of_sale,) = [rows for _, _, rows in inputs_of(asked(lake, SALES, "shop_id=b")).values()]
    assert [row["source_file"] for row, _ in of_sale] == [f"{D1}.csv"]
    lake.vacuum(EVENTS)
    report = asked(lake, SALES, "shop_id=b")
    assert report.origin
    assert report.origin.inputs == []
    assert len(report.origin.gone) == 1


def test_an_input_without_columns_of_the_key_is_only_named(lake):
    assert inputs_of(asked(lake, ALL, f"day={D1}")) == {DAILY.name: ([], 0, [])}


def test_many_rows_of_an_input_are_counted_and_not_followed(lake):
    sales = [{"shop_id": "a", "n": n, "cents": 1} for n in range(21)]
    built = {(SALES.name, D1): lake.write(SALES, D1, sales)}
    lake.write(DAILY, D1, [{"shop_id": "a", "cents": 21}], **read(built, (SALES, D1)))
    assert inputs_of(asked(lake, DAILY, "shop_id=a")) == {SALES.name: (["shop_id"], 21, [])}


def test_several_rows_are_not_followed(lake):
    assert asked(lake, DAILY, f"day={D1}").origin is None


def test_a_masked_column_is_hidden_in_inputs_too(lake):
    masked = replace(EVENTS, mask=["cents"])
    sales = replace(SALES, reads={"events": same_day(masked)})
    lake.tables = (masked, sales)
    ((_, _, rows),) = inputs_of(asked(lake, sales, "shop_id=b")).values()
    assert [row["cents"] for row, _ in rows] == ["(masked)"]


def test_an_outage_is_followed_to_the_row_of_its_file(once: World):
    """The oracle is the delivered file, read by DuckDB."""
    at = day(1)
    file = once.folder(at) / "events.jsonl"
    names = ("outageNumber", "_captured_at", "outageStartTime")
    texts = dict.fromkeys(names, "VARCHAR")
    lines = duckdb.read_json(str(file), columns=texts, hive_partitioning=False)
    delivered = lines.fetchall()[0]
    number = delivered[0]
    report = blame(once.workspace, OUTAGES, str(at), [f"outage_number={number}"], "")
    ((_, count, ((update, of_update),)),) = [inputs_of(report)[UPDATES]]
    ((_, raw_count, ((raw, _),)),) = [of_update[RAW]]
    assert (count, raw_count) == (1, 1)
    assert update["outage_number"] == number
    assert tuple(raw[name] for name in names) == delivered
    assert raw["source_file"] == str(file.relative_to(once.landing))


def test_rows_that_were_shown_are_not_repeated():
    read = Input(EVENTS.name, [D0], ["shopId"], 1, [Origin({"shopId": "b"}, [], [])])
    sales = [Origin({"n": n}, [read], []) for n in range(3)]
    origin = Origin({}, [Input(SALES.name, [D0], ["shop_id"], 3, sales)], [])
    lines = [*map(str, BlameReport(DAILY.name, D0, 1, [], "", origin).lines())]
    assert sum('shopId="b"' in line for line in lines) == 1
    assert sum(line.strip().startswith("n=") for line in lines) == 3
