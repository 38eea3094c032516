"""Figures of the record: what plans, releases and runs changed, and what rules found.

The record of a long history has a million builds, so SQL counts them. Builds that the ledger lacks
are left out. No Spark.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.ledger import COMMITTED, Days, Ledger
from backfill_assets.lake.shadow import ledgers_of_shadows

_SHORT = (
    "table", "day", "outcome", "run", "rows", "delta_version", "seconds", "plan", "who", "reason",
    "accept", "git_commit", "act", "at",
)  # fmt: skip
# Most of the ledger, so they are read for some days only.
_LONG = ("table", "day", "outcome", "at", "rows", "nulls", "checks")
# The builds that changed the rows of live. A removed day has none.
_WRITTEN = f"""written AS (
  SELECT "table", day, "at", delta_version AS version, IF(outcome = 'removed', 0, rows) AS rows
  FROM builds WHERE shadow = '' AND outcome IN {COMMITTED})"""
# A row for each of the `plans` and each table: the days by the outcome of the last attempt, their
# seconds, and the rows of the changed days. A publication repeats the seconds of the build.
BY_PLAN = f"""
WITH {_WRITTEN}, days AS (
  SELECT plan, "table", day, arg_max(outcome, "at") AS outcome, arg_max(rows, "at") AS rows,
    min("at") AS "at", sum(DISTINCT seconds) AS seconds
  FROM builds WHERE plan IN (SELECT unnest($plans)) AND outcome NOT IN ('audited', 'refused')
  GROUP BY ALL)
SELECT days.plan, days."table", count(*) FILTER (outcome = 'accepted') AS changed,
  count(*) FILTER (outcome = 'unchanged') AS unchanged,
  count(*) FILTER (outcome = 'failed') AS failed,
  coalesce(sum(written.rows) FILTER (outcome = 'accepted'), 0)::BIGINT AS rows_before,
  coalesce(sum(days.rows) FILTER (outcome = 'accepted'), 0)::BIGINT AS rows_after,
  sum(days.seconds) AS seconds
FROM days ASOF LEFT JOIN written
  ON written."table" = days."table" AND written.day = days.day AND written."at" < days."at"
GROUP BY ALL ORDER BY days."table"
"""
# A row for each release and each table with changed days: their number, and their rows. `versions`
# has a release `r`, the `name` of a table, and its `path`, `version` and `id`. Versions of a table
# that was made again, or of another table, cannot be compared.
BY_RELEASE = f"""
WITH {_WRITTEN}, pairs AS (
  SELECT r, name, path, version AS after, lag([path, id]) OVER of_name AS place_before,
    CASE WHEN place_before = [path, id] THEN lag(version) OVER of_name ELSE -1 END AS before
  FROM (SELECT unnest($versions, recursive := true))
  WINDOW of_name AS (PARTITION BY name ORDER BY r)),
days AS (
  SELECT r, name, path, day, before, arg_max(rows, version) AS rows
  FROM pairs JOIN written ON path = "table" AND version > before AND version <= after
  GROUP BY ALL),
earlier AS (
  SELECT * FROM written
  WHERE ("table", day) IN (SELECT (path, day) FROM days WHERE before >= 0))
SELECT r AS release, name AS "table", count(*) AS days, min(days.day) AS first,
  max(days.day) AS last, coalesce(sum(earlier.rows), 0)::BIGINT AS rows_before,
  sum(days.rows)::BIGINT AS rows_after
FROM days ASOF LEFT JOIN earlier
  ON earlier."table" = path AND earlier.day = days.day AND earlier.version <= days.before
GROUP BY ALL ORDER BY r, name
"""
# The `last` runs and acts: who, why, and the days of each table by outcome.
BY_RUN = """
WITH parts AS (
  SELECT run, act, plan, who, reason, accept, git_commit, shadow, "table", outcome,
    count(DISTINCT day) AS days, min(day) AS first, max(day) AS last, max("at") AS "at"
  FROM builds GROUP BY ALL)
