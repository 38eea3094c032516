"""Pictures of days: what the shapes of an SVG show, and the letters of a terminal."""

import random
import shutil
import time
from datetime import date, timedelta
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest

from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.lake.shadow import shadow_root
from backfill_assets.plan.shadow import built_in_shadows
from backfill_assets.plan.status import State
from backfill_assets.publish.pointers import pin
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.switch import Switch
from backfill_assets.verbs.pages import write_page
from backfill_assets.verbs.picture import LOOKS, MOST_DAYS, Mark, legend, strips, svg
from backfill_assets.verbs.plan import show_plan
from backfill_assets.verbs.status import read_status
from tests.worlds.command_line import (
    README,
    REJECTED,
    backfill,
    backfill_main,
    planned,
    two_days,
    values_of,
)
from tests.worlds.pictures import drawn, lightness
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    A,
    B,
    SmallLake,
    approved,
    copy_of,
    publish,
    rebuilt_in_shadow,
    released,
    released_lake,
)

FIRST = date(2019, 8, 15)
MOST_BYTES = 10_000_000
MOST_SECONDS = 20


def days_from(first: date, count: int) -> list[date]:
    return [first + timedelta(days=n) for n in range(count)]


def random_cells(tables: int, days: list[date], seed: int) -> dict[str, dict[date, State | Mark]]:
    chosen = random.Random(seed)
    return {
        f"features/table_{n}": {at: chosen.choice(list(LOOKS)) for at in days}
        for n in range(tables)
    }


@pytest.mark.parametrize("count", [1, 2, 60, MOST_DAYS])
def test_each_day_has_its_state(count):
    cells = random_cells(3, days_from(FIRST, count), seed=count)
    picture = drawn(svg(cells, "three tables"))
    assert picture.states() == {name: list(days.values()) for name, days in cells.items()}
    shown = {state for days in cells.values() for state in days.values()}
    assert list(picture.legend.values()) == [state for state in LOOKS if state in shown]


def test_equal_neighbours_are_one_shape_and_say_how_many_days_they_are():
    days = days_from(FIRST, 10)
    states = [State.UP_TO_DATE] * 6 + [State.FAILED] + [State.UP_TO_DATE] * 3
    picture = drawn(svg({"raw/a": dict(zip(days, states, strict=True))}, "one table"))
    assert picture.titles == [
        "one table",
        "raw/a 2019-08-15..2019-08-20: 6 up to date",
        "raw/a 2019-08-21: 1 failed",
        "raw/a 2019-08-22..2019-08-24: 3 up to date",
    ]


def test_a_long_history_is_drawn_by_month_and_no_state_of_a_month_is_hidden():
    days = days_from(FIRST, MOST_DAYS + 1)
    states = [State.FAILED if n % 40 == 3 else State.UP_TO_DATE for n in range(len(days))]
    picture = drawn(svg({"raw/a": dict(zip(days, states, strict=True))}, "half a year"))
    frame = pd.DataFrame({"month": [f"{at:%Y-%m}" for at in days], "state": list(map(str, states))})
    shares = frame.groupby("month").state.value_counts(normalize=True).unstack(fill_value=0)
    assert [set(states) for _, states in sorted(picture.rows["raw/a"].items())] == [
        {state for state in shares if row[state]} for _, row in shares.iterrows()
    ]
    for column, heights in picture.rows["raw/a"].items():
        assert sum(heights.values()) == pytest.approx(1, abs=0.02), column
        assert min(heights.values()) >= 0.2, column


def test_a_table_without_some_of_the_days_has_gaps_there():
    days = days_from(FIRST, 4)
    cells = {
        "raw/a": dict.fromkeys(days, State.UP_TO_DATE),
        "raw/b": dict.fromkeys([days[0], days[3]], State.UP_TO_DATE),
        "raw/c": {},
    }
    rows = drawn(svg(cells, "three tables")).rows
    assert {name: list(columns) for name, columns in rows.items()} == {
        "raw/a": [0, 1, 2, 3],
        "raw/b": [0, 3],
        "raw/c": [],
    }


