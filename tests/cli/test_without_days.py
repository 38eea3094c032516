"""Commands on tables without days: their one partition is shown, and typed, as `whole`."""

import json
import re
import shutil

import pytest

from backfill_assets.plan.store import Plans
from tests.worlds.small_lake import timeless
from tests.worlds.suite import copied_once
from tests.worlds.undated import DAYS, PLACED, PRICED, REGIONS, TARIFFS, Undated

STORED = "1700-01-01"


@pytest.fixture(scope="module")
def built(tmp_path_factory, spark) -> Undated:
    return Undated(tmp_path_factory.mktemp("undated")).lay_out().build(lambda: spark)


@pytest.fixture
def undated(built, tmp_path) -> Undated:
    """A copy for a test that changes it."""
    shutil.copytree(built.root, tmp_path / "copy")
    return Undated(tmp_path / "copy")


def printed(undated: Undated, *typed: str, code: int = 0, **settings: str) -> str:
    done = undated.type(*typed, **settings)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done
    assert STORED not in done.stdout + done.stderr, done
    return done.stdout


def values(undated: Undated, *typed: str, code: int = 0) -> dict:
    return json.loads(printed(undated, *typed, "--json", code=code))


SHOWN = {
    "status": [],
    "status --why": [REGIONS, "whole"],
    "log": [],
    "log of it": ["log", REGIONS, "all"],
    "blame": [REGIONS, "whole"],
}
TYPED = [
    ["status"],
    ["status", "--why", REGIONS, "whole"],
    ["status", "--why", PRICED, str(DAYS[0])],
    ["log"],
    ["log", REGIONS, "all"],
    ["log", REGIONS, "whole"],
    ["blame", REGIONS, "whole"],
    ["blame", TARIFFS, str(DAYS[0]), "--key", "region=Alamo"],
    ["blame", PLACED, str(DAYS[0]), "--key", "region=Alamo"],
    ["late"],
    ["reconcile"],
    ["alerts"],
    ["list"],
    ["maintain"],
    ["diff", REGIONS, "whole"],
    ["plan", "--partitions", "whole", "--target", REGIONS, "--force", "--downstream"],
    ["audit", "--target", REGIONS],
]


def test_explore(undated, tmp_path):
    for typed in TYPED:
        done = undated.type(*typed)
        print("$", *typed, "->", done.returncode)
        print(done.stdout, done.stderr)
        done = undated.type(*typed, "--json")
        print(done.stdout[:1500])
    for typed in [
        ["report", str(tmp_path / "r.html")],
        ["status", "--svg", str(tmp_path / "s.svg")],
        ["release", "--reason", "x"],
        ["sql", 'select * from "ref/regions"'],
        ["export", REGIONS, str(tmp_path / "r.csv")],
        ["export", REGIONS, str(tmp_path / "r2.csv"), "--partitions", "whole"],
        ["export", REGIONS, str(tmp_path / "r3.csv"), "--partitions", str(DAYS[0])],
        ["export", PLACED, str(tmp_path / "r4.csv"), "--partitions", str(DAYS[0])],
        ["releases", "1"],
        ["backup", str(tmp_path / "copies")],
        ["diff", "1", "1"],
        ["status"],
    ]:
        done = undated.type(*typed)
        print("$", *typed, "->", done.returncode)
        print(done.stdout, done.stderr)
    for name in ["r.html", "s.svg"]:
        text = (tmp_path / name).read_text()
        print(name, len(text), [text[m.start()-60:m.end()+60] for m in re.finditer("1700", text)])
        print([text[m.start()-60:m.end()+60] for m in re.finditer("whole", text)][:6])
    for name in ["r.csv", "r2.csv", "r3.csv", "r4.csv"]:
        print(name, (tmp_path / name).read_text() if (tmp_path / name).exists() else None)
    assert 0
