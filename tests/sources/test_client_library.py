"""Sources that are asked by a library which is not installed: days stay as they were built, and say
what to install.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.servers


@pytest.mark.parametrize(
    ("source", "module"),
    [
        pytest.param("PostgresTable('o', 'at', url='postgresql://db/o')", "psycopg", id="psycopg"),
        pytest.param("Kafka('o', 'broker:9092')", "confluent_kafka", id="confluent-kafka"),
    ],
)
def test_a_missing_client_library_fails_each_day_and_is_named(source, module, golden):
    program = (
        f"import sys; sys.modules['{module}'] = None\nfrom datetime import date; from pathlib"
        " import Path; from backfill_assets import Kafka, LandingArea, PostgresTable\nfor day,"
        f" each in {source}.delivered(LandingArea(Path()), [date(2024, 6, 1), date(2024, 6,"
        " 2)]).items():\n    print(type(each).__name__, each)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    types = [line.partition(" ")[0] for line in done.stdout.splitlines()]
    assert types == ["IncompleteDelivery"] * 2, done.stderr
    golden(done.stdout)
