"""Tables made from a Kafka topic, on a real broker, and what is said where it cannot be read."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backfill_assets import rules, same_day, table
from backfill_assets.calendar import Calendar
from backfill_assets.errors import NotDelivered, SourceError, StillWritten
from backfill_assets.lake.history import latest
from backfill_assets.lake.lake import Lake
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.kafka.source import Kafka
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day, days
from tests.worlds.kafka import PASSWORD, USER, at

CONNECTS = "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1"


@pytest.fixture
def area(tmp_path: Path) -> LandingArea:
    return LandingArea(tmp_path, tmp_path / "landed")


def test_what_cannot_be_read_says_why(topic, area):
    source = topic.source
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
    }

    def why(asked: Kafka, now: LandingArea = area) -> SourceError:
        delivered = asked.delivered(now, [day(0)])[day(0)]
        assert isinstance(delivered, SourceError)
        return delivered

    missing = why(source)
    assert (type(missing), str(missing)) == (
        NotDelivered, f"no source for {day(0)}: there is no topic {topic.name} at {topic.broker.address}",
    )  # fmt: skip
    assert topic.name not in topic.broker.admin.list_topics(timeout=10).topics, "asking makes none"
    impatient = {"socket.timeout.ms": "1500"}
    silent = why(Kafka("events", "127.0.0.1:1", impatient))
    refused = why(
        Kafka("events", topic.broker.with_login, login | impatient | {"sasl.password": "another"})
    )
    misspelt = why(Kafka("events", topic.broker.address, {"security.protocoll": "SSL"}))
    assert isinstance(misspelt, StillWritten)
    assert (
        str(misspelt)
        == f"no source for {day(0)}: {topic.broker.address} cannot be asked for the topic events"
        ' (No such configuration property: "security.protocoll")'
    )
    assert isinstance(silent, StillWritten), "what was built stays up to date meanwhile"
    assert (
        str(silent)
        == f"no source for {day(0)}: 127.0.0.1:1 cannot be asked for the topic events ({CONNECTS}"
        " failed: Connection refused)"
    )
    unset = why(
        Kafka("events", topic.broker.with_login, login | {"sasl.password": "env:OF_NOBODY"})
    )
    assert (
        str(unset)
        == f"no source for {day(0)}: the environment variable OF_NOBODY is not set; set it where"
        " the servers and the commands are started"
    )
    assert (type(refused), "Authentication failed" in str(refused)) == (StillWritten, True)
    topic.create(**{"cleanup.policy": "compact"})
    assert type(why(source)) is SourceError
    assert str(why(source)).endswith(
        "is compacted (cleanup.policy): what it has of a day changes without notice"
    )
    not_over = why(source, replace(area, clock=lambda: (at(1) - 1) / 1000))
    assert (
        str(not_over)
        == f"{day(0)} is not over yet: the records of {topic.name} are read from {day(1)} on"
    )
    assert isinstance(not_over, StillWritten)


def test_a_login_is_made_by_both_clients_with_a_password_of_the_environment(
    topic, area, spark, monkeypatch
):
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    topic.create().send(at(0))
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
    }
    source = Kafka(
        topic.name, topic.broker.with_login, login | {"sasl.password": "env:KAFKA_PASSWORD"}
    )
    (row,) = source.read(area, spark, days(0)).collect()
    assert bytes(row.value) == topic.records[0][0][1]
    assert PASSWORD not in repr(source)


def tables(source: Kafka) -> tuple[Table, ...]:
    @table(
        "raw/events",
        partition_by="arrival_day",
        columns=(
            "arrival_day DATE, event STRING, at TIMESTAMP, partition INT, offset BIGINT, key BINARY"
        ),
        reads={"records": source},
        key=["partition", "offset"],
        rules=[rules.unique_key()],
        version="1",
    )
    def events(records):
        return records.selectExpr(
            "arrival_day", "string(value) event", "timestamp at", "partition", "offset", "key"
        )

    @table(
        "staging/events_daily",
        partition_by="arrival_day",
        columns="arrival_day DATE, events BIGINT",
        reads={"events": same_day(events)},
        version="1",
    )
    def events_daily(events):
        return events.groupBy("arrival_day").agg({"*": "count"}).toDF("arrival_day", "events")

    return events, events_daily


def test_days_of_a_topic_are_built_and_a_late_record_makes_exactly_its_day_outdated(
    topic, tmp_path, spark
):
    wanted = days(0, 1, 2)
    topic.create(2).send(at(0), at(1), at(1, hours=2), at(2)).send(at(0, hours=3), partition=1)
    declared = tables(topic.source)
    lake = Lake(str(tmp_path / "lake"))
    settings = read_settings(lake=lake.root, landing=tmp_path)
    workspace = Workspace(
        settings,
        declared,
        Calendar(day(0), day(2)),
        lake,
        LandingArea(tmp_path, tmp_path / "landed"),
    )

    def run(run: str) -> dict[str, list[date]]:
        results = [
            Step(each, workspace, StepRequest(run=run), lambda: spark).run(wanted)
            for each in declared
        ]
        assert all(build.succeeded for result in results for build in result.built), results
        return {result.table.name: [build.day for build in result.built] for result in results}

    def built() -> list[tuple]:
        raw = DeltaTable(lake.path("raw/events")).to_pyarrow_table().to_pylist()
        return sorted(
            (r["arrival_day"], r["partition"], r["offset"], r["at"], r["event"].encode())
            for r in raw
        )

    def states() -> dict[State, list[date]]:
        return status_of(workspace, declared, wanted, latest=latest_builds(workspace)).of(
            "raw/events"
        )

    assert run("first") == {"raw/events": wanted, "staging/events_daily": wanted}
    assert built() == topic.expected(wanted)
    assert states() == {State.UP_TO_DATE: wanted}
    topic.send(at(1, hours=5), partition=1)
    assert states() == {State.UP_TO_DATE: days(0, 2), State.SOURCE_CHANGED: days(1)}
    why = (
        status_of(workspace, declared, wanted, latest=latest_builds(workspace))
        .partitions["raw/events", day(1)]
        .why
    )
    assert why == f"1 file(s) changed: {topic.name}/1@1 came"
    assert run("second") == {"raw/events": days(1), "staging/events_daily": days(1)}
    assert built() == topic.expected(wanted)
    recorded = {
        at: build.hashes
        for (_, at), build in latest(lake.ledger, {"raw/events": None}).accepted.items()
    }
    name = topic.name
    assert recorded == {
        day(0): {f"{name}/0@0": "0..0", f"{name}/1@0": "0..0"},
        day(1): {f"{name}/0@1": "1..2", f"{name}/1@1": "1..1"},
        day(2): {f"{name}/0@3": "3..3"},
    }
    topic.delete_before(3)
    assert states() == {State.UP_TO_DATE: wanted}, "what was built of them stays"
    assert workspace.packages == topic.source.packages
