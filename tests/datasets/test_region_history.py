"""`features/region_history` of sixty days, in every chunk of days that they can be cut into: the
totals are DuckDB's.
"""

import random
from pathlib import Path

import duckdb

from backfill_assets.datasets.outages.features import region_history
from tests.worlds.deliveries import days
from tests.worlds.regions import random_counts

SIXTY = days(*range(60))
# A chunk is its days from `first` to `last`. The regions of each bear its name: all chunks are
# computed side by side.
INPUTS = """
    CREATE TABLE daily AS SELECT * FROM (VALUES {values}) v(outage_day, region, outages, customers);
    CREATE TABLE days AS SELECT DISTINCT outage_day FROM daily;
    CREATE TABLE totals AS
    SELECT d.outage_day, region, CAST(sum(outages) AS BIGINT) AS outages_total,
           CAST(sum(customers) AS BIGINT) AS customers_total, count(*) AS days_with_outages,
           min(f.outage_day) AS first_outage_day
    FROM days d JOIN daily f ON f.outage_day <= d.outage_day GROUP BY ALL;
    CREATE TABLE chunks AS
    SELECT a.outage_day AS first, b.outage_day AS last, format('{{}}..{{}}', first, last) AS name
    FROM days a JOIN days b ON a.outage_day <= b.outage_day;
    COPY days TO '{folder}/days.parquet';
    COPY (SELECT t.* REPLACE (name || ' ' || region AS region) FROM totals t JOIN chunks ON outage_day = first - 1)
    TO '{folder}/before.parquet';
    COPY (SELECT f.* REPLACE (name || ' ' || region AS region) FROM daily f JOIN chunks ON outage_day BETWEEN first AND last)
    TO '{folder}/daily.parquet';
"""
# Days outside of a chunk are cut off, as a step does.
DIFFERENT = """
    WITH computed AS (
        SELECT * REPLACE (split_part(region, ' ', 2) AS region), split_part(region, ' ', 1) AS name
        FROM '{folder}/found/*.parquet'
    ), found AS (SELECT f.* FROM computed f JOIN chunks USING (name) WHERE outage_day BETWEEN first AND last),
    expected AS (SELECT t.*, name FROM totals t JOIN chunks ON outage_day BETWEEN first AND last)
    SELECT (SELECT count(*) FROM (FROM found EXCEPT ALL FROM expected)),
           (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM found)),
           (SELECT count(DISTINCT name) FROM found), (SELECT count(*) FROM found)
"""


def test_every_chunk_of_sixty_days_holds_the_totals_of_one_pass(spark, tmp_path: Path, seed: int):
    """Whatever days are cut into consists of these 1,830 chunks, each computed from the totals of
    the day before it.
    """
    counts = random_counts(random.Random(seed), SIXTY)
    rows = [
        f"(DATE '{at}', '{name}', {n}, {of})"
        for at in SIXTY
        for name, (n, of) in counts[at].items()
    ]
    with duckdb.connect() as database:
        database.execute(INPUTS.format(values=", ".join(rows), folder=tmp_path))
        inputs = {
            name: spark.read.parquet(f"{tmp_path}/{name}.parquet")
            for name in ("days", "before", "daily")
        }
        region_history(**inputs).write.parquet(f"{tmp_path}/found")
        ((more, missing, chunks, found),) = database.execute(
            DIFFERENT.format(folder=tmp_path)
        ).fetchall()
    assert (more, missing, chunks) == (0, 0, 60 * 61 // 2)
    assert found > 100_000
