"""`backfill report`: the page of lakes that are empty, being written, or full of markup."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.cli import exit_codes
from backfill_assets.errors import UsageError
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.plan.status import State
from backfill_assets.plan.store import Plans
from backfill_assets.quality.masking import MASKED
from backfill_assets.verbs.lake_report import LakeReport, write_report
from backfill_assets.workspace import Workspace
from tests.worlds.command_line import backfill, backfill_main, values_of
from tests.worlds.deliveries import day
from tests.worlds.recorded import A, B, BuiltLake, late_lake
from tests.worlds.small_lake import (
    SmallLake,
    copy_of,
    publish,
    rebuilt_in_shadow,
    released_lake,
    verdict_of,
)

MARKUP = "<script>alert('&amp;')</script><img src=x onerror=\"y\">"
ELEMENTS = re.compile(
    "a|b|body|br|code|dd|desc|details|div|dl|dt|g|h1|h2|h3|head|html|li|meta|nav|p|path|pre|rect"
    "|small|span|style|summary|svg|table|td|text|th|title|tr|ul"
)


class Page(HTMLParser):
    """The elements of a page, and its texts."""

    def __init__(self, page: str):
        super().__init__()
        self.elements = set[str]()
        self.attributes = set[str]()
        self.open = list[str]()
        self.texts = list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def page_of(report: LakeReport) -> Page:
    text = Path(report.file).read_text()
    page = Page(text)
    assert not page.open
    assert not [name for name in page.elements if not ELEMENTS.fullmatch(name)]
    assert not [name for name in page.attributes if name.startswith("on") or name == "src"]
    assert len(text.encode()) == report.size
    return page


def report_of(workspace: Workspace, tmp_path: Path, **options: Any) -> LakeReport:
    return write_report(workspace, tmp_path / "lake.html", **options)


def test_the_command_writes_one_file_and_says_so(tmp_path, golden):
    copy_of(released_lake, tmp_path)
    file = tmp_path / "lake.html"
    done = backfill("report", str(file), home=tmp_path)
    assert done.exit_code == exit_codes.DONE
    golden(done.stdout, command="report")
    values = values_of("report", str(file), home=tmp_path)
    assert (values["html"], values["bytes"]) == (str(file), file.stat().st_size)


@pytest.mark.parametrize("name", ["lake.txt", "no folder/lake.html"])
def test_a_file_that_cannot_be_a_page_is_refused_before_anything_is_read(tmp_path, name):
    done = backfill("report", str(tmp_path / name), home=tmp_path)
    assert isinstance(done.exception, UsageError)


def test_a_lake_without_builds_has_a_page(tmp_path):
    report = report_of(BuiltLake(tmp_path / "lake").workspace, tmp_path)
    page = page_of(report)
    assert "There is no lake yet" in page.text
    assert [report.contents[name] for name in ("plans", "releases", "checks", "runs")] == [[]] * 4
    assert not (tmp_path / "lake").exists()


def test_a_calendar_without_days_has_a_page(tmp_path):
    lake = BuiltLake(tmp_path / "lake", Calendar(day(1), day(0)))
    assert page_of(report_of(lake.workspace, tmp_path)).text
    lake.build(A, 0)
    assert page_of(report_of(lake.workspace, tmp_path)).text


def test_a_home_without_a_lake_has_a_page(tmp_path):
    done = backfill("report", str(tmp_path / "lake.html"), home=tmp_path)
    assert done.exit_code == exit_codes.DONE


def test_states_plans_and_releases_are_those_of_the_lake(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    plan = rebuilt_in_shadow(lake, {day(1): 5, day(2): 3})
    verdict_of(plan, lake.workspace)
    before = report_of(lake.workspace, tmp_path)
    (shown,) = before.contents["plans"]
    assert (shown["plan"], shown["in_shadow"], shown["state"]) == (plan.id, True, "done")
    changed = {row["table"]: (row["rows_before"], row["rows_after"]) for row in shown["changed"]}
    # The days had two and three rows.
    assert changed == {"raw/a": (5, 8), "raw/b": (5, 8)}
    publish(lake, plan)
    after = report_of(lake.workspace, tmp_path)
    (shown,) = after.contents["plans"]
    assert (shown["in_shadow"], shown["state"]) == (False, "published")
    newest, first = after.contents["releases"]
    assert {row["table"]: row["days"] for row in first["changed"]} == {"raw/a": 4, "raw/b": 4}
    rows = {row["table"]: (row["rows_before"], row["rows_after"]) for row in newest["changed"]}
    assert rows == {"raw/a": (2, 5), "raw/b": (2, 5)}
    assert "Readers get" in page_of(after).text
    assert "release 2" in page_of(after).text
    other = rebuilt_in_shadow(lake, {day(3): 5})
    ended = max((lake.root / "_plans" / other.id).glob("*-ended-*"))
    ended.write_text("")
    broken = report_of(lake.workspace, tmp_path)
    shown = {values["plan"]: values for values in broken.contents["plans"]}
    assert (shown[plan.id]["state"], shown[other.id]["state"]) == ("published", "ended")
    assert ended.name in page_of(broken).text
    assert broken.contents["releases"] == after.contents["releases"]


def test_a_page_is_written_while_a_plan_runs(tmp_path):
    lake = BuiltLake(tmp_path / "lake")
    lake.build(A, 0, 1)
    plan = lake.start_plan(A, [1, 2])
    with mark_running(str(lake.root), RunningStep(A, [day(2)], "run-7")):
        report = report_of(lake.workspace, tmp_path)
    assert report.contents["states"][A][State.RUNNING] == [day(2)]
    page = page_of(report)
    assert f"Plan {plan} is open." in page.text
    assert f"backfill watch {plan}" in page.text


def test_late_rows_are_shown_with_the_commands_that_rebuild_days(tmp_path):
    late_lake(tmp_path / "lake")
    file = tmp_path / "lake.html"
    days = {"BACKFILL_FIRST_DAY": str(day(0)), "BACKFILL_LAST_DAY": str(day(19))}
    assert backfill_main("report", str(file), home=tmp_path, **days).returncode == exit_codes.DONE
    late = json.loads(backfill_main("late", "--json", home=tmp_path, **days).stdout)
    text = Page(file.read_text()).text
    commands = [*late["within_horizon"]["commands"], *late["beyond_horizon"]["commands"]]
    assert len(commands) == 2
    assert not [command for command in commands if command not in text]


def check(passed: bool, severity: str = "error", **fields: Any) -> dict[str, Any]:
    known = {"rule": "phones", "message": "", "figures": {}, "rows": []}
    return known | {"passed": passed, "severity": severity} | fields


def test_everything_that_people_and_sources_wrote_is_escaped(tmp_path):
    lake = BuiltLake(tmp_path / MARKUP.replace("/", ""))
    broken = check(False, message=MARKUP, rows=[MARKUP], rule="no_markup")
    wrote: dict[str, Any] = {
        "who": MARKUP,
        "reason": MARKUP,
        "accept": MARKUP,
        "git_commit": MARKUP,
    }
    lake.build(A, 0, checks=[broken], nulls={MARKUP: 1}, **wrote)
    lake.build(A, 1, nulls={MARKUP: 0}, plan=MARKUP, **wrote)
    lake.fail(A, 2, message=MARKUP, checks=[broken], **wrote)
    lake.releases.add(None, {}, kind="live", who=MARKUP, reason=MARKUP)
    page = page_of(report_of(lake.workspace, tmp_path, rows=True))
    assert page.text.count(MARKUP) >= 8


def built_with_checks(lake: BuiltLake) -> BuiltLake:
    row = '{"outage_day": "2019-08-15", "phone": "+1-555-0100", "n": 7}'
    refused = check(False, message="for example '+1-555-0100'", rows=[row])
    lake.build(A, 0, checks=[check(True)])
    lake.build(A, 1, checks=[check(False, "warning")])
    lake.build(A, 2, checks=[refused], accept="phones")
    lake.build(B, 0, checks=[check(True)])
    lake.fail(B, 1, checks=[refused], message="phones: +1-555-0100")
    return lake


def verdicts(report: LakeReport) -> Mapping[str, Mapping[Any, str]]:
    return {
        rule["table"]: {of["day"]: of["result"] for of in rule["days"]}
        for rule in report.contents["checks"]
    }


def test_verdicts_are_passed_warnings_accepted_or_refused(tmp_path):
    report = report_of(built_with_checks(BuiltLake(tmp_path / "lake")).workspace, tmp_path)
    assert verdicts(report) == {
        A: {day(0): "passed", day(1): "warning", day(2): "accepted"},
        B: {day(0): "passed", day(1): "refused"},
    }


def test_rows_and_messages_are_shown_only_on_request(tmp_path):
    lake = built_with_checks(BuiltLake(tmp_path / "lake"))
    workspace = lake.workspace
    plan = lake.start_plan(B, [1])
    why = "a day failed: phones: +1-555-0100"
    Plans(str(lake.root)).note(plan, "ended", datetime.now(UTC), ending="stopped", why=why)
    assert "555" not in page_of(report_of(workspace, tmp_path)).text
    page = page_of(report_of(workspace, tmp_path, rows=True))
    assert why in page.text
    assert page.text.count('"phone": "+1-555-0100"') == 2


def test_rows_of_before_a_mask_are_masked(tmp_path):
    workspace = built_with_checks(BuiltLake(tmp_path / "lake")).workspace
    masked = tuple(replace(table, mask=["phone"]) for table in workspace.tables)
    page = page_of(report_of(replace(workspace, tables=masked), tmp_path, rows=True))
    assert '"phone": "+1-555-0100"' not in page.text
    assert page.text.count(f'"phone": "{MASKED}"') == 2


def test_rows_that_differ_between_releases_are_shown_on_request_and_masked(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    publish(lake, rebuilt_in_shadow(lake, {day(1): 977}))
    page = page_of(report_of(lake.workspace, tmp_path, rows=True))
    assert "977 rows added" in page.text
    assert "n=977" in page.text
    masked = tuple(replace(table, mask=["n"]) for table in lake.tables)
    page = page_of(report_of(SmallLake(lake.root, tables=masked).workspace, tmp_path, rows=True))
    assert f'n="{MASKED}"' in page.text
    assert "n=977" not in page.text


def used_by(text: str) -> Iterator[str]:
    """The addresses and files that a page would load."""
    yield from re.findall(r"(?:src|href)=\"([^#\"][^\"]*)\"", text)
    yield from re.findall(r"url\(|@import|<link|<script", text)


def test_a_page_loads_nothing(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    file = Path(report_of(lake.workspace, tmp_path, rows=True).file)
    assert list(used_by(file.read_text())) == []
