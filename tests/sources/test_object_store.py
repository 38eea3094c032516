"""A landing area in an object store: what lies there is what the same files on a disk would be.
Over HTTP, on moto's S3.
"""

import gzip
import json
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.cli import doctor
from backfill_assets.errors import (
    NOTHING_CHANGED,
    IncompleteDelivery,
    NotDelivered,
    SourceError,
)
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.maintenance import maintain
from backfill_assets.plan.status import State, status_of
from backfill_assets.settings import read_settings
from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.archives.loaded import loaded_archives
from backfill_assets.sources.archives.loading import load_archives
from backfill_assets.sources.archives.two_flows import TwoFlows
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.formats import Parquet
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.files.manifest import manifest_at
from backfill_assets.sources.files.rows import files_for_spark
from backfill_assets.sources.protocol import Delivery
from backfill_assets.verbs.status import read_status
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.deliveries import LINE, day, days, delivery_of, put, refusal_of
from tests.worlds.outages import RAW, REJECTED, World
from tests.worlds.services import Bucket, area_at

EVENTS = Landing("events")
NAMES = (
    "events/2019-08-15/a.jsonl",
    "events/2019-08-15/b 1%:é.jsonl.gz",
    "events/2019-08-15-c.json",
    "events/year=2019/month=08/day=16/late/d.jsonl",
    "events/2019-08-16/e.csv",
    "events/2019-08-16/_f.jsonl",
    "events/2019-08-17/.g.jsonl",
    "events/2019-09-01.jsonl",
    "events/notes/h.jsonl",
    "events/2018.jsonl",
    "other/2019-08-15.jsonl",
)


@pytest.fixture
def area(bucket: Bucket, tmp_path: Path) -> LandingArea:
    return area_at(bucket.place, tmp_path)


def on_disk(root: Path) -> LandingArea:
    for name in NAMES:
        put(root, name.replace(":", ";"))
    return LandingArea(root)


def shown(delivery: Delivery | SourceError) -> tuple[dict, list, str] | str:
    if isinstance(delivery, SourceError):
        return str(delivery)
    return dict(delivery.files), list(delivery.unread), delivery.fingerprint


def test_a_store_and_a_disk_give_the_same_deliveries(bucket, area, tmp_path):
    disk = on_disk(tmp_path / "disk")
    bucket.put_all(disk.root)
    asked = days(0, 1, 2, 17)
    with bucket.counting() as requests:
        found = EVENTS.delivered(area, asked)
    there = {
        on: str(shown(each)).replace(str(disk.root), bucket.place)
        for on, each in EVENTS.delivered(disk, asked).items()
    }
    assert {on: str(shown(each)) for on, each in found.items()} == there
    assert requests["lists"] == 2 * len(asked) + 1, "what is asked for, however much lies there"
    assert sum(n for request, n in requests.items() if request.startswith("GET ")) == 5
    assert (
        EVENTS.unmatched(area)
        == EVENTS.unmatched(disk)
        == ["events/2018.jsonl", "events/notes/h.jsonl"]
    )
    assert EVENTS.size(area, days(0, 1, 17)) == EVENTS.size(disk, days(0, 1, 17))


def test_only_the_folders_of_a_day_are_listed(bucket, area):
    with bucket.counting() as requests:
        assert type(refusal_of(EVENTS, area)) is NotDelivered
    assert requests == {"lists": 3}, (
        "year=2019/month=08/day=15/, 2019-08-15/, and no folder in the source's"
    )


def test_an_object_with_a_colon_in_its_name_is_read(bucket, area):
    bucket.put("events/2019-08-15/10:00.jsonl", LINE.encode())
    assert delivery_of(EVENTS, area).files == {"events/2019-08-15/10:00.jsonl": 1}


def test_a_cached_listing_lists_a_folder_once(bucket, area):
    bucket.put("events/2019-08-15.jsonl", LINE.encode())
    look = area.with_cached_listing()
    with bucket.counting() as requests:
        delivery_of(EVENTS, look)
        assert EVENTS.unmatched(look) == []
        EVENTS.delivered(look, days(0, 1))
    assert requests["lists"] == 1
    look = area.with_cached_listing(whole_folders=False)
    with bucket.counting() as requests:
        assert EVENTS.delivered(look, [day(0)]) == EVENTS.delivered(look, [day(0)])
    assert requests["lists"] == 3, "those of the day, once"


def test_only_replaced_objects_are_read_again_also_by_the_next_process(bucket, area):
    names = [f"events/{on}.jsonl" for on in days(0, 1)]
    for name in names:
        bucket.put(name, LINE.encode())
    before = EVENTS.delivered(area, days(0, 1))
    # As many bytes, most likely in the same second.
    bucket.put(names[1], LINE.replace("1", "2").encode())
    for again in ("this process", "the next one"):
        with bucket.counting() as requests:
            after = EVENTS.delivered(area, days(0, 1))
        assert [on for on in days(0, 1) if after[on] != before[on]] == days(1), again
        assert requests == {"lists": 5} | (
            {f"GET {names[1]}": 1} if again == "this process" else {}
        )
        manifest_at.cache_clear()


