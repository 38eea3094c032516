"""A lake of a newer version: every command is refused, and writes nothing."""

from pathlib import Path

import pytest

from backfill_assets.cli.exit_codes import PARTIAL
from backfill_assets.errors import TableUnreadable
from tests.worlds.command_line import COMMANDS, DAY, FIRST, REJECTED, backfill, kept, two_days
from tests.worlds.newer_lake import contents_of, mark_newer

SERVERS = {"demo", "up", "deploy", "down", "reload"}
# These open no lake: without a table that reads archives, nothing is loaded.
WITHOUT_LAKE = SERVERS | {"guide", "archive", "init"}
PLAN = "PLAN"
WHY = ("--reason", "a test")
ONE_DAY = ("--partitions", str(DAY), "--target", REJECTED)
TYPED = [
    ("status",),
    ("late",),
    ("log", REJECTED, str(DAY)),
    ("blame", REJECTED, str(DAY)),
    ("list",),
    ("show", PLAN),
    ("diff", PLAN),
    ("sql", "SELECT 1"),
    ("plan", *ONE_DAY),
    ("run", PLAN, "--yes"),
    ("run", *ONE_DAY, "--yes"),
    ("resume", PLAN),
    ("watch", PLAN),
    ("cancel", PLAN),
    ("audit", "--partitions", str(FIRST), "--target", REJECTED),
    ("adopt", REJECTED, *WHY),
    ("accept-code", REJECTED, "--before", str(DAY), *WHY),
    ("verify", PLAN),
    ("preview", PLAN),
    ("publish", PLAN),
    ("publish", PLAN, "--dry-run"),
    ("rebase", PLAN),
    ("discard", PLAN, "--yes"),
    ("rollback", PLAN, "--yes", *WHY),
    ("releases",),
    ("release", *WHY),
    ("release", "--follow"),
    ("switch", REJECTED, "--to", "raw/notes", *WHY),
    ("export", REJECTED, "rows.parquet"),
    ("alerts",),
    ("reconcile",),
    ("reconcile", "--repair"),
    ("report", "lake.html"),
    ("backup", "../of the lake"),
    ("maintain",),
    ("maintain", "--apply"),
    ("reproduce", REJECTED, str(FIRST)),
    ("evaluate", REJECTED, str(FIRST)),
]


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home with a lake of a newer version, and the id of a plan in it."""
    home = tmp_path_factory.mktemp("newer")
    two_days(home)
    plan = kept(home, REJECTED, "1")
    mark_newer(home / "lake")
    return home, plan


@pytest.mark.parametrize("typed", TYPED, ids=" ".join)
def test_a_command_on_a_lake_of_a_newer_version_is_refused_and_writes_nothing(newer, typed):
    home, plan = newer
    before = contents_of(home)
    done = backfill(*(plan if word == PLAN else word for word in typed), home=home)
    assert isinstance(done.exception, TableUnreadable), done.output
    assert "newer version" in done.exception.what
    assert contents_of(home) == before


def test_every_command_that_opens_a_lake_is_tried():
    # `impact` refuses the bundled project first: tests/impact has a project in a repository.
    others = WITHOUT_LAKE | {"doctor", "restore", "impact"}
    assert {typed[0] for typed in TYPED} | others == set(COMMANDS)


def test_doctor_says_that_the_lake_is_newer(newer):
    done = backfill("doctor", home=newer[0])
    assert done.exit_code == PARTIAL
    assert "newer version" in " ".join(done.output.split())