@pytest.mark.parametrize("cells", [{}, {"raw/a": {}}], ids=["no table", "no day"])
def test_a_picture_of_nothing_is_a_picture(cells):
    assert list(drawn(svg(cells, "nothing")).rows) == list(cells)


@pytest.mark.parametrize(
    "name", ["raw/<script>alert(1)</script>", "raw/\"&amp;'", "raw/ü{{ 7*7 }}"]
)
def test_names_that_are_markup_are_text(name):
    picture = drawn(svg({name: {FIRST: State.FAILED}}, f"of {name}", [(name, FIRST)]))
    assert picture.titles == [f"of {name}", f"{name} {FIRST}: 1 failed"]
    assert list(picture.rows) == [name]
    assert picture.framed == {name: 1}


@pytest.mark.parametrize("text", ["\0\x08\x1b[31m", "\u202eabc\u2066", "\ufffe", "\udcff"])
def test_characters_that_no_picture_may_have_are_escaped(tmp_path, text):
    file = tmp_path / "days.svg"
    assert write_page(svg({"raw/a": {FIRST: State.FAILED}}, text), file) == file.stat().st_size
    (title, *_) = drawn(file.read_text()).titles
    assert title.isprintable()
    assert f"\\u{ord(text[0]):04x}" in title or f"\\u{ord(text[-1]):04x}" in title


def test_reasons_of_outdated_days_differ_in_lightness():
    picture = drawn(svg(random_cells(9, days_from(FIRST, 60), seed=1), "all"))
    assert len({look.letter for look in LOOKS.values()}) == len(LOOKS)
    for colours in picture.colours:
        assert len(set(colours.values())) == len(LOOKS)
        outdated = [lightness(colours[state]) for state in State if state.startswith("outdated")]
        assert min(abs(one - other) for one, other in combinations(outdated, 2)) >= 4
        seen = [
            lightness(colours[state]) for state in (Mark.RELEASED, Mark.IN_SHADOW, State.FAILED)
        ]
        assert min(abs(one - other) for one, other in combinations(seen, 2)) >= 8


@pytest.mark.scale
def test_730_000_days_are_drawn_in_seconds():
    days = days_from(date(2000, 1, 1), 7300)
    chosen = random.Random(1)
    states = [*[State.UP_TO_DATE] * 900, *[State.INPUT_CHANGED] * 90, State.FAILED]
    cells = {f"raw/{n}": {at: chosen.choice(states) for at in days} for n in range(100)}
    began = time.monotonic()
    text = svg(cells, "a hundred tables")
    assert (time.monotonic() - began < MOST_SECONDS, len(text) < MOST_BYTES) == (True, True)
    failed = {at.strftime("%Y-%m") for at in days if cells["raw/7"][at] == State.FAILED}
    shown = [State.FAILED in heights for _, heights in sorted(drawn(text).rows["raw/7"].items())]
    assert sum(shown) == len(failed)


def test_strips_are_those_of_the_readme():
    days = days_from(FIRST, 60)
    changed = (date(2019, 9, 5), date(2019, 9, 8))
    states = {at: State.SOURCE_CHANGED if at in changed else State.UP_TO_DATE for at in days}
    shown = README.text.partition("raw/outage_events  58 up to date")[2].splitlines()[:4]
    assert [line.plain for line in strips(states)] == shown[1:]
    assert legend({"raw/outage_events": states}) == "= up to date  s outdated: source files changed"


# Days of a lake in a shadow, and those that readers have.


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return copy_of(released_lake, tmp_path)


def shown(lake: SmallLake, file: Path, table: str = A.name) -> list[str]:
    """The states of the four days of a table, in a picture of the status."""
    read_status(lake.workspace, "", table, file)
    return drawn(file.read_text()).states()[table]