def test_an_object_that_the_client_cannot_read_fails_only_its_possible_days(bucket, area, golden):
    bucket.put("events/2019-08-15/a.jsonl", LINE.encode())
    bucket.put("events/2019-08-16//b.jsonl", LINE.encode())
    delivery_of(EVENTS, area)
    refused = refusal_of(EVENTS, area, day(1))
    assert type(refused) is SourceError, "it does not disappear without a change"
    golden(refused.what, BUCKET=bucket.place)
    bucket.put("events//c.jsonl", LINE.encode())
    assert {type(each) for each in EVENTS.delivered(area, days(0, 1)).values()} == {SourceError}


def test_an_object_that_was_replaced_or_deleted_is_not_read(bucket, area, tmp_path, refused):
    name = "events/2019-08-15.jsonl"
    bucket.put(name, LINE.encode())
    look = area.with_cached_listing()
    listed = look.tree("events")
    file = next(iter(listed.entries(listed.top) or ()))
    bucket.put(name, LINE.replace("1", "2").encode())
    refused(lambda: area.files.cached(file, "any"), "replaced", OSError)
    bucket.delete(name)
    refused(lambda: area.files.cached(file, "any"), "deleted", OSError)


def test_a_packed_object_that_is_cut_off_is_refused_by_name(bucket, area, golden):
    bucket.put("events/2019-08-15/a.jsonl.gz", gzip.compress(LINE.encode() * 99)[:-9])
    with bucket.counting() as requests:
        delivery = delivery_of(EVENTS, area)
    ((name, doubt),) = delivery.doubts.items()
    assert name == "events/2019-08-15/a.jsonl.gz"
    golden(doubt)
    assert requests["GET events/2019-08-15/a.jsonl.gz"] == 1


def test_a_day_waits_for_its_marker_and_until_its_objects_have_settled(bucket, area):
    bucket.put("events/2019-08-15/a.jsonl", LINE.encode())
    marked = Landing("events", marker="_SUCCESS")
    settled = Landing("events", settled=60)
    assert type(refusal_of(marked, area)) is IncompleteDelivery
    assert type(refusal_of(settled, area)) is IncompleteDelivery
    bucket.put("events/2019-08-15/_SUCCESS", b"")
    delivery_of(marked, area)
    delivery_of(settled, replace(area, clock=lambda: time.time() + 61))


def no_bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    return f"s3://no-{bucket.name}"


