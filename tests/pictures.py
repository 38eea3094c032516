"""The README's three pictures of days, from a real run of the bundled data: `python -m
tests.pictures`.

A correction of three days arrives, the plan is built in a shadow and verified, and readers get it.
"""

import tempfile
from pathlib import Path

from backfill_assets.calendar import between
from backfill_assets.dagster_client.client import Dagster
from tests.worlds.deliveries import day
from tests.worlds.servers import PROJECT, Up, demo, environment, redeliver
from tests.worlds.station import Station

FOLDER = Path(__file__).parents[1] / ".readme"
CORRECTED = list(between(day(19), day(21)))
REASON = "three days were corrected"
DECISION = ["--accept", "*", "--reason", "as the correction says"]
# Checks need a decision.
CODES = {"verify": 4}


def draw(station: Station) -> None:
    """Play the story on the servers of a demo, and draw the plan after each act."""
    station.backfill("release", "--reason", "the days of the demo")
    for corrected in CORRECTED:
        redeliver(station, corrected)
    days = f"{CORRECTED[0]}..{CORRECTED[-1]}"
    which = ["--partitions", days, "--only", "outdated", "--downstream"]
    plan = station.asked_json("plan", *which, "--reason", REASON)["id"]
    for name, commands in (
        ("correction", []),
        ("shadow", [["run", plan, "--yes"], ["verify", plan], ["verify", plan, *DECISION]]),
        ("published", [["publish", plan]]),
    ):
        for command in commands:
            code = 0 if "--accept" in command else CODES.get(command[0], 0)
            station.backfill(*command, code=code)
        number = 1 + ("correction", "shadow", "published").index(name)
        station.backfill("show", plan, "--svg", str(FOLDER / f"days-{number}-{name}.svg"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        made = demo(home)
        assert made.code == 0, made.printed
        env = environment(home, day(59))
        up = Up(home, PROJECT, env)
        up.start()
        try:
            url = f"http://127.0.0.1:{up.port}"
            draw(Station(Dagster(url), home, home / "landing", PROJECT, env, up))
        finally:
            up.end()


if __name__ == "__main__":
    main()
