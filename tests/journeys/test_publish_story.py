"""Ten days by another rule, rebuilt unseen, get to readers; and they are taken back, without the
night in between.

On real servers, whose project is a copy that is edited while they run. The lake begins as the demo
left it, with all 60 days. A wrong rule is stopped in test_story.py.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import backfill_assets
from backfill_assets.calendar import between
from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.names import own
from backfill_assets.dagster_client.requests import reload
from backfill_assets.datasets.outages.sample import LAST_DAY
from backfill_assets.errors import UsageError
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.releases import Releases
from backfill_assets.settings import BUNDLED
from backfill_assets.verify.checklist import CheckOutcome
from backfill_assets.verify.verify import Verdicts
from tests.worlds.outages import DAILY, DAILY_V2, HISTORY, OUTAGES, World, differing_days
from tests.worlds.servers import environment, project_copy, servers_of
from tests.worlds.station import FIRST, Station, eventually

pytestmark = pytest.mark.nightly

REBUILT = list(between(FIRST, date(2019, 8, 24)))
# The horizon before it ends after these days: no row of the night is about a day of the plan.
NIGHT = LAST_DAY + timedelta(days=1)
HORIZON = list(between(NIGHT - timedelta(days=14), NIGHT))
TABLES = (OUTAGES, DAILY, DAILY_V2, HISTORY)

RULE = "return last_state(updates.where(PLACED))"
# The customers of an outage are to be the most that it ever had, and not those that were left at
# its end.
BY_THE_PEAK = f'{RULE}.withColumn("customers", F.col("peak_customers"))'
# What the tables of these days hold by the new rule, computed by DuckDB from what they held before.
BY_THE_NEW_RULE = {
    OUTAGES: "SELECT * REPLACE (peak_customers AS customers) FROM before",
    DAILY: (
        "SELECT * REPLACE (peak_customers AS customers, (sum(peak_customers) OVER week)::BIGINT AS"
        " customers_7d) FROM before WINDOW week AS (PARTITION BY region ORDER BY outage_day RANGE"
        " INTERVAL 6 DAYS PRECEDING)"
    ),
}


@dataclass(frozen=True)
class Live:
    """The tables of live, read without the code under test: rows, and the data files."""

    rows: dict[str, pa.Table]
    files: dict[str, list[str]]

    @classmethod
    def of(cls, station: Station) -> "Live":
        tables = {name: DeltaTable(station.lake.path(name)) for name in TABLES}
        files = {name: sorted(table.file_uris()) for name, table in tables.items()}
        return cls({name: table.to_pyarrow_table() for name, table in tables.items()}, files)


def differing(one: dict[str, pa.Table], other: dict[str, pa.Table]) -> dict[str, set[date]]:
    """By table, the days of which rows differ; tables without one are left out."""
    unequal = [name for name in one if not in_order(one[name]).equals(in_order(other[name]))]
    return {
        name: days
        for name in unequal
        if (days := differing_days(one[name], other[name], "outage_day"))
    }


def in_order(rows: pa.Table) -> pa.Table:
    """Rows by their key, columns by their name."""
    return rows.sort_by([(name, "ascending") for name in rows.column_names[:2]]).select(
        sorted(rows.column_names)
    )


def read_by(channel: str) -> dict[str, pa.Table]:
    """What readers of a channel get."""
    return {name: backfill_assets.read(name, channel=channel).to_table() for name in TABLES}


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory, sixty: World) -> Iterator[Station]:
    home = tmp_path_factory.mktemp("story")
    sixty.copied(home)
    project = project_copy(home)
    with (
        servers_of(home, environment(home, NIGHT, project, own_engine=False), project) as servers,
        pytest.MonkeyPatch.context() as settings,
    ):
        settings.setenv("BACKFILL_LAKE", str(home / "lake"))  # where this process reads releases
        yield servers


@pytest.fixture(scope="module")
def before(station: Station) -> Live:
    return Live.of(station)


def edit(station: Station) -> None:
    """Give staging/outages another rule, and let the running servers load it."""
    source = station.project / "backfill_assets" / "datasets" / "outages" / "staging.py"
    before, rule, after = source.read_text().partition(RULE)
    assert rule
    source.write_text(before + BY_THE_PEAK + after)
    reload(station.dagster, BUNDLED)


def rebuild(station: Station) -> str:
    """Build these days by the rule as it is, in a shadow; the plan's id."""
    days = f"{REBUILT[0]}..{REBUILT[-1]}"
    flags = (
        "--target",
        f"{OUTAGES}+",
        "--force",
        "--into",
        "shadow",
        "--canary",
        "0",
        "--reason",
        "customers at the peak",
    )
    return str(station.asked_json("run", "--partitions", days, *flags, "--yes")["plan"])


def lines(station: Station, plan: str, outcome: CheckOutcome) -> list[str]:
    """The lines of the plan's newest verdict that came to this."""
    verdict = Verdicts(station.lake.root).newest(plan)
    assert verdict
    return [line.name for line in verdict.lines if line.outcome == outcome]


@pytest.fixture(scope="module")
def candidate(station: Station, before: Live) -> str:
    """The plan of another rule, whose preview readers of `candidate` get."""
    edit(station)
    plan = rebuild(station)
    assert f"Plan {plan}: needs a decision" in station.backfill("verify", plan, code=4)
    undecided = lines(station, plan, CheckOutcome.DECISION)
    assert f"changes {OUTAGES}" in undecided
    accept = [word for name in undecided for word in ("--accept", name)]
    assert ": passed (" in station.backfill(
        "verify", plan, *accept, "--reason", "crews restore step by step"
    )
    assert station.materialized(f"shadow/{OUTAGES}") == f"{REBUILT[0]}..{REBUILT[-1]}"
    station.backfill("preview", plan, "--channel", "candidate")
    return plan


