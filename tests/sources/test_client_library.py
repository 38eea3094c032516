"""Sources that are asked by a library which is not installed: days stay as they were built, and say
what to install.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.servers


@pytest.mark.parametrize(
    ("source", "module", "said"),
    [
        pytest.param(
            "PostgresTable('o', 'at', url='postgresql://db/o')",
            "psycopg",
            "db/o cannot be read: psycopg is not installed",
            id="psycopg",
        ),
        pytest.param(
            "Kafka('o', 'broker:9092')",
            "confluent_kafka",
            "broker:9092 cannot be read: confluent-kafka is not installed",
            id="confluent-kafka",
        ),
    ],
)
def test_a_missing_client_library_fails_each_day_and_is_named(source, module, said):
    program = (
        f"import sys; sys.modules['{module}'] = None\nfrom datetime import date; from pathlib"
        " import Path; from backfill_assets import Kafka, LandingArea, PostgresTable\nfor day,"
        f" each in {source}.delivered(LandingArea(Path()), [date(2024, 6, 1), date(2024, 6,"
        " 2)]).items():\n    print(type(each).__name__, each)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    extra = {"psycopg": "postgres", "confluent_kafka": "kafka"}[module]
    assert [line.partition(" (")[0] for line in lines] == [
        f"IncompleteDelivery no source for 2024-06-0{n}: {said}" for n in (1, 2)
    ], done.stderr
    assert all(line.endswith(f"pip install 'backfill-assets[{extra}]'") for line in lines)