def no_server(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    return bucket.place


def no_credentials(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    return bucket.place


@pytest.mark.parametrize("wrong", [no_bucket, no_server, no_credentials])
def test_an_unreadable_store_fails_every_day_and_loses_no_archive(
    golden, bucket, tmp_path, monkeypatch, wrong
):
    bucket.put("past/all.jsonl", b'{"at": "2019-08-15"}\n')
    source = TwoFlows(EVENTS, Archive("past", day="at"))
    list(load_archives(source.archive, area_at(bucket.place, tmp_path)))
    place = wrong(bucket, monkeypatch)
    area = area_at(place, tmp_path)
    for on, refused in EVENTS.delivered(area, days(0, 1)).items():
        assert isinstance(refused, IncompleteDelivery), "what was built stays up to date meanwhile"
        golden(str(refused), ON=on, PLACE=place)
    with pytest.raises(SourceError) as unlisted:
        list(load_archives(source.archive, area, full_refresh=True))
    golden(str(unlisted.value), "archives", PLACE=place)
    assert unlisted.value.unchanged == NOTHING_CHANGED
    refusal_of(source, area_at(place, tmp_path))
    assert loaded_archives(area, "past").of_day(day(0))


def test_status_lists_a_source_once_for_two_tables(bucket, tmp_path, monkeypatch, golden):
    for name in ("2019-08-15.jsonl", "notes.txt"):
        bucket.put(f"outage_events/{name}", LINE.encode())
    places = {"HOME": str(tmp_path), "LANDING": bucket.place}
    for name, value in {**places, "FIRST_DAY": "2019-08-15", "LAST_DAY": "2019-08-16"}.items():
        monkeypatch.setenv(f"BACKFILL_{name}", value)
    with bucket.counting() as requests:
        report = read_status(open_workspace(only_reading=True), "", "raw/*")
    assert requests == {"lists": 1, "GET outage_events/2019-08-15.jsonl": 1}
    assert {*report.unread} == {RAW, REJECTED}
    for unread in report.unread.values():
        golden(unread, "unread")
    finding = doctor._landing(read_settings())
    assert (finding.level, finding.message) == ("ok", bucket.place)
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
    monkeypatch.setenv("BACKFILL_LANDING", f"s3://no-{bucket.name}")
    finding = doctor._landing(read_settings())
    assert finding.level == "FAIL"
    golden(finding.message, BUCKET=bucket.name)


def test_an_archive_in_the_store_is_read_again_only_if_it_changed(bucket, area, tmp_path):
    lines = "".join(
        f"{json.dumps({'at': str(on), 'n': n})}\n" for n, on in enumerate(days(0, 1, 1))
    )
    bucket.put("past/deep/all.jsonl.gz", gzip.compress(lines.encode()))
    bucket.put("past/notes.txt", b"x")
    archive = Archive("past", day="at")
    with bucket.counting() as requests:
        (taken,) = load_archives(archive, area)
        assert list(load_archives(archive, area)) == []
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
    (taken,) = load_archives(archive, area)
    assert taken.days == [date(2019, 8, 14), day(1)]


def test_an_archive_of_parquet_is_read_from_the_store(bucket, area, tmp_path):
    pq.write_table(pa.table({"at": days(0, 1), "n": [1, 2]}), tmp_path / "a.parquet")
    bucket.put("past/a.parquet", (tmp_path / "a.parquet").read_bytes())
    (taken,) = load_archives(Archive("past", day="at", format=Parquet()), area)
    assert (taken.problem, taken.days) == ("", days(0, 1))


def test_a_lake_in_the_store_holds_the_days_of_archives_and_of_landed_files(
    bucket, area, tmp_path, spark
):
    area = replace(area, lake=f"{bucket.place}/lake")
    rows = [{"at": str(on), "n": n} for n, on in enumerate(days(0, 1, 1, 3))]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    bucket.put("past/all.jsonl", text.encode())
    bucket.put("several/all.jsonl.gz", gzip.compress(text.encode()))
    two = TwoFlows(EVENTS, Archive("past", day="at"))
    several = Landing("several", day="at")
    (taken,) = load_archives(two.archive, area)
    assert (taken.rows, taken.days) == (4, days(0, 1, 3))
    for source, name in ((two, "past/all.jsonl"), (several, "several/all.jsonl.gz")):
        with bucket.counting() as requests:
            assert delivery_of(source, area, day(1)).files == {name: 2}
            assert not [name for name in requests if name.startswith("PUT")] or source is several
        with bucket.counting() as requests:
            delivery_of(source, area, day(3))
        assert not [name for name in requests if name.startswith("PUT")], "split once"
        lines = [row["line"] for row in source.read(area, spark, days(0, 1, 3)).collect()]
        assert sorted(lines) == text.splitlines()
    bucket.put("past/all.jsonl", text.replace('"n": 3', '"n": 4').encode())
    before = {on: delivery_of(two, area, on).fingerprint for on in days(0, 1, 3)}
    list(load_archives(two.archive, area))
    now = {on: delivery_of(two, area, on).fingerprint for on in days(0, 1, 3)}
    assert [on for on in now if now[on] != before[on]] == [day(3)]
    maintain(Lake(area.lake), 30, datetime.now(UTC) + timedelta(days=8), "ada")
    assert len(two.read(area, spark, days(0, 1, 3)).collect()) == 4


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
    assert stored.outdated() == {day(1): f"1 file changed: {name} has 2 lines, had 3"}
    with pytest.MonkeyPatch.context() as away:
        away.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        later = replace(stored, at=area_at(bucket.place, tmp_path))
        assert later.outdated() == {}
        assert later.run(days(0, 1), [REJECTED])[REJECTED].failed() == []
        failed = later.run(days(0, 1), [REJECTED], force=True)[REJECTED].failed()
    assert [build.day for build in failed] == days(0, 1)
    why = f"outage_events cannot be listed ({bucket.place}: http://127.0.0.1:9 does not answer)"
    assert all(why in build.message for build in failed)
    assert stored.lines() == lines
    built = stored.run(days(0, 1), [REJECTED])[REJECTED].built
    assert {build.day: build.outcome for build in built} == {day(1): "accepted"}
    assert stored.lines() == [*lines[:3], (day(1), name, "another"), (day(1), name, "one")]


def test_executors_on_other_machines_read_objects_where_they_are(bucket, area, tmp_path):
    """A file that Spark cannot read as it is has a copy all the same."""
    names = ("a.jsonl", "b 1%.jsonl.gz")
    for name in names:
        put(tmp_path / "disk", f"events/2019-08-15/{name}")
    bucket.put_all(tmp_path / "disk")
    elsewhere = replace(area, executors_elsewhere=True)
    files = [(day(0), *file) for file in EVENTS.judged(area, [day(0)])[day(0)][0].items()]
    cut = [(on, entry, replace(contents, cut="is cut off")) for on, entry, contents in files]
    paths = [file.path for file in files_for_spark(elsewhere, files)]
    place = bucket.place.replace("s3://", "s3a://")
    assert paths == [f"{place}/events/2019-08-15/{name}" for name in names]
    for copied in (files_for_spark(area, files), files_for_spark(elsewhere, cut)[:1]):
        assert all(Path(file.path).is_file() for file in copied)
