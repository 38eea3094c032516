"""The whole chain over 31 days through plans, on real servers: `python -m
tests.drills.whole_chain`. It takes some minutes.

The project is `outages.training`: raw, staging, features, and the examples that models are trained
on. A plan builds every day of all tables, and one forces all of them again. Then a day is delivered
with other causes, on which no total depends: the history is rebuilt for that day and stops there. A
day that loses its last lines changes the totals of all days after it. At the end the project
declares the examples that read `region_daily_v2`, models of four days are fitted to these, and one
of them is reproduced. After each plan every day must be up to date, and the rows of all tables
those that DuckDB computes from the files. Printed is what each plan did.
"""

import gzip
import json
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.datasets.outages.restoration_examples import restoration_examples
from backfill_assets.datasets.outages.restoration_time import ASKED, TRAIN_DAYS, restoration_time
from backfill_assets.tables.columns import types_of
from tests.worlds.outages import ORACLE_TABLES, differences, oracle_of
from tests.worlds.servers import (
    LAST,
    MONTH,
    deliver,
    environment,
    file_of,
    project_copy,
    redeliver,
    servers_of,
)
from tests.worlds.station import FIRST, Station

SQL = (Path(__file__).parents[1] / "examples.sql").read_text().format(known_by="9999-01-01")
EXAMPLES = restoration_examples.name
MODELS = restoration_time.name
OTHER_CAUSES = date(2019, 8, 25)
FEWER_LINES = date(2019, 9, 3)
DAYS = ("--partitions", f"{FIRST}..{LAST}", "--into", "live", "--yes")
MODELS_OF = (LAST - timedelta(days=5), LAST - timedelta(days=2))
ONLY_CHANGED = (*DAYS, "--only", "outdated", "--downstream")
# What the project's module declares, and what it declares at the end.
SWITCHED = {
    "import restoration_examples\n": "import reading\n",
    "*TABLES, restoration_examples": "*TABLES, reading(region_daily_v2)",
    "import backfill_assets\n": (
        "import backfill_assets\nfrom backfill_assets.datasets.outages.features_v2 import"
        " region_daily_v2\n"
    ),
}


@dataclass
class Chain:
    """Servers on the project, and a line for each plan that was carried out."""

    station: Station
    shown: Drawn = field(
        default_factory=lambda: Drawn("plan", "planned", "built", "other rows", "seconds", "said")
    )
    regions: str = "region_daily"

    def carry_out(self, title: str, *arguments: str) -> dict[str, Any]:
        """Carry a plan out, and hold everything against DuckDB."""
        before = len(self.station.builds())
        began = time.monotonic()
        end: dict[str, Any] = self.station.asked_json("run", *arguments, "--reason", title)
        seconds = time.monotonic() - began
        builds = self.station.builds()[before:]
        self.station.backfill("status", "--check")
        self.hold_what_the_oracle_says()
        planned = sum(table["days"] for table in end["tables"].values())
        other = sum(build.outcome == "accepted" for build in builds)
        said = "\n".join([f"{end['saved']} up to date", *end["early_stops"]])
        self.shown.add_row(
            title, f"{planned}", f"{len(builds)}", f"{other}", f"{seconds:.0f}", said
        )
        assert (end["ending"], {build.plan for build in builds}) == ("done", {end["plan"]}), end
        return end | {"builds": builds}

    def hold_what_the_oracle_says(self) -> None:
        with oracle_of(self.station.landing, FIRST, LAST) as oracle:
            for name in ORACLE_TABLES:
                assert differences(oracle, name, self.rows(name))[:3] == [], name
            self._hold_examples(oracle)

    def _hold_examples(self, oracle: duckdb.DuckDBPyConnection) -> None:
        oracle.execute(re.sub(r"\bregion_daily\b", self.regions, SQL))
        oracle.register("held", self.rows(EXAMPLES))
        columns = ", ".join(types_of(restoration_examples.columns))
        expected = (
            f"(SELECT {columns} FROM restoration_examples WHERE outage_day BETWEEN '{FIRST}' AND"
            f" '{LAST}')"
        )
        for one, other in (("held", expected), (expected, "held")):
            query = f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other} LIMIT 3"
            assert oracle.execute(query).fetchall() == [], f"{EXAMPLES}, by {self.regions}"
        counts = oracle.execute(
            "SELECT count(*), count(region_day), count(restored_at) FROM held"
        ).fetchall()
        assert min(counts[0]) > 1_000, counts

    def hold_models(self) -> None:
        """Every model was fitted to the examples that were over before its day, as DuckDB finds
        them, and beats the median.
        """
        figures = (
            "outage_day",
            "trained_from",
            "trained_until",
            "trained_days",
            "training_examples",
            "training_median",
        )
        held = self.rows(MODELS).sort_by("outage_day")
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("examples", self.rows(EXAMPLES))
            expected = database.execute(
                f"""SELECT day, min(outage_day), max(outage_day),
                    count(DISTINCT outage_day), count(*),
                        median(restoration_minutes)
                    FROM examples
                    JOIN (SELECT unnest(range(DATE '{MODELS_OF[0]}', DATE '{MODELS_OF[1]}' + 1,
                        INTERVAL 1 DAY))::DATE AS day)
                        ON outage_day BETWEEN day - {TRAIN_DAYS} AND day - 1
                            AND restored_at < day::TIMESTAMPTZ
                    WHERE {ASKED} AND restoration_minutes IS NOT NULL GROUP BY day ORDER BY day"""
            ).fetchall()
        assert len(expected) == (MODELS_OF[1] - MODELS_OF[0]).days + 1
        assert [tuple(row[name] for name in figures) for row in held.to_pylist()] == expected
        assert min(held["better_by"].to_pylist()) > 0

    def rows(self, name: str) -> Any:
        return DeltaTable(self.station.lake.path(name)).to_pyarrow_table()


