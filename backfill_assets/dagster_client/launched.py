"""What was launched in Dagster to build days of tables: a backfill, or a run that belongs to none."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from backfill_assets.calendar import as_day, between
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.loaded_table import step_of

RUN_FINISHED = frozenset({"SUCCESS", "FAILURE", "CANCELED"})
BACKFILL_FINISHED = frozenset({"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"})
# Jobs that write to live; their runs select no assets by name.
WRITING = ("nightly", "rebuild", "rollback", "publish")
# Dagster's tags on a run: its one day, or its first and its last.
DAY, FIRST_DAY, LAST_DAY = "dagster/partition", "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


@dataclass(frozen=True)
class Launched:
    """A backfill, or a run of assets that belongs to none, as Dagster answers with it. `partitions`: how many it is for."""

    id: str
    is_run: bool
    status: str = ""
    created: float = 0.0
    title: str = ""
    partitions: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    assets: frozenset[str] = frozenset()

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """An entry of Dagster's feed of runs and backfills."""
        tagged, is_run = {tag["key"]: tag["value"] for tag in entry["tags"]}, entry["__typename"] == "Run"
        partitions = _days_of(tagged) * len(entry["assetSelection"] or ()) if is_run else entry["numPartitions"]
        title, status = tagged.get(tags.TITLE, "") if is_run else entry["title"], entry["runStatus" if is_run else "status"]
        assets = frozenset("/".join(key["path"]) for key in entry.get("assetSelection") or ())
        return cls(str(entry["id"]), is_run, str(status), entry["creationTime"], title or "", partitions or 0, tagged, assets)

    def __str__(self) -> str:
        return f"{'run' if self.is_run else 'backfill'} {self.id}"

    @property
    def is_over(self) -> bool:
        return self.status in (RUN_FINISHED if self.is_run else BACKFILL_FINISHED)

    @property
    def is_cancelled(self) -> bool:
        return self.status == "CANCELED"

    @property
    def page(self) -> str:
        """The path of its page in the UI."""
        return f"/runs/{self.id}" if self.is_run else f"/runs/b/{self.id}"


def _days_of(tagged: Mapping[str, str]) -> int:
    """How many days a run has, by its tags."""
    first, last = tagged.get(FIRST_DAY), tagged.get(LAST_DAY)
    return len(list(between(as_day(first), as_day(last)))) if first and last else int(DAY in tagged)


def own_job(table: str) -> str:
    """The job of a table's own schedule. Its runs select no assets by name either."""
    return f"build_{step_of(table)}"


def writes_to(job: str, tables: Iterable[str]) -> bool:
    """Whether the runs of a job, which select no assets by name, write to one of these tables in live."""
    return job in WRITING or job in map(own_job, tables)


def unfinished_of(runs: Iterable[Mapping[str, Any]], launched: Iterable[Launched], tables: Collection[str]) -> list[str]:
    """Of `runs` that are not finished, those that write to `tables`, as `run 1b9d6bcd`; and the backfills among `launched`."""
    of_tables, named = set(tables), list[str]()
    for run in runs:
        selected = run["assetSelection"]
        assets = {"/".join(key["path"]) for key in selected or ()}
        if writes_to(run["jobName"], tables) if selected is None else bool(assets & of_tables):
            named.append(f"run {run['runId'][:8]}")
    return named + [str(each) for each in launched if not each.is_run and not each.is_over and each.assets & of_tables]
