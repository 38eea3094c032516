"""A project in a git repository, in a sub-folder, with four built days of three tables.

Its prices are cut to whole cents. The correction rounds them.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

from backfill_assets.project import load
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.workspace import Workspace
from tests.worlds.projects import opened

TABLES = """import backfill_assets
from datetime import date
from backfill_assets import Landing, SliceDays, same_day, table, window
from prices import as_cents
from pyspark.sql import functions as F

@table(
    "raw/sales", partition_by="day", columns="day DATE, line STRING",
    reads={"lines": Landing("sales")},
)
def lines(lines):
    return lines.selectExpr("arrival_day AS day", "line")

@table(
    "staging/sales", partition_by="day", columns="day DATE, shop STRING, cents BIGINT",
    key=["day", "shop"], reads={"lines": same_day(lines)},
)
def sales(lines):
    return as_cents(lines)

@table(
    "features/two_days", partition_by="day", columns="day DATE, shop STRING, cents BIGINT",
    key=["day", "shop"], reads={"days": SliceDays(), "sales": window(sales, first=-1, last=0)},
)
def two_days(days, sales):
    later = sales.withColumn("day", F.date_add("day", 1))
    both = sales.unionByName(later).join(days, "day")
    return both.groupBy("day", "shop").agg(F.sum("cents").alias("cents"))

@table(
    "features/lines", partition_by="day", columns="day DATE, number BIGINT", version="1",
    reads={"lines": same_day(lines)},
)
def numbers(lines):
    return lines.groupBy("day").agg(F.count("line").alias("number"))

defs = backfill_assets.definitions(
    tables=[lines, sales, two_days, numbers],
    first_day=date(2024, 6, 1), last_day=date(2024, 6, 5),
)
"""
PRICES = """from pyspark.sql import functions as F

def as_cents(lines):
    shop = F.get_json_object("line", "$.shop").alias("shop")
    euros = F.get_json_object("line", "$.euros").cast("double")
    return lines.select("day", shop, (euros * 100).cast("bigint").alias("cents"))
"""
CORRECTION = ("(euros * 100)", "F.round(euros * 100)")
BUILT = [date(2024, 6, n) for n in range(1, 5)]
# In the arithmetic of doubles, 0.29 and 0.57 times 100 are less than 29 and 57.
EUROS = {"a": [0.29, 1.0, 0.29, 2.0], "b": [3.0, 0.57, 0.57, 4.0]}


def git(folder: Path, *arguments: str) -> str:
    """Run git as a user of no machine. Returns its output."""
    env = {
        **os.environ,
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "Ada"),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "ada@example.com"),
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@dataclass(frozen=True)
class Shop:
    """The project in `root`/code/shop. `root`/code is the repository, `root`/home its home."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> "Shop":
        shop = cls(root)
        shop.folder.mkdir(parents=True)
        (shop.folder / "pyproject.toml").write_text('[tool.backfill]\nproject = "tables"\n')
        (shop.repository / ".gitignore").write_text("__pycache__/\n")
        (shop.folder / "tables.py").write_text(TABLES)
        (shop.folder / "prices.py").write_text(PRICES)
        git(shop.repository, "init", "--quiet", "--initial-branch=main")
        shop.commit("the first tables")
        return shop

    @property
    def repository(self) -> Path:
        return self.root / "code"

    @property
    def folder(self) -> Path:
        return self.repository / "shop"

    @property
    def settings(self) -> dict[str, str]:
        return {"home": str(self.root / "home"), "landing": str(self.root / "landing")}

    def workspace(self, **settings: str) -> Workspace:
        self.forget_modules()
        return opened(self.folder, **self.settings, **settings)

    def forget_modules(self) -> None:
        """Let this process import the project as it is now, in this folder."""
        sys.modules.pop("prices", None)
        load.cache_clear()

    def edit(self, file: str, *changes: tuple[str, str]) -> None:
        path = self.folder / file
        for old, new in changes:
            text = path.read_text()
            assert old in text
            path.write_text(text.replace(old, new))

    def commit(self, message: str) -> str:
        git(self.repository, "add", "--all")
        git(self.repository, "commit", "--quiet", "--message", message)
        return git(self.repository, "rev-parse", "HEAD")

    def deliver(self) -> None:
        """Deliver all days, also the last one, which is not built."""
        folder = self.root / "landing" / "sales"
        folder.mkdir(parents=True, exist_ok=True)
        for n, day in enumerate([*BUILT, date(2024, 6, 5)]):
            rows = [{"shop": shop, "euros": euros[n % 4]} for shop, euros in EUROS.items()]
            (folder / f"{day}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def build(self, spark: SparkSession, days: list[date] = BUILT) -> None:
        workspace = self.workspace()
        for table in workspace.tables:
            result = Step(table, workspace, StepRequest(run="a run"), lambda: spark).run(days)
            assert [build.day for build in result.accepted()] == days, result
