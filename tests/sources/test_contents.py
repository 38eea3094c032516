"""What reading a file in pieces shows of it, against what reading it whole does."""

import csv
import gzip
import hashlib
import random
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.archives.loading import load_archives
from backfill_assets.sources.archives.two_flows import TwoFlows
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import field
from backfill_assets.sources.files.formats import Csv, LineCounter, read_contents
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.files.packing import unpacked_gzip
from tests.worlds.deliveries import LINE, day, put

PACKED = gzip.compress(LINE.encode(), mtime=0)
TRUNCATED = (
    "cannot be read to its end (Compressed file ended before the end-of-stream marker was reached)"
)
UTF_16 = "is text in UTF-16: write encoding='utf-16' in its format"
BAD_HEADER = "cannot be read to its end (Error -3 while decompressing data: incorrect header check)"


@pytest.mark.parametrize(
    ("name", "text", "lines", "fault"),
    [
        pytest.param("a.jsonl", LINE, 1, "", id="a line"),
        pytest.param("a.jsonl", " \t\n\n\r\n", 0, "", id="blank lines"),
        pytest.param("a.jsonl", "", 0, "", id="nothing"),
        pytest.param("a.jsonl", b"\xef\xbb\xbf", 0, "", id="a byte order mark"),
        pytest.param(
            "a.jsonl", LINE + LINE[:-1], 2, "", id="a last line that is whole and not ended"
        ),
        pytest.param("a.jsonl", LINE + '{"outage', 2, "is cut off", id="half a line"),
        pytest.param("a.jsonl", "[" * 100_000, 1, "is cut off", id="half a line, deeply nested"),
        pytest.param("a.jsonl", '{"a": "é"}'.encode()[:8], 1, "is cut off", id="half a character"),
        pytest.param("a.jsonl.gz", LINE, 1, "", id="a packed line"),
        pytest.param("a.jsonl.gz", "\n", 0, "", id="a packed blank line"),
        pytest.param("a.jsonl.gz", LINE[:-5], 1, "is cut off", id="a packed half line"),
        pytest.param("a.jsonl.gz", b"", 0, "", id="an empty file that should be packed"),
        pytest.param("a.jsonl.gz", PACKED * 3, 3, "", id="three packed files in one"),
        pytest.param("a.jsonl.gz", PACKED[:-1], 1, TRUNCATED, id="a packed file cut off"),
        pytest.param("a.jsonl.gz", PACKED[:12], 1, TRUNCATED, id="its beginning"),
        pytest.param(
            "a.jsonl.gz",
            PACKED + bytes(512),
            1,
            BAD_HEADER,
            id="a packed file with zeros behind it",
        ),
        pytest.param(
            "a.jsonl.gz", PACKED + b"\0", 1, TRUNCATED, id="a packed file with one zero behind it"
        ),
        pytest.param("a.jsonl.gz", b"no gzip", 0, BAD_HEADER, id="no packed file at all"),
        pytest.param("a.jsonl", LINE.encode("utf-16"), 2, UTF_16, id="text in UTF-16"),
        pytest.param(
            "a.jsonl.gz",
            gzip.compress(LINE.encode("utf-16")),
            2,
            UTF_16,
            id="packed text in UTF-16",
        ),
        pytest.param(
            "a.jsonl",
            PACKED,
            1,
            "is packed with gzip, and its name does not end in .gz",
            id="packed, not so called",
        ),
        pytest.param(
            "a.jsonl", b"PK\x03\x04\n", 1, "is a ZIP archive or a workbook", id="a workbook"
        ),
    ],
)
def test_lines_and_faults_of_a_file_are_found(tmp_path, name, text, lines, fault):
    file = put(tmp_path, name, text)
    contents = read_contents(file)
    # What is cut off can be read as far as it goes, anything else cannot.
    cut = fault if fault in ("is cut off", TRUNCATED) else ""
    assert (contents.lines, contents.fault, contents.cut) == (lines, "" if cut else fault, cut)
    assert contents.size == file.stat().st_size
    assert contents.content == hashlib.blake2b(file.read_bytes()).hexdigest()[:32]