SELECT run, act, plan, who, reason, accept, git_commit, shadow, max("at") AS "at",
  list({'table': "table", 'outcome': outcome, 'days': days, 'first': first, 'last': last}
    ORDER BY "table", outcome) AS tables
FROM parts GROUP BY ALL ORDER BY "at" DESC LIMIT $last
"""
# A row for each table and rule, with the last verdict on each day. A day that was committed
# although a rule refuses it was accepted by name.
BY_RULE = """
WITH days AS (
  SELECT "table", day, arg_max(outcome, "at") AS outcome, arg_max(checks, "at") AS checks
  FROM builds WHERE checks <> '[]' GROUP BY ALL),
verdicts AS (
  SELECT "table", day, outcome, unnest(json_transform(checks, '[{"rule": "VARCHAR",
    "passed": "BOOLEAN", "severity": "VARCHAR", "message": "VARCHAR", "rows": ["VARCHAR"]}]'),
    recursive := true)
  FROM days)
SELECT "table", rule, list({'day': day, 'result': CASE WHEN passed THEN 'passed'
    WHEN severity = 'warning' THEN 'warning'
    WHEN outcome IN ('failed', 'refused') THEN 'refused' ELSE 'accepted' END,
  'message': message, 'rows': "rows"} ORDER BY day) AS days
FROM verdicts GROUP BY ALL ORDER BY "table", min(CASE WHEN passed THEN 1 ELSE 0 END), rule
"""
# A row for each table: the rows of each day, and columns whose share of nulls moved by half a
# percent or more, those that moved most first.
BY_DAY = """
WITH days AS (
  SELECT "table", day, arg_max(rows, "at") AS rows, arg_max(nulls, "at") AS nulls
  FROM builds WHERE outcome NOT IN ('failed', 'audited', 'refused') GROUP BY ALL
  HAVING arg_max(outcome, "at") <> 'removed'),
counts AS (
  SELECT "table", day, rows, unnest(map_entries(nulls), recursive := true)
  FROM (SELECT * REPLACE (nulls::JSON::MAP(VARCHAR, BIGINT) AS nulls) FROM days WHERE rows > 0)),
columns AS (
  SELECT "table", key AS name, list({'day': day, 'value': value / rows} ORDER BY day) AS days,
    max(value / rows) - min(value / rows) AS moved
  FROM counts GROUP BY ALL HAVING moved >= 0.005)
SELECT "table", list({'day': day, 'value': rows} ORDER BY day) AS days,
  (SELECT list(columns ORDER BY moved DESC, name) FROM columns
    WHERE columns."table" = days."table") AS columns
FROM days GROUP BY ALL ORDER BY "table"
"""


def builds_of(root: str) -> pa.Table:
    """The builds of the lake at `root` and of its shadows, whose plan is in the column `shadow`.

    Times are UTC, without a time zone.
    """
    parts = [_read(Ledger(root), "", _SHORT)]
    for plan, ledger in ledgers_of_shadows(root).items():
        with suppress(TableUnreadable, OSError):  # it is being deleted
            parts.append(_read(ledger, plan, _SHORT))
    return pa.concat_tables(parts)


def builds_with_figures(root: str, days: Days) -> pa.Table:
    """The builds of these days in live, with figures and verdicts."""
    return _read(Ledger(root), "", _LONG, days)


def _read(
    ledger: Ledger, shadow: str, columns: Sequence[str], days: Days | None = None
) -> pa.Table:
    rows = ledger.rows(columns, days)
    # Without a time zone, DuckDB needs no other package.
    times = rows["at"].cast(pa.timestamp("us"))
    rows = rows.set_column(rows.column_names.index("at"), "at", times)
    return rows.append_column("shadow", pa.repeat(shadow, rows.num_rows))


def asked(builds: pa.Table, sql: str, **values: Any) -> list[dict[str, Any]]:
    """The rows that one of the queries above finds in these builds."""
    # Loading takes a moment, which no other command needs.
    import duckdb

    with duckdb.connect() as database:
        database.register("builds", builds)
        answer = database.execute(sql, values or None)
        names = [column for column, *_ in answer.description or ()]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
