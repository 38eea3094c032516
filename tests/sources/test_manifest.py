"""What the manifest knows about files without reading them again, and that no file keeps it from
the others.
"""

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.formats import Csv, FileContents
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.files.manifest import _FORM_VERSION, Manifest, manifest_at
from backfill_assets.sources.filesystem import LocalDisk
from tests.worlds.deliveries import LINE, day, put


def in_a_minute() -> float:
    return time.time() + 60


def saved_by_another(file: Path, saved: Path) -> None:
    """Another process read `file` and saved its manifest; the hash in it is one that reading the
    file cannot give.
    """
    other = Manifest(saved, clock=in_a_minute)
    other.contents([file])
    other.save()
    written = json.loads(saved.read_text())
    entries = {
        name: [stamp, contents | {"content": "saved"}]
        for name, (stamp, contents) in written["files"].items()
    }
    saved.write_text(json.dumps(written | {"files": entries}))


def test_a_file_is_read_once_even_by_the_next_process(tmp_path):
    file = put(tmp_path, "a.jsonl")
    saved = tmp_path / "cache" / "landed.json"
    saved_by_another(file, saved)
    assert Manifest(saved).contents([file])[file].content == "saved"


def test_a_rewritten_file_is_read_again(tmp_path):
    file = put(tmp_path, "a.jsonl")
    saved = tmp_path / "landed.json"
    saved_by_another(file, saved)
    put(tmp_path, "a.jsonl")
    assert Manifest(saved).contents([file]) == Manifest().contents([file])


def test_a_recently_changed_file_is_not_saved(tmp_path):
    manifest = Manifest(tmp_path / "landed.json")
    manifest.contents([put(tmp_path, "a.jsonl")])
    manifest.save()
    assert not (tmp_path / "landed.json").exists()


def test_other_contents_of_the_same_size_and_time_are_detected(tmp_path):
    file = put(tmp_path, "a.jsonl")
    manifest = Manifest()
    times = (file.stat().st_atime, file.stat().st_mtime)
    before = manifest.contents([file])[file]
    file.write_text(LINE.replace("1", "2"))
    os.utime(file, times)
    assert manifest.contents([file])[file].content != before.content


@dataclass(frozen=True)
class WholeSeconds(LocalDisk):
    """A file system that keeps times in whole seconds."""

    def state(self, entry):
        state = super().state(entry)
        size, *times = state.stamp
        return state._replace(stamp=(size, *(int(each) // 10**9 * 10**9 for each in times)))


def test_a_file_rewritten_within_a_second_is_detected(tmp_path):
    file = put(tmp_path, "a.jsonl")
    later = [0.0]
    os.utime(file, (1000, 1000))
    manifest = Manifest(files=WholeSeconds(), clock=lambda: time.time() + later[0])
    before = manifest.contents([file])[file]
    file.write_text(LINE.replace("1", "2"))
    os.utime(file, (1000, 1000))
    later[0] = 3.0
    assert manifest.contents([file])[file].content != before.content


def test_sources_of_other_formats_in_one_folder_keep_a_manifest_each(tmp_path):
    area = LandingArea(tmp_path / "landing", tmp_path / "cache")
    for name in ("2019-08-15.csv", "2019-08-15.jsonl"):
        put(area.root, f"orders/{name}")
    for source in (Landing("orders"), Landing("orders", format=Csv())) * 2:
        manifest_at(
            area.manifest("orders", source.format), source.format, area.files
        ).clock = in_a_minute
        source.delivered(area, [day(0)])
        manifest_at.cache_clear()  # as in another process
    saved = [json.loads(each.read_text())["files"] for each in (tmp_path / "cache").iterdir()]
    assert sorted(Path(name).suffix for files in saved for name in files) == [".csv", ".jsonl"]
    assert len(saved) == 2


def test_an_unreadable_manifest_is_rebuilt(tmp_path):
    file = put(tmp_path, "a.jsonl")
    saved = tmp_path / "landed.json"
    saved.write_text('{"half')
    assert Manifest(saved).contents([file]) == Manifest().contents([file])


@pytest.mark.parametrize("form", [None, _FORM_VERSION - 1], ids=["no form", "an earlier form"])
def test_a_manifest_of_another_version_is_rebuilt(tmp_path, form):
    file = put(tmp_path, "a.jsonl")
    saved = tmp_path / "landed.json"
    saved_by_another(file, saved)
    entries = json.loads(saved.read_text())["files"]
    saved.write_text(json.dumps({"form": form, "files": entries} if form else entries))
    assert Manifest(saved).contents([file]) == Manifest().contents([file])


def test_an_unreadable_file_has_a_fault_and_stops_no_other(tmp_path, nobody, golden):
    good = put(tmp_path, "a.jsonl")
    closed = put(tmp_path, "b.jsonl")
    folder = tmp_path / "c"
    link = tmp_path / "d.jsonl"
    gone = tmp_path / "e.jsonl"
    pipe = tmp_path / "f.jsonl"
    closed.chmod(0)
    folder.mkdir()
    link.symlink_to(link)
    os.mkfifo(pipe)
    with nobody(tmp_path):
        contents = Manifest().contents([good, closed, folder, link, gone, pipe])
    assert [file for file, each in contents.items() if not each.fault] == [good]
    golden("\n".join(f"{file.name} {each.fault}" for file, each in contents.items()))


def test_a_file_is_read_again_once_it_is_readable(tmp_path):
    manifest = Manifest(clock=in_a_minute)
    file = tmp_path / "a.jsonl"
    assert manifest.contents([file])[file].fault
    put(tmp_path, "a.jsonl")
    contents = manifest.contents([file])[file]
    assert replace(contents, stamp="") == FileContents(
        len(LINE),
        contents.content,
        1,
        len(LINE) - 1,
        header='["outageNumber"]',
        unpacked=contents.content,
    )
