"""A PostgreSQL table as a source, on a real server.

Only changed days are built.
"""

import io
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import replace

import duckdb
import pytest
from pyspark.sql import SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.lake.history import latest
from backfill_assets.plan.status import State
from backfill_assets.quality.rule import DayProfile, Judged, Rule
from backfill_assets.sources.postgres.source import PostgresTable
from backfill_assets.tables.declaration import Table, table
from tests.worlds.deliveries import day, days
from tests.worlds.projects import OneTable, Rows
from tests.worlds.suite import SAMPLE, SUITE

NAME = "raw/updates"
COLUMNS = "arrival_day DATE, outage BIGINT, seen_at TIMESTAMP, cause STRING, customers INT"
FOUR = days(0, 1, 2, 3)
# In every query by which Spark reads rows, and in no other.
READS = ") AS r  WHERE ("
# Other tests use the same engine meanwhile.
PATIENCE_S = 120
# What the sample's files hold, by DuckDB.
EXPECTED = """
    SELECT make_date(y, m, d) AS arrival_day, outageNumber::BIGINT AS outage,
        _captured_at::TIMESTAMP AS seen_at, cause,
        estCustAffected::INT AS customers
    FROM (SELECT *, {} FROM read_json({}, format='newline_delimited', filename=true,
        columns={{outageNumber: 'VARCHAR', _captured_at: 'VARCHAR', cause: 'VARCHAR',
            estCustAffected: 'VARCHAR'}}))
"""


def raw(source: PostgresTable, rules: Sequence[Rule] = ()) -> Table:
    declare = table(
        NAME,
        partition_by="arrival_day",
        columns=COLUMNS,
        reads={"rows": source},
        rules=rules,
        version="1",
    )
    return declare(lambda rows: rows.drop("received_on"))


@pytest.fixture(autouse=True)
def password(postgres, monkeypatch):
    monkeypatch.setenv("READER_PASSWORD", postgres.password)


@pytest.fixture
def sample(postgres) -> Rows:
    """The rows of four days of the sample, which are in the database too."""
    parts = ", ".join(
        f"regexp_extract(filename, '{part}=(\\d+)', 1)::INT AS {part[0]}"
        for part in ("year", "month", "day")
    )
    files = [
        str(path)
        for at in FOUR
        for path in (SAMPLE / "outage_events").glob(f"year={at:%Y/month=%m/day=%d}/*")
    ]
    with duckdb.connect() as database:
        rows = database.execute(EXPECTED.format(parts, files)).fetchall()
    postgres.execute(
        "DROP TABLE IF EXISTS updates CASCADE",
        "CREATE TABLE updates (received_on date, outage bigint, seen_at timestamp, cause text,"
        " customers int)",
    )
    with (
        postgres.connected() as connection,
        connection.cursor().copy("COPY updates FROM STDIN") as copy,
    ):
        for row in rows:
            copy.write_row(row)
    return sorted(rows, key=repr)


@pytest.fixture
def project(postgres, sample, tmp_path, spark) -> OneTable:
    source = PostgresTable(
        "updates", "received_on", postgres.url, time_zone="UTC", password_env="READER_PASSWORD"
    )
    return OneTable(tmp_path, raw(source), lambda: spark, Calendar(FOUR[0], FOUR[-1]))


def test_days_are_built_from_the_database_and_only_a_changed_one_again(
    project, postgres, sample, golden
):
    assert [build.rows for build in project.run().built] == [
        sum(row[0] == at for row in sample) for at in FOUR
    ]
    assert project.rows() == sample
    assert project.outdated() == []
    chosen = next(row for row in sample if row[0] == FOUR[1])
    postgres.execute(
        "UPDATE updates SET cause = 'squirrel' WHERE ctid = (SELECT ctid FROM updates WHERE"
        f" received_on = '{FOUR[1]}' AND outage = {chosen[1]} AND seen_at = '{chosen[2]}' LIMIT 1)"
    )
    assert project.outdated() == [FOUR[1]]
    golden(project.status().partitions[NAME, FOUR[1]].why)
    assert {build.day for build in project.run().built} == {FOUR[1]}
    assert project.rows() == sorted(
        [*(row for row in sample if row is not chosen), (*chosen[:3], "squirrel", chosen[4])],
        key=repr,
    )
    postgres.execute(f"DELETE FROM updates WHERE received_on = '{FOUR[2]}' AND outage % 10 > 1")
    golden(project.status().partitions[NAME, FOUR[2]].why, "rows deleted")


@pytest.mark.scale
def test_a_change_between_looking_and_reading_is_built_with_the_state_that_it_made(
    project, postgres, sample, spark
):
    asked = list[int]()

    def change_once() -> SparkSession:
        if not asked:
            postgres.execute(f"UPDATE updates SET customers = -1 WHERE received_on = '{FOUR[0]}'")
        asked.append(1)
        return spark

    assert not replace(project, spark=change_once).run().failed()
    # The step started again.
    assert len(asked) == 2
    assert project.rows() == sorted(
        ((*r[:4], -1) if r[0] == FOUR[0] else r for r in sample), key=repr
    )
    assert project.outdated() == []


