"""Tables made from objects, and archives taken in from a store. Over HTTP, on moto's S3."""

import gzip
import json
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.plan.status import State, status_of
from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.archives.loading import take_in
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.formats import Parquet
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day, days
from tests.worlds.object_store import Bucket, area_at
from tests.worlds.outages import REJECTED, World


@pytest.fixture
def area(bucket: Bucket, tmp_path: Path) -> LandingArea:
    return area_at(bucket.place, tmp_path)


def test_an_archive_in_the_store_is_read_once_until_it_is_another(bucket, area, tmp_path):
    lines = "".join(
        f"{json.dumps({'at': str(on), 'n': n})}\n" for n, on in enumerate(days(0, 1, 1))
    )
    bucket.put("past/deep/all.jsonl.gz", gzip.compress(lines.encode()))
    bucket.put("past/notes.txt", b"x")
    archive = Archive("past", day="at")
    with bucket.counting() as requests:
        (taken,) = take_in(archive, area)
        assert list(take_in(archive, area)) == []
    assert (taken.days, taken.rows, taken.bytes_read) == (
        days(0, 1),
        3,
        len(gzip.compress(lines.encode())),
    )
    assert requests["GET past/deep/all.jsonl.gz"] == 1
    assert archive.unmatched(area) == ["past/notes.txt"]
    bucket.put(
        "past/deep/all.jsonl.gz",
        gzip.compress(lines.encode().replace(b"2019-08-15", b"2019-08-14")),
    )
    (taken,) = take_in(archive, area)
    assert taken.days == [date(2019, 8, 14), day(1)]


def test_an_archive_of_parquet_is_read_from_the_store(bucket, area, tmp_path):
    pq.write_table(pa.table({"at": days(0, 1), "n": [1, 2]}), tmp_path / "a.parquet")
    bucket.put("past/a.parquet", (tmp_path / "a.parquet").read_bytes())
    (taken,) = take_in(Archive("past", day="at", format=Parquet()), area)
    assert (taken.problem, taken.days) == ("", days(0, 1))


@dataclass(frozen=True)
class Stored(World):
    """The bundled tables, whose landing area is in a store."""

    at: LandingArea = field(default_factory=lambda: LandingArea(Path()))

    @property
    def workspace(self) -> Workspace:
        return replace(super().workspace, area=self.at)

    def outdated(self) -> dict[date, str]:
        workspace = self.workspace
        found = status_of(
            workspace,
            [self.table(REJECTED)],
            days(0, 1),
            latest=workspace.lake.latest({REJECTED: None}),
        )
        return {
            on: each.why
            for (_, on), each in found.partitions.items()
            if each.state != State.UP_TO_DATE
        }

    def lines(self) -> list[tuple[date, str, str]]:
        return [
            (row["arrival_day"], row["source_file"], row["line"]) for row in self.rows(REJECTED)
        ]


def test_objects_are_read_once_and_a_replaced_one_makes_its_day_outdated(
    world, bucket, area, tmp_path
):
    """Two runs of the table of the lines that are no JSON."""
    stored = Stored(world.root, world.landing, world.spark, at=area)
    lines = list[tuple[date, str, str]]()
    for n, on in enumerate(days(0, 1)):
        file = world.write(on, [f"line {n} {m}" for m in range(3)], "events.jsonl.gz")
        lines += [(on, str(file.relative_to(world.landing)), f"line {n} {m}") for m in range(3)]
    bucket.put_all(world.landing)
    with bucket.counting() as requests:
        stored.run(days(0, 1), [REJECTED])
    assert stored.lines() == lines
    name = lines[-1][1]
    assert (requests[f"GET {lines[0][1]}"], requests[f"GET {name}"]) == (1, 1), "judged and read"
    assert stored.outdated() == {}

    bucket.put(name, world.write(day(1), ["another", "one"], "events.jsonl.gz").read_bytes())
    assert stored.outdated() == {day(1): f"1 file(s) changed: {name} has 2 lines, and had 3"}
    with pytest.MonkeyPatch.context() as away:
        away.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        later = replace(stored, at=area_at(bucket.place, tmp_path))
        assert later.outdated() == {}
        assert later.run(days(0, 1), [REJECTED])[REJECTED].failed() == []
        failed = later.run(days(0, 1), [REJECTED], force=True)[REJECTED].failed()
    why = f"outage_events cannot be listed ({bucket.place}: http://127.0.0.1:9 does not answer)"
    assert [build.message for build in failed] == [
        f"no source for {on}: {why}" for on in days(0, 1)
    ]
    assert stored.lines() == lines
    built = stored.run(days(0, 1), [REJECTED])[REJECTED].built
    assert {build.day: build.outcome for build in built} == {day(1): "accepted"}
    assert stored.lines() == [*lines[:3], (day(1), name, "another"), (day(1), name, "one")]
