"""The stand-in answers as the library does: the same operations on both, in two folders."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from tests.simulation import stand_in
from tests.simulation.world import patched
from tests.worlds.small_lake import columns

SCHEMA = Schema.from_json(columns("day"))
ONCE = CommitProperties(max_commit_retries=0)
Answers = list[Any]


def answers(work: Callable[[Path, Answers], None], folder: Path) -> tuple[Answers, Answers]:
    """What the library and the stand-in answer to the same work, in a folder each."""
    found: list[Answers] = [[], []]
    work(folder / "real", found[0])
    with patched(stand_in.places()):
        work(folder / "stand-in", found[1])
    return found[0], found[1]


def error_of(act: Callable[[], Any]) -> str:
    """The type of the error of an act; "" without one."""
    try:
        act()
    except (DeltaError, OSError) as error:
        return type(error).__name__
    return ""


def add(name: str, day: str, rows: int = 2) -> AddAction:
    stats = {"numRecords": rows, "minValues": {"n": 1}, "maxValues": {"n": 9}}
    text = json.dumps({**stats, "nullCount": {"n": 0}})
    return AddAction(f"{name}/day={day}/p.parquet", 10, {"day": day}, 5, True, text)


def made(folder: Path) -> str:
    create_table_with_add_actions(
        str(folder), SCHEMA, [add("x", "2020-01-01"), add("x", "2020-01-02")],
        partition_by=["day"], configuration={"delta.checkpointInterval": "3"},
    )  # fmt: skip
    return str(folder)


def replace_day(table: DeltaTable, name: str, day: str, **properties: Any) -> None:
    table.create_write_transaction(
        [add(name, day)], "overwrite", table.schema(), ["day"], [("day", "in", [day])],
        commit_properties=CommitProperties(max_commit_retries=0, **properties),
    )  # fmt: skip


def look(path: str, version: int | None = None) -> Any:
    table = DeltaTable(path, version=version)
    flat = pa.table(table.get_add_actions(flatten=True))
    nested = pa.table(table.get_add_actions(flatten=False))
    about = table.metadata()
    return (
        table.version(),
        [sorted(map(str, actions.to_pylist())) for actions in (flat, nested)],
        [sorted((f.name, str(f.type)) for f in actions.schema) for actions in (flat, nested)],
        table.transaction_version("acts"),
        (about.partition_columns, about.configuration, about.name),
        table.schema().to_json(),
        tuple(table.protocol()),
    )


def test_commits(tmp_path: Path) -> None:
    def work(folder: Path, found: Answers) -> None:
        path = made(folder)
        found.append(look(path))
        first = DeltaTable(path)
        second = DeltaTable(path)
        replace_day(first, "y", "2020-01-01", app_transactions=[Transaction("acts", 7)])
        found.append((first.version(), look(path)))
        # The second was opened before, and may not try again.
        found.append(error_of(lambda: replace_day(second, "z", "2020-01-03")))
        second.update_incremental()
        replace_day(second, "z", "2020-01-03", custom_metadata={"userMetadata": "why"})
        found.append(look(path))
        found.append(look(path, 1))
        names = [entry.name for entry in Path(path, "_delta_log").iterdir()]
        found.append(sorted(name for name in names if "checkpoint" not in name))
        text = Path(path, f"_delta_log/{2:020d}.json").read_text().splitlines()
        infos = [json.loads(line)["commitInfo"] for line in text if "commitInfo" in line]
        found.append([(info["operation"], info["userMetadata"]) for info in infos])
        for day in ("2020-01-04", "2020-01-05"):
            replace_day(DeltaTable(path), "w", day)
        found.append(look(path))
        hint = Path(path, "_delta_log/_last_checkpoint")
        found.append((hint.exists(), json.loads(hint.read_text())["version"]))
        found.append(error_of(lambda: made(folder)))
        found.append(error_of(lambda: DeltaTable(path, version=99)))

    real, simulated = answers(work, tmp_path)
    assert real == simulated


def test_appends(tmp_path: Path) -> None:
    """An append tries again after another commit, and moves its handle on. A compaction too."""

    def rows(*values: int) -> pa.Table:
        days = pa.array([value * 365 for value in values], pa.date32())
        at = pa.array([value * 1_000_000 for value in values], pa.timestamp("us", "UTC"))
        version = pa.array(values, pa.int64())
        return pa.table(
            {
                "table": [f"raw/{v % 2}" for v in values],
                "day": days,
                "delta_version": version,
                "at": at,
            }
        )

    def added(path: str) -> list[dict[str, Any]]:
        return pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()

    def facts(path: str) -> Any:
        table = DeltaTable(path)
        files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        generated = ("path", "size_bytes", "modification_time")
        return table.version(), sorted(
            str(sorted((n, str(v)) for n, v in file.items() if n not in generated))
            for file in files
        )

    def work(folder: Path, found: Answers) -> None:
        path = str(folder)
        configuration = {
            "delta.checkpointInterval": "10",
            "delta.dataSkippingStatsColumns": "day,delta_version,at",
        }
        DeltaTable.create(
            path, rows(1).schema, partition_by=["table"], configuration=configuration, mode="ignore"
        )
        found.append(facts(path))
        one = DeltaTable(path)
        two = DeltaTable(path)
        for table, values in ((one, (1, 2)), (two, (3,)), (one, (4, 5))):
            again = CommitProperties(max_commit_retries=5)
            write_deltalake(table, rows(*values), mode="append", schema_mode="merge",
                            commit_properties=again)  # fmt: skip
            found.append((table.version(), facts(path)))
        found.append(
            error_of(lambda: write_deltalake(two, rows(9), mode="append", commit_properties=ONCE))
        )
        table = DeltaTable(path)
        table.optimize.compact(target_size=2**20)
        found.append((table.version(), facts(path)))
        found.append(sum(file["num_records"] for file in added(path)))

    real, simulated = answers(work, tmp_path)
    assert real == simulated


def test_damaged_logs(tmp_path: Path) -> None:
    """Each file of a log lost, empty or torn: both open it, or neither does."""

    def work(folder: Path, found: Answers) -> None:
        path = made(folder)
        for number in range(1, 5):
            replace_day(DeltaTable(path), f"f{number}", "2020-01-01")
        log = Path(path, "_delta_log")
        found.append(error_of(lambda: DeltaTable(str(folder / "nothing"))))
        for name in sorted(entry.name for entry in log.iterdir()):
            whole = Path(log, name).read_bytes()
            for damaged in (None, b"", whole[: len(whole) // 2]):
                shutil.rmtree(folder / "copy", ignore_errors=True)
                shutil.copytree(path, folder / "copy", ignore=shutil.ignore_patterns("copy"))
                place = Path(folder, "copy/_delta_log", name)
                place.unlink()
                if damaged is not None:
                    place.write_bytes(damaged)
                kind = "lost" if damaged is None else "torn" if damaged else "empty"

                def opened() -> None:
                    table = DeltaTable(str(folder / "copy"))
                    found.append((table.version(), len(table.file_uris())))

                found.append((name, kind, error_of(opened)))

    real, simulated = answers(work, tmp_path)
    assert real == simulated


def test_the_errors_are_those_of_the_library(tmp_path: Path) -> None:
    with patched(stand_in.places()), pytest.raises(TableNotFoundError):
        DeltaTable(str(tmp_path))