@pytest.mark.lake
def test_days_are_released_while_readers_have_the_rows_of_live(lake, tmp_path):
    file = tmp_path / "days.svg"
    assert shown(lake, file) == [Mark.RELEASED] * 4
    lake.write({DAYS[1]: 9})
    same = [lake.values()[at] == released(lake)[at] for at in DAYS]
    assert shown(lake, file) == [Mark.RELEASED if each else State.UP_TO_DATE for each in same]
    assert same == [True, False, True, True]


@pytest.mark.lake
def test_readers_of_an_earlier_release_do_not_have_the_later_days(lake, tmp_path):
    plan = rebuilt_in_shadow(lake, {DAYS[2]: 7})
    publish(lake, plan)
    file = tmp_path / "days.svg"
    assert shown(lake, file) == [Mark.RELEASED] * 4
    pin(str(lake.root), 1, "stable", who="ada", reason="wrong rows")
    same = [lake.values()[at] == released(lake)[at] for at in DAYS]
    assert same == [True, True, False, True]
    assert shown(lake, file) == [Mark.RELEASED if each else State.UP_TO_DATE for each in same]


@pytest.mark.lake
def test_readers_of_a_release_do_not_have_the_days_of_a_table_that_was_made_again(lake, tmp_path):
    shutil.rmtree(lake.root / A.name)
    lake.write(dict.fromkeys(DAYS, 9))
    assert shown(lake, tmp_path / "days.svg") == [State.UP_TO_DATE] * 4


@pytest.mark.lake
def test_readers_who_were_switched_do_not_have_the_days_of_the_other_table(lake, tmp_path):
    Switch(A.name, B.name).carry_out(lake.workspace, "ada", allow_breaking=True)
    assert shown(lake, tmp_path / "days.svg") == [State.UP_TO_DATE] * 4
    assert shown(lake, tmp_path / "days.svg", B.name) == [Mark.RELEASED] * 4


