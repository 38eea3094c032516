"""A line of CSV in an archive is the row that Spark makes of the same line where it lands."""

import random

from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.archives.loading import take_in
from backfill_assets.sources.archives.two_flows import TwoFlows
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import field
from backfill_assets.sources.files.formats import Csv
from backfill_assets.sources.files.landing import Landing
from tests.worlds.deliveries import day, put

LINES = [
    "a,b,c", "a,,c", ",,", "a,b", "a,b,c,d", " a , b , c ", 'a,"6 inch pipe,x', 'a,x,"6 inch', 'a,x,"6 "" inch', 'a,x,"',
    'a,"x"y,c', 'a,"x,y"z,c', 'a,"x,y"z"w,c', 'a, "x",c', 'a,"x" ,c', 'a,"x""y",c', 'a,"x""y"z,c', 'a,"",c', 'a,x"y,c',
    '"a,b","c"",d",e', 'a,"b"",c,d', 'a,"b\\"c",d', '"a,b,c', 'a,"b,"c",d', 'a,"  ",c', 'a,"""",c', 'a,""x"",c', '""',
    '"a"b"c,d",e,f', 'a,"b""c,d', 'a,b," " a"', 'a,"" b"x', 'a,b," "  ""', 'a,b,"x" y"', 'a," " a",c', 'a,b,"" a" ',
]  # fmt: skip


def test_lines_of_csv_are_the_same_rows_by_either_way_whatever_quotes_they_have(
    tmp_path, spark, seed
):
    chance = random.Random(seed)
    area = LandingArea(tmp_path / "landing", lake=str(tmp_path / "lake"))
    lines = [
        *LINES,
        *("a" + "".join(chance.choices('",ab \\', k=chance.randrange(12))) for _ in range(300)),
    ]
    fields = [field(f"{name} STRING") for name in "xyz"]
    source = TwoFlows(
        Landing("rows", format=Csv(), fields=fields), Archive("past", day="at", format=Csv())
    )
    put(area.root, "rows/2019-08-15.csv", "x,y,z\n" + "".join(f"{line}\n" for line in lines))
    put(
        area.root, "past/a.csv.gz", "at,x,y,z\n" + "".join(f"2019-08-16,{line}\n" for line in lines)
    )
    (taken,) = take_in(source.archive, area)
    assert taken.record
    assert (taken.rows, taken.record.undated) == (
        len(lines),
        0,
    ), "none is lost, and none takes in another"
    read = (
        source.read(area, spark, [day(0), day(1)])
        .select("arrival_day", "x", "y", "z", "malformed")
        .collect()
    )
    landed = sorted((tuple(row[1:]) for row in read if row[0] == day(0)), key=repr)
    filed = [
        (*row[1:4], row[4] and row[4].removeprefix("2019-08-16,"))
        for row in read
        if row[0] == day(1)
    ]
    assert len(landed) == len(lines)
    assert sorted(filed, key=repr) == landed