@pytest.mark.scale
def test_a_change_that_is_taken_back_before_the_commit_does_not_come_in(
    project, postgres, sample, spark
):
    asked = list[int]()
    judged = list[int]()

    def change_once() -> SparkSession:
        if not asked:
            postgres.execute("UPDATE updates SET customers = customers + 1")
        asked.append(1)
        return spark

    def take_back(_: DayProfile) -> Judged:
        if not judged:
            postgres.execute("UPDATE updates SET customers = customers - 1")
        judged.append(1)
        return True, "", {}

    source = project.table.source()
    assert isinstance(source, PostgresTable)
    meddled = raw(source, [Rule("take_back", "A change is taken back.", take_back)])
    replace(project, table=meddled, spark=change_once).run()
    assert (len(asked), project.rows()) == (2, sample)


@pytest.fixture
def slowly(postgres) -> PostgresTable:
    """Two rows a day of forty, each of which takes a while to read."""
    postgres.execute(
        "DROP TABLE IF EXISTS updates CASCADE",
        f"CREATE TABLE updates AS SELECT date '{day(0)}' + n % 40 AS received_on, n::bigint AS"
        " outage, timestamp '2019-08-15' AS seen_at, 'x' AS cause, 1 AS customers FROM"
        " generate_series(1, 80) n",
        # Not volatile, so that it is called only where its value is read, which no look does. While
        # a test holds the lock, no row is read.
        "CREATE OR REPLACE FUNCTION slow(bigint) RETURNS bigint STABLE LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_sleep(0.03); PERFORM pg_advisory_xact_lock_shared(1); RETURN $1; END'",
        "CREATE VIEW slowly AS SELECT received_on, slow(outage) AS outage, seen_at, cause,"
        " customers FROM updates",
    )
    return PostgresTable(
        "updates",
        "received_on",
        postgres.url,
        table="slowly",
        time_zone="UTC",
        changed_at="customers",
        password_env="READER_PASSWORD",
    )


@pytest.mark.scale
def test_no_more_connections_are_open_than_declared(slowly, postgres, tmp_path, spark):
    postgres.execute("ALTER ROLE reader CONNECTION LIMIT 4")
    project = OneTable(tmp_path, raw(slowly), lambda: spark, Calendar(day(0), day(39)))
    locked = threading.Event()
    done = threading.Event()

    def most_at_once() -> int:
        """The most connections. Reading is held until two ranges and a look are connected."""
        most = 0
        with postgres.connected() as connection:
            connection.execute("SELECT pg_advisory_lock(1)")
            locked.set()
            give_up = time.monotonic() + PATIENCE_S
            held = True
            while not done.is_set():
                rows = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader'"
                ).fetchall()
                most = max(most, rows[0][0])
                if held and (most >= 3 or time.monotonic() > give_up):
                    connection.execute("SELECT pg_advisory_unlock(1)")
                    held = False
        return most

    def looks() -> set[str]:
        whys = set[str]()
        while not done.is_set():
            whys |= {each.why for each in project.status().partitions.values()}
        return whys

    before = len(postgres.statements(READS))
    try:
        with ThreadPoolExecutor() as threads:
            most = threads.submit(most_at_once)
            assert locked.wait(PATIENCE_S)
            whys = threads.submit(looks)
            try:
                result = project.run()
            finally:
                done.set()
    finally:
        postgres.execute("ALTER ROLE reader CONNECTION LIMIT -1")
    assert [build.rows for build in result.built] == [2] * 40
    # Two ranges and a look.
    assert 3 <= most.result() <= slowly.connections
    assert {why for why in whys.result() if "cannot be read" in why} == set()
    assert len(postgres.statements(READS)) - before == 2


@pytest.mark.scale
def test_a_server_that_dies_while_days_are_read_fails_them_and_changes_nothing(
    slowly, postgres, tmp_path, spark
):
    project = OneTable(tmp_path, raw(slowly), lambda: spark, Calendar(day(0), day(3)))
    assert len(project.run().built) == 4
    before = project.workspace.lake.version(NAME)
    rows = project.rows()
    postgres.execute("UPDATE updates SET customers = 2, outage = -outage")
    reading = (
        f"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%{READS}%'"
        " AND usename = 'reader'"
    )
    try:
        with ThreadPoolExecutor() as threads:
            run = threads.submit(project.run)
            while postgres.execute(reading) == [(0,)]:
                assert not run.done()
            postgres.stop(signal.SIGQUIT)
            failed = run.result().failed()
        assert [("cannot be read: " in build.message, build.day) for build in failed] == [
            (True, at) for at in FOUR
        ]
        status = project.status().partitions.values()
        assert {(each.state, "cannot be read: " in each.why) for each in status} == {
            (State.UP_TO_DATE, True)
        }
    finally:
        postgres.start()
    last = latest(project.workspace.lake.ledger, {NAME: None}).last
    assert {build.outcome for build in last.values()} == {"failed"}
    assert (project.workspace.lake.version(NAME), project.rows()) == (before, rows)
    assert [build.outcome for build in project.run().built] == ["accepted"] * 4
    assert {row[1] < 0 for row in project.rows()} == {True}


def test_no_password_is_in_what_is_recorded_or_logged(project, postgres, spark):
    project.run()
    written = [
        path
        for path in [*project.root.rglob("*"), *(SUITE / "engine").rglob("*")]
        if path.is_file()
    ]
    assert len(written) > 10
    assert [path for path in written if postgres.password.encode() in path.read_bytes()] == []
    shown = io.StringIO()
    with redirect_stdout(shown):
        project.table.source().read(project.workspace.area, spark, FOUR).explain("extended")
    assert "JDBCRelation" in shown.getvalue()
    assert postgres.password not in shown.getvalue()