@given(
    st.lists(
        st.binary(max_size=6) | st.sampled_from([b"\n", b"\r", b"\r\n", b" ", b"\t"]), max_size=12
    )
)
@example([b"a\r", b"\nb"])
@example([b"", b"a", b"", b"\n"])
def test_lines_are_counted_for_any_pieces(pieces):
    lines = LineCounter()
    whole = b"".join(pieces).removeprefix(b"\xef\xbb\xbf").splitlines()
    for piece in pieces:
        lines.add(piece)
    lines.end()
    assert lines.count == sum(1 for line in whole if line.strip(b" \t"))
    assert lines.longest == max(map(len, whole), default=0)


@given(
    st.lists(
        st.sampled_from(
            ["é".encode(), b"\xc3", b"\xa9", b"a", b"\n", "€".encode()[:2], "€".encode()[2:]]
        ),
        max_size=5,
    )
)
def test_utf_8_is_detected_for_any_pieces(pieces):
    lines = LineCounter()
    for piece in [*pieces, b""]:
        lines.add(piece)
    assert lines.utf8 == (b"".join(pieces).decode(errors="replace").find("\ufffd") < 0)


@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=4),
    st.integers(1, 60),
    st.integers(0, 40),
    st.binary(max_size=3),
)
def test_gzip_is_unpacked_as_python_does(members, length, cut, behind):
    packed = b"".join(map(gzip.compress, members)) + behind
    packed = packed[: len(packed) - cut]
    pieces = [packed[at : at + length] for at in range(0, len(packed), length)]
    try:
        text = b"".join(unpacked_gzip(pieces))
    except (EOFError, zlib.error):
        text = None
    try:
        expected = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        expected = None
    assert text == expected or (text is None and packed.endswith(b"\0"))


def line_of(size: int, path: Path) -> Path:
    """A file whose one line has `size` bytes, packed into a thousandth of that."""
    packer = zlib.compressobj(wbits=31)
    part = b" " * 2**20
    with path.open("wb") as file:
        for _ in range(size // len(part)):
            file.write(packer.compress(part))
        file.write(packer.flush())
    return path


@pytest.mark.scale
@pytest.mark.lake
def test_a_very_long_line_is_measured_in_little_memory(tmp_path):
    file = line_of(256 * 2**20, tmp_path / "a.jsonl.gz")
    tracemalloc.start()
    contents = read_contents(file)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert contents.longest_line == 256 * 2**20
    assert most < 64 * 2**20


def test_a_very_long_name_of_a_column_is_read_whatever_was_read_before(tmp_path):
    """The limit of Python's reader holds for the whole process, and is short at first."""
    csv.field_size_limit(2**17)
    path = tmp_path / "a.csv"
    name = "n" * 2**18
    path.write_text(f"{name},b\n1,2")
    assert Csv().names(Csv().contents(path).header) == [name, "b"]


@pytest.mark.parametrize(
    ("text", "ends_with_newline", "cut"),
    [
        ("id,n\n1,99\n", True, ""),
        ("id,n\n1,9", True, "is cut off"),
        ("id,n\n1,9", False, ""),
        ("id,n\n1", False, "is cut off"),
    ],
    ids=[
        "as declared",
        "within its last value",
        "of a publisher that ends so now and then",
        "before its last value",
    ],
)
def test_a_file_cut_off_within_a_value_is_detected(tmp_path, text, ends_with_newline, cut):
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert Csv(ends_with_newline=ends_with_newline).contents(path).cut == cut


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ('id,note\n1,"a ""b"" c\nd"\n2,e\n', ""),
        ('id,note\n1,"a ""b"" c\nd"\n2,"e\n', "is cut off"),
        ('id,note\n1,"a ""b"" c\nd"\n2,"e ""f""\n', "is cut off"),
        ('id,note\n1,"a\nb"', ""),
    ],
    ids=[
        "whole",
        "within a value",
        "behind a quote in a value",
        "whole, without a line feed at its end",
    ],
)
def test_an_unclosed_multiline_value_is_cut_off(tmp_path, text, cut):
    (path := tmp_path / "a.csv").write_text(text)
    assert Csv(multiline=True).contents(path).cut == cut