@pytest.mark.lake
def test_without_a_release_readers_have_nothing(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    lake.write(dict.fromkeys(DAYS, 1))
    assert shown(lake, tmp_path / "days.svg") == [State.UP_TO_DATE] * 4


@pytest.mark.lake
def test_days_are_in_a_shadow_until_they_are_published(lake, tmp_path):
    plan = rebuilt_in_shadow(lake, {DAYS[1]: 7, DAYS[2]: 8})
    root = str(lake.root)
    assert built_in_shadows(root) == {(name, at) for name in (A.name, B.name) for at in DAYS[1:3]}
    assert shown(lake, tmp_path / "days.svg") == [
        Mark.RELEASED, Mark.IN_SHADOW, Mark.IN_SHADOW, Mark.RELEASED,
    ]  # fmt: skip
    lines = [str(line) for line in read_status(lake.workspace, "", A.name).lines()]
    assert (lines[1], lines[-1]) == ("  2019-08               =##=", legend({A.name: {
        DAYS[0]: State.UP_TO_DATE, DAYS[1]: Mark.IN_SHADOW}}))  # fmt: skip
    publish(lake, plan)
    assert built_in_shadows(root) == set()
    assert shown(lake, tmp_path / "days.svg") == [Mark.RELEASED] * 4


@pytest.mark.lake
def test_days_that_a_publication_in_part_leaves_stay_in_the_shadow(lake):
    plan = rebuilt_in_shadow(lake, {DAYS[1]: 7, DAYS[2]: 8})
    for table in (A.name, B.name):
        lake.write({DAYS[1]: 5}, table=table)
    published = Publication(plan, lake.workspace, "ada", "", without_conflicts=True)
    left = published.publish(approved).left.keys()
    assert left == {(A.name, DAYS[1]), (B.name, DAYS[1])} == built_in_shadows(str(lake.root))


@pytest.mark.lake
@pytest.mark.parametrize("file", ["base.json", "_ledger/_delta_log/*.json", "_ledger/**/*.parquet"])
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_shadow_that_cannot_be_read_hides_no_status(lake, tmp_path, file, is_gone):
    plan = rebuilt_in_shadow(lake, {DAYS[1]: 7})
    for found in (lake.root / "_shadow" / plan.id).glob(file):
        found.unlink() if is_gone else found.write_text("{")
    assert shown(lake, tmp_path / "days.svg") == [Mark.RELEASED] * 4


# The commands.


@pytest.mark.lake
def test_a_plan_is_drawn_with_a_frame_around_its_days(tmp_path):
    plan = planned(tmp_path)
    file = tmp_path / "plan.svg"
    values = values_of("show", plan, "--svg", str(file), home=tmp_path)
    picture = drawn(file.read_text())
    planned_days = {name: len(days) for name, days in values["contents"]["reasons"].items()}
    assert (values["svg"], picture.framed, values["state"]) == (str(file), planned_days, "planned")
    assert "in the plan" in picture.legend.values()


@pytest.mark.lake
def test_the_status_of_the_named_tables_and_days_is_drawn(tmp_path):
    two_days(tmp_path)
    file = tmp_path / "days.svg"
    named = [REJECTED, f"{FIRST}..{FIRST + timedelta(2)}", "--svg", str(file)]
    printed = backfill("status", *named, home=tmp_path).stdout
    assert printed.endswith(f"Written to {file}.\n")
    values = values_of("status", *named, home=tmp_path)
    states = [values["tables"][REJECTED][str(FIRST + timedelta(n))]["state"] for n in range(3)]
    assert (values["svg"], drawn(file.read_text()).states()) == (str(file), {REJECTED: states})


@pytest.mark.parametrize("command", ["status", "show"])
@pytest.mark.parametrize("file", ["days.png", "no/days.svg", "."])
def test_a_file_that_cannot_be_a_picture_is_refused_before_anything_is_read(
    command, file, tmp_path, golden
):
    done = backfill_main(command, "--svg", str(tmp_path / file), home=tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    golden(done.stderr.replace(str(tmp_path), "FOLDER"), command="svg")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.lake
def test_a_plan_shows_what_is_built_failed_running_and_left(lake, tmp_path):
    plan = lake.shadow_plan({A.name: DAYS})
    lake.write({DAYS[0]: 7}, into=plan)
    failed = Build(A.name, DAYS[1], "failed", "run-x", "1", plan=plan.id, message="no rows")
    inside = shadow_root(str(lake.root), plan.id)
    Ledger(inside).append([failed])
    file = tmp_path / "plan.svg"
    with mark_running(inside, RunningStep(A.name, DAYS[2:3], "run-y", plan.id, NOW)):
        details = show_plan(plan.id, lake.workspace, "", file)
    expected = [Mark.IN_SHADOW, State.FAILED, State.RUNNING, Mark.PLANNED]
    assert drawn(file.read_text()).states() == {A.name: expected}
    assert drawn(file.read_text()).framed == {A.name: 4}
    assert [str(line) for line in details.lines()].count("  2019-08               #X>p") == 1
    published = lake.shadow_plan({A.name: DAYS[:1]}, reason="again")
    lake.write({DAYS[0]: 7}, into=published)
    publish(lake, published)
    show_plan(published.id, lake.workspace, "", file)
    assert drawn(file.read_text()).states() == {A.name: [Mark.RELEASED]}


def test_the_pictures_of_the_readme_follow_one_plan_to_its_readers():
    files = sorted((Path(README.path).parent / ".readme").glob("days-*.svg"))
    assert [file.stat().st_size < 40_000 for file in files] == [True] * 3
    pictures = [drawn(file.read_text()) for file in files]
    planned, built, published = (
        {(name, n, state) for name, row in picture.states().items() for n, state in enumerate(row)}
        for picture in pictures
    )
    outdated = {cell[:2] for cell in planned if cell[2] == State.SOURCE_CHANGED}
    left = {cell[:2] for cell in planned if cell[2] == Mark.PLANNED}
    in_shadow = {cell[:2] for cell in built if cell[2] == Mark.IN_SHADOW}
    assert outdated <= in_shadow <= outdated | left
    assert {cell[2] for cell in published} == {Mark.RELEASED}
    assert [sum(picture.framed.values()) for picture in pictures] == [len(outdated | left)] * 3
