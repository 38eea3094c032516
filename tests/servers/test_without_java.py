"""`backfill up` on a machine without Java: nothing is started."""

from pathlib import Path

import pytest

from backfill_assets.errors import ServiceUnavailable
from backfill_assets.servers.stack import servers_on
from backfill_assets.settings import read_settings


@pytest.mark.parametrize("master", ["", "local[1]"], ids=["an engine", "a driver in each run"])
def test_a_missing_java_is_noticed_before_servers_start(tmp_path: Path, monkeypatch, master):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    home = tmp_path / "home"
    settings = read_settings(home=home, lake="", landing="", spark_remote="", spark_master=master)
    printed: list[str] = []
    with (
        pytest.raises(ServiceUnavailable, match="Java"),
        servers_on(settings, None, printed.append),
    ):
        pass
    assert (printed, home.exists()) == ([], False)