@pytest.fixture(scope="module")
def tried(station: Station, before: Live, candidate: str) -> dict[str, pa.Table]:
    """The rows that readers of `candidate` get."""
    return read_by("candidate")


def test_readers_of_candidate_get_the_fixed_days_and_those_of_stable_what_they_had(
    station, before, tried
):
    assert differing(read_by("stable"), before.rows) == {}
    assert Live.of(station).files == before.files
    rebuilt = differing(before.rows, tried)
    assert rebuilt[OUTAGES] <= set(REBUILT)
    assert len(rebuilt[OUTAGES]) > 6
    for name, rule in BY_THE_NEW_RULE.items():
        with duckdb.connect() as database:
            expected = database.register("before", before.rows[name]).sql(rule).to_arrow_table()
        assert differing_days(expected, tried[name], "outage_day") & set(REBUILT) == set(), name


def test_a_day_of_the_release_is_reproduced_and_one_of_the_old_rule_is_not(station, before, tried):
    of_stable = (
        str(REBUILT[7]),
        "--release",
        str(open_channel(station.lake.root, "stable").number),
    )
    answer = station.asked_json("reproduce", DAILY, *of_stable)
    assert (answer["result"], answer["rebuilt_fingerprint"]) == (
        "same",
        answer["build"]["fingerprint"],
    )
    old = json.loads(station.backfill("reproduce", OUTAGES, *of_stable, "--json", code=4))
    assert (old["result"], old["rebuilt_rows"]) == ("other code", 0)


def deliver_the_night(station: Station) -> None:
    """A day after the sample's last one: its lines, a day later, about outages of their own."""

    def later(line: bytes) -> bytes:
        event = json.loads(line)
        captured = datetime.fromisoformat(event["_captured_at"]) + timedelta(days=1)
        started = str(int(event["outageStartTime"]) + 86_400)
        moved = {"outageNumber": f"9{event['outageNumber']}", "outageStartTime": started}
        return json.dumps(
            event | moved | {"_captured_at": f"{captured.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"}
        ).encode()

    folder = station.landing / "outage_events" / f"year={NIGHT:%Y}" / f"month={NIGHT:%m}"
    last, new = (folder / f"day={day:%d}" / "events.jsonl.gz" for day in (LAST_DAY, NIGHT))
    new.parent.mkdir()
    new.write_bytes(
        gzip.compress(
            b"\n".join(map(later, gzip.decompress(last.read_bytes()).splitlines())) + b"\n"
        )
    )


@pytest.fixture(scope="module")
def night(station: Station, tried: dict[str, pa.Table]) -> Live:
    """Live after the nightly run of the day after, once it is released."""
    deliver_the_night(station)
    released = Releases(station.lake.root).newest()
    selector = {
        "repositoryName": "__repository__",
        "repositoryLocationName": BUNDLED,
        "jobName": own("nightly"),
    }
    ends = {
        "dagster/asset_partition_range_start": str(HORIZON[0]),
        "dagster/asset_partition_range_end": str(NIGHT),
    }
    params = {
        "selector": selector,
        "runConfigData": {"resources": {"backfill_options": {"config": {"skip_not_due": True}}}},
        "executionMetadata": {
            "tags": [{"key": key, "value": value} for key, value in ends.items()]
        },
    }
    run = station.ask(documents.LAUNCH_RUN, params=params)["run"]["runId"]
    assert station.ended(run)["status"] == "SUCCESS"
    eventually(
        lambda: Releases(station.lake.root).newest() != released, what="the night is released"
    )
    return Live.of(station)


def shadow_is_unknown(station: Station) -> bool:
    try:
        station.materialized(f"shadow/{OUTAGES}")
    except UsageError as error:
        return "AssetNotFoundError" in error.what
    return False


def test_a_night_in_between_goes_to_stable_and_the_plan_is_added_to_it(
    station, candidate, before, tried, night
):
    assert differing(read_by("stable"), night.rows) == {}
    assert differing(read_by("candidate"), tried) == {}
    printed = station.backfill("publish", candidate)
    assert f"Plan {candidate} is published as release " in printed
    eventually(lambda: shadow_is_unknown(station), what="Dagster has no asset of the shadow")
    assert differing(read_by("stable"), read_by("candidate")) == {}
    assert differing(night.rows, read_by("stable")) == differing(before.rows, tried)


def test_rolled_back_live_has_the_rows_from_before_and_those_of_the_night(
    station, candidate, before, night
):
    of_night = differing(before.rows, night.rows)
    assert of_night.keys() == set(TABLES)
    assert all(NIGHT in days and days <= set(HORIZON) for days in of_night.values())
    printed = station.backfill(
        "rollback", candidate, "--yes", "--reason", "the customers that were left are wanted again"
    )
    assert (
        f"Plan {candidate} is rolled back: {len(TABLES) * len(REBUILT)} partition(s) have the rows"
        " from before it." in printed
    )
    after = Live.of(station)
    assert differing(before.rows, after.rows) == of_night
    assert not any(days & set(HORIZON) for days in differing(night.rows, after.rows).values())
    station.backfill("release", "--reason", "do not wait for the sensor")
    assert differing(read_by("stable"), after.rows) == {}
