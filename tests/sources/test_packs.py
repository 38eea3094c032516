"""Packs in a landing: zip and tar are read like folders, and refused with the reason."""

import io
import re
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import field
from backfill_assets.sources.files.formats import Csv
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.protocol import Delivery, require_usable
from tests.worlds.deliveries import day, days, delivery_of, put, refusal_of
from tests.worlds.services import area_at

FIELDS = [field("item STRING"), field("cents BIGINT")]


def text(*rows: tuple[object, ...]) -> bytes:
    lines = ["item,cents", *(",".join(map(str, row)) for row in rows)]
    return "".join(f"{line}\n" for line in lines).encode()


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in members.items():
            pack.writestr(name, content)
    return out.getvalue()


def tarred(members: dict[str, bytes], how: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=how) as pack:  # type: ignore[call-overload]
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            pack.addfile(entry, io.BytesIO(content))
    return out.getvalue()


PACKED = {".zip": zipped, ".tar.gz": tarred, ".tgz": tarred, ".tar": lambda m: tarred(m, "w")}


@pytest.fixture
def area(tmp_path: Path) -> LandingArea:
    return LandingArea(tmp_path / "landing", tmp_path / "home", lake=str(tmp_path / "lake"))


def landing(files: str, **more) -> Landing:
    return Landing("sales", files=files, format=Csv(), fields=FIELDS, **more)


@pytest.mark.parametrize("ending", PACKED)
def test_a_pack_of_a_day_gives_all_its_files_to_that_day(area, spark, ending):
    source = landing(f"%Y-%m-%d{ending}/**")
    members = {"a.csv": text(("a", 1)), "below/b.csv": text(("b", 2), ("c", 3)), "readme.txt": b"x"}
    put(area.root, f"sales/2019-08-15{ending}", PACKED[ending](members))
    put(area.root, f"sales/2019-08-17{ending}", PACKED[ending]({"a.csv": text(("d", 4))}))
    pack = f"sales/2019-08-15{ending}"
    assert delivery_of(source, area).files == {f"{pack}/a.csv": 1, f"{pack}/below/b.csv": 2}
    assert type(source.delivered(area, [day(1)])[day(1)]) is NotDelivered
    read = source.read(area, spark, days(0, 2)).select(
        "arrival_day", "source_file", "item", "cents"
    )
    assert sorted(map(tuple, read.collect())) == [
        (day(0), f"{pack}/a.csv", "a", 1),
        (day(0), f"{pack}/below/b.csv", "b", 2),
        (day(0), f"{pack}/below/b.csv", "c", 3),
        (day(2), f"sales/2019-08-17{ending}/a.csv", "d", 4),
    ]
    assert source.unmatched(area) == []


def test_a_pack_of_a_month_has_a_file_for_each_day(area):
    source = landing("%Y-%m.zip/%Y-%m-%d.csv")
    members = {f"{on}.csv": text((on, 1)) for on in days(0, 2)}
    put(area.root, "sales/2019-08.zip", zipped(members | {"total.csv": text(("all", 2))}))
    delivered = source.delivered(area, days(0, 1, 2))
    assert [isinstance(delivered[on], Delivery) for on in days(0, 1, 2)] == [True, False, True]
    assert source.unmatched(area) == ["sales/2019-08.zip/total.csv"]
    before = require_usable(source.delivered(area, days(0, 2)))
    put(area.root, "sales/2019-08.zip", zipped(members | {f"{day(2)}.csv": text(("new", 1))}))
    now = require_usable(source.delivered(area, days(0, 2)))
    changed = [on for on in now if now[on].fingerprint != before[on].fingerprint]
    assert changed == [day(2)], "the other file is the same in another pack"


def test_files_in_folders_of_a_pack_are_matched_like_others(area):
    source = landing("%Y-%m.zip/store=*/%d.csv")
    names = ["store=a/15.csv", "store=b/15.csv", "store=b/16.csv", "15.csv", "x/store=a/15.csv"]
    put(area.root, "sales/2019-08.zip", zipped({name: text((name, 1)) for name in names}))
    assert {*delivery_of(source, area).files} == {f"sales/2019-08.zip/{name}" for name in names[:2]}
    assert source.unmatched(area) == [f"sales/2019-08.zip/{name}" for name in names[3:]]


@pytest.mark.parametrize("ending", PACKED)
def test_rows_in_a_pack_may_say_their_day(area, spark, ending):
    source = landing(f"*{ending}/*.csv", day="on", overlap="all")
    rows = "item,on,cents\na,2019-08-15,1\nb,2019-08-17,2\n"
    members = {"data.csv": rows.encode(), "more.csv": rows.encode(), "readme.csv.txt": b"x"}
    put(area.root, f"sales/all{ending}", PACKED[ending](members))
    assert delivery_of(source, area, day(2)).files == {
        f"sales/all{ending}/data.csv": 1,
        f"sales/all{ending}/more.csv": 1,
    }
    assert source.outside(area, Calendar(day(0), day(2))) == []
    read = source.read(area, spark, days(0, 2)).select("arrival_day", "item", "cents")
    assert sorted(map(tuple, read.collect())) == [(day(0), "a", 1)] * 2 + [(day(2), "b", 2)] * 2