LINES = [
    "a,b,c",
    "a,,c",
    ",,",
    "a,b",
    "a,b,c,d",
    " a , b , c ",
    'a,"6 inch pipe,x',
    'a,x,"6 inch',
    'a,x,"6 "" inch',
    'a,x,"',
    'a,"x"y,c',
    'a,"x,y"z,c',
    'a,"x,y"z"w,c',
    'a, "x",c',
    'a,"x" ,c',
    'a,"x""y",c',
    'a,"x""y"z,c',
    'a,"",c',
    'a,x"y,c',
    '"a,b","c"",d",e',
    'a,"b"",c,d',
    'a,"b\\"c",d',
    '"a,b,c',
    'a,"b,"c",d',
    'a,"  ",c',
    'a,"""",c',
    'a,""x"",c',
    '""',
    '"a"b"c,d",e,f',
    'a,"b""c,d',
    'a,b," " a"',
    'a,"" b"x',
    'a,b," "  ""',
    'a,b,"x" y"',
    'a," " a",c',
    'a,b,"" a" ',
]


def has_quotes_of_rfc_4180(line: str) -> bool:
    try:
        next(csv.reader([line], strict=True))
    except csv.Error:
        return False
    return True


def test_csv_lines_give_the_same_rows_as_delivery_and_as_archive(tmp_path, spark, seed):
    """The lines with quotes of RFC 4180. Others are malformed in a delivery."""
    chance = random.Random(seed)
    area = LandingArea(tmp_path / "landing", lake=str(tmp_path / "lake"))
    lines = [
        *LINES,
        *("a" + "".join(chance.choices('",ab \\', k=chance.randrange(12))) for _ in range(300)),
    ]
    others = [line for line in lines if not has_quotes_of_rfc_4180(line)]
    lines = [line for line in lines if has_quotes_of_rfc_4180(line)]
    fields = [field(f"{name} STRING") for name in "xyz"]
    source = TwoFlows(
        Landing("rows", format=Csv(), fields=fields), Archive("past", day="at", format=Csv())
    )
    put(area.root, "rows/2019-08-15.csv", "x,y,z\n" + "".join(f"{line}\n" for line in lines))
    put(area.root, "rows/2019-08-17.csv", "x,y,z\n" + "".join(f"{line}\n" for line in others))
    put(
        area.root, "past/a.csv.gz", "at,x,y,z\n" + "".join(f"2019-08-16,{line}\n" for line in lines)
    )
    (taken,) = load_archives(source.archive, area)
    assert taken.record
    assert (taken.rows, taken.record.undated) == (
        len(lines),
        0,
    ), "none is lost, and none takes in another"
    read = (
        source.read(area, spark, [day(0), day(1), day(2)])
        .select("arrival_day", "x", "y", "z", "malformed")
        .collect()
    )
    landed = sorted((tuple(row[1:]) for row in read if row[0] == day(0)), key=repr)
    filed = [
        (*row[1:4], row[4] and row[4].removeprefix("2019-08-16,"))
        for row in read
        if row[0] == day(1)
    ]
    malformed = [(*row[1:4], row[4]) for row in read if row[0] == day(2)]
    assert sorted(malformed, key=repr) == sorted([(None, None, None, o) for o in others], key=repr)
    assert len(landed) == len(lines)
    assert sorted(filed, key=repr) == landed
