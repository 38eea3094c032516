"""The files that all tools read, how they are corrected, and what the tables must hold.

The files are made of the bundled outages: one CSV file per day, with the columns `number`, `region`
and `customers`. The right rows are computed by DuckDB from the files, with no code of any tool.
"""

from collections.abc import Collection, Mapping
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa

from backfill_assets.datasets.outages.sample import SAMPLE

TABLES = ("events", "daily", "weekly")

_SAMPLE = """
SELECT make_date(year::INT, month::INT, day::INT) AS day, "outageNumber"::BIGINT AS number,
       "regionName" AS region, "estCustAffected"::BIGINT AS customers
FROM read_json_auto('{sample}/*/*/*/*.gz', hive_partitioning = true)
"""
_EVENTS = """
SELECT strptime(parse_filename(filename, true), '%Y-%m-%d')::DATE AS day, number, region, customers
FROM read_csv('{files}', filename = true, header = true,
              columns = {{'number': 'BIGINT', 'region': 'VARCHAR', 'customers': 'BIGINT'}})
"""
_DAILY = """
SELECT day, region, count(*) AS updates, {of_day}(customers)::BIGINT AS customers
FROM events GROUP BY day, region
"""
_WEEKLY = """
SELECT days.day, daily.region, sum(updates)::BIGINT AS updates, max(customers) AS customers
FROM (SELECT DISTINCT day FROM daily) AS days
JOIN daily ON daily.day BETWEEN days.day - 6 AND days.day
GROUP BY days.day, daily.region
"""


def deliver(landing: Path, days: Collection[date]) -> int:
    """Write the files of these days. Returns the number of rows."""
    events = landing / "events"
    events.mkdir(parents=True, exist_ok=True)
    rows = 0
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE sample AS {_SAMPLE.format(sample=SAMPLE)}")
        for day in days:
            query = f"SELECT number, region, customers FROM sample WHERE day = DATE '{day}'"
            copied = connection.execute(f"COPY ({query}) TO '{events / str(day)}.csv' (HEADER)")
            rows += copied.fetchall()[0][0]
    return rows


def correct(landing: Path, days: Collection[date]) -> None:
    """Deliver these days again: a fifth of the rows is gone, and the others have new figures."""
    with duckdb.connect() as connection:
        for day in days:
            file = landing / "events" / f"{day}.csv"
            connection.execute(f"CREATE OR REPLACE TABLE old AS FROM read_csv('{file}')")
            query = "SELECT number, region, 100 * customers AS customers FROM old"
            connection.execute(f"COPY ({query} WHERE number % 10 < 8) TO '{file}' (HEADER)")


def wrong_days(
    landing: Path, tables: Mapping[str, pa.Table], of_day: str = "max"
) -> dict[str, list[date]]:
    """By table, the days with other rows than the files say. `of_day` sums up `customers`."""
    files = str(landing / "events" / "*.csv")
    wrong = {}
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE events AS {_EVENTS.format(files=files)}")
        connection.execute(f"CREATE TABLE daily AS {_DAILY.format(of_day=of_day)}")
        connection.execute(f"CREATE TABLE weekly AS {_WEEKLY}")
        for name in TABLES:
            connection.register("theirs", tables[name])
            columns = ", ".join(row[0] for row in connection.execute(f"DESCRIBE {name}").fetchall())
            ours = f"SELECT {columns} FROM {name}"
            theirs = f"SELECT {columns} FROM theirs"
            differing = (
                f"(({ours} EXCEPT ALL {theirs}) UNION ALL ({theirs} EXCEPT ALL {ours})) AS rows"
            )
            found = connection.execute(f"SELECT DISTINCT day FROM {differing} ORDER BY day")
            wrong[name] = [day for (day,) in found.fetchall()]
    return wrong