@contextmanager
def chain_in(folder: Path) -> Iterator[Chain]:
    home = folder / "home"
    project = project_copy(folder)
    home.mkdir()
    deliver(home / "landing", MONTH)
    env = environment(home, LAST, project) | {
        "BACKFILL_PROJECT": "backfill_assets.datasets.outages.training"
    }
    with servers_of(home, env, project) as station:
        yield Chain(station)


def with_other_causes(station: Station, day: date) -> None:
    """Deliver the day with another cause in the lines of outages that began on it and are gone by
    its end.
    """
    file = file_of(station, day)
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    gone = {
        line["outageNumber"]
        for line in lines
        if line["_op"] == "D" and int(line["outageStartTime"]) // 86400 == _number(day)
    }
    other = [
        line | {"cause": "It was caused by the weather."} if line["outageNumber"] in gone else line
        for line in lines
    ]
    file.write_bytes(gzip.compress("".join(f"{json.dumps(line)}\n" for line in other).encode()))


def _number(day: date) -> int:
    return (day - date(1970, 1, 1)).days


def switch(chain: Chain) -> None:
    """Declare the examples that read the other version of the region features."""
    module = chain.station.project / "backfill_assets" / "datasets" / "outages" / "training.py"
    text = module.read_text()
    for old, new in SWITCHED.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module.write_text(text)
    chain.station.backfill("reload")
    chain.regions = "region_daily_v2"


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="whole-chain-") as folder,
        chain_in(Path(folder)) as chain,
    ):
        station = chain.station
        chain.carry_out("every day", *DAYS)
        chain.carry_out("every day again", *DAYS, "--force")
        with_other_causes(station, OTHER_CAUSES)
        end = chain.carry_out("other causes", *ONLY_CHANGED)
        left = (LAST - OTHER_CAUSES).days
        assert [f"the {left} day(s) computed from it" in said for said in end["early_stops"]] == [
            True
        ], end["early_stops"]
        assert end["early_stops"][0] in " ".join(station.backfill("show", str(end["plan"])).split())
        redeliver(station, FEWER_LINES)
        assert chain.carry_out("fewer lines", *ONLY_CHANGED)["early_stops"] == []
        switch(chain)
        print(station.backfill("status", "--why", EXAMPLES, str(LAST)))
        print(station.backfill("plan", *ONLY_CHANGED))
        end = chain.carry_out("examples of region_daily_v2", *ONLY_CHANGED)
        assert not {build.table for build in end["builds"]} & ORACLE_TABLES.keys()
        assert {build.day for build in end["builds"] if build.table == EXAMPLES} == set(MONTH)
        chain.carry_out(
            "models",
            "--partitions",
            f"{MODELS_OF[0]}..{MODELS_OF[1]}",
            "--target",
            MODELS,
            "--into",
            "live",
        )
        chain.hold_models()
        print(station.backfill("reproduce", MODELS, str(MODELS_OF[1])))
        Console(width=180).print(chain.shown)


if __name__ == "__main__":
    main()