def test_a_pack_is_a_plain_file_to_patterns_that_do_not_go_into_it(area, golden):
    source = landing("%Y-%m-%d*")
    put(area.root, "sales/2019-08-15.zip", zipped({"a.csv": text(("a", 1))}))
    golden(str(refusal_of(source, area)))


def encrypted() -> bytes:
    content = bytearray(zipped({"a.csv": text(("a", 1))}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + at] |= 1
    return bytes(content)


def damaged() -> bytes:
    content = bytearray(zipped({"a.csv": text(*[(f"item {n}", n * n) for n in range(1000)])}))
    content[500] ^= 0xFF
    return bytes(content)


def without_zlib(error: SourceError) -> str:
    """The text of an error, without what this machine's zlib says of damaged data."""
    return re.sub(r"(decompressing data: )[^)]*", r"\1...", str(error))


def twice() -> bytes:
    content = zipped({"a.csv": text(("a", 1)), "b.csv": text(("b", 1))})
    return content.replace(b"b.csv", b"a.csv")


def bomb() -> bytes:
    """Declares a thousand times more than it could have."""
    content = bytearray(zipped({"a.csv": text(("a", 1))}))
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = (2**31).to_bytes(4, "little")
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        encrypted(),
        damaged(),
        zipped({"a.csv": text(("a", 1))})[:-30],
        twice(),
        zipped({"../a.csv": text(("a", 1))}),
        zipped({"/etc/a.csv": text(("a", 1))}),
        zipped({"b\\..\\..\\a.csv": text(("a", 1))}),
        bomb(),
        zipped({"a.txt": b"x"}),
    ],
    ids=["encrypted", "damaged", "cut", "twice", "..", "absolute", "backslash", "bomb", "none"],
)
def test_a_pack_that_is_not_safe_is_refused_on_its_day_with_the_reason(area, content, golden):
    put(area.root, "sales/2019-08-15.zip", content)
    put(area.root, "sales/2019-08-16.zip", zipped({"a.csv": text(("a", 1))}))
    source = landing("%Y-%m-%d.zip/*.csv")
    golden(without_zlib(refusal_of(source, area)))
    assert delivery_of(source, area, day(1)).files
    with_column = replace(source, files="*.zip/*.csv", day="on")
    with pytest.raises(SourceError) as whole:
        with_column.delivered(area, [day(3)])
    golden(without_zlib(whole.value), "with a column of the day")


def linked() -> bytes:
    """A tar with a link that leads out of it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as pack:
        entry = tarfile.TarInfo("a.csv")
        entry.type = tarfile.SYMTYPE
        entry.linkname = "/etc/passwd"
        pack.addfile(entry)
    return out.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        tarred({"../a.csv": text(("a", 1))}),
        tarred({"/etc/a.csv": text(("a", 1))}),
        pytest.param(tarred({"a.csv": (b"1" * (2**20 - 1) + b"\n") * 64}), marks=pytest.mark.scale),
        linked(),
    ],
    ids=["..", "absolute", "bomb", "link"],
)
def test_a_tar_that_is_not_safe_is_refused_on_its_day_with_the_reason(area, content, golden):
    put(area.root, "sales/2019-08-15.tar.gz", content)
    refused = str(refusal_of(landing("%Y-%m-%d.tar.gz/*.csv"), area))
    golden(refused, bytes=f"{2**26:,}")


@pytest.mark.parametrize("cut", [40, 100])
def test_a_cut_tar_is_refused(area, cut, golden):
    members = {"a.csv": text(*[(f"item {n}", n * n) for n in range(1000)])}
    put(area.root, "sales/2019-08-15.tar.gz", tarred(members)[:-cut])
    golden(str(refusal_of(landing("%Y-%m-%d.tar.gz/*.csv"), area)))


def test_packs_in_a_store_are_fetched_once(bucket, tmp_path, spark):
    area = area_at(bucket.place, tmp_path)
    source = landing("%Y-%m.zip/%Y-%m-%d.csv")
    members = {f"{on}.csv": text((on, 1)) for on in days(0, 1)}
    bucket.put("sales/2019-08.zip", zipped(members))
    with bucket.counting() as requests:
        assert delivery_of(source, area).files == {"sales/2019-08.zip/2019-08-15.csv": 1}
        assert [row["item"] for row in source.read(area, spark, [day(1)]).collect()] == [
            "2019-08-16"
        ]
    assert requests["GET sales/2019-08.zip"] == 1
