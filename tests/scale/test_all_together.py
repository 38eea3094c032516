"""The demo on a cluster, an object store and PostgreSQL at once: `tests/drills/scale_out.py`."""

from datetime import timedelta

import pytest

from backfill_assets.datasets.outages.sample import FIRST_DAY
from tests.drills.scale_out import demo, machines, wrong_rows
from tests.worlds.outages import ORACLE_TABLES

pytestmark = pytest.mark.nightly

LAST = FIRST_DAY + timedelta(days=2)


def test_the_demo_needs_only_settings_for_a_cluster_a_store_and_postgres(
    tmp_path_factory, monkeypatch
):
    root = tmp_path_factory.mktemp("together")
    with machines(root) as found:
        printed = demo(found.settings(root / "home"), LAST)
        assert found.store.place("lake") in printed
        for name, value in found.store.environment().items():
            monkeypatch.setenv(name, value)
        wrong = wrong_rows(found.store, root / "home" / "landing", LAST)
        assert wrong == dict.fromkeys(ORACLE_TABLES, 0)
